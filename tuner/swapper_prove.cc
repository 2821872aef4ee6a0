// SPDX-License-Identifier: Apache-2.0
//
// Before a generation is published: what it needs is built, and run in a worker.
#include <algorithm>
#include <optional>

#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/ab.h"
#include "tuner/contest.h"
#include "tuner/feasibility.h"
#include "tuner/swapper_impl.h"
#include "tuner/work.h"

namespace kvr {
namespace {

constexpr int kRounds = 2;              // input sets of a verification
constexpr size_t kMostVerified = 4096;  // remembered

// What a verification is of.
Fingerprint ProofOf(const SwapChange& change, const Axes& axes) {
  return Hasher()
      .Field("variant", change.after.variant->fingerprint)
      .Field("config", ConfigText(change.after.config))
      .Field("binary", change.binary->key)
      .Field("op", change.op->name())
      .Field("axes", AxesText(axes))
      .Finish();
}

// "1 shape", "3 shapes"
std::string Shapes(size_t count) { return StrCat(count, count == 1 ? " shape" : " shapes"); }

}  // namespace

WorkerOptions Swapper::Impl::Worker(const SwapPlan& plan) const {
  WorkerOptions worker;
  worker.executable = options.worker;
  worker.device = options.device;
  worker.plugin_roots = options.plugin_roots;
  worker.memory_bytes = options.memory_bytes;
  worker.cancel = &cancel;
  const auto add = [&](const std::string& place) {
    std::vector<std::string>& places = worker.replacements;
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  };
  for (const Adopted& adopting : plan.adopted) add(adopting.place);
  for (const auto& [name, kept] : adopted) add(kept.place);
  return worker;
}

Workbench Swapper::Impl::Bench(const SwapPlan& plan) const {
  return {.catalog = dispatcher.catalog(), .jit = jit, .worker = Worker(plan), .cancel = &cancel};
}

absl::Status Swapper::Impl::Build(SwapPlan& plan) {
  const DeviceInfo& device = dispatcher.device().info();
  // Of one operation at a time, each binary once.
  std::map<const Catalog::Op*, std::vector<SwapChange*>> by_op;
  for (SwapChange& change : plan.changes) {
    KVR_RETURN_IF_ERROR(LoadCode(*change.after.variant));
    if (change.measured != Fingerprint{}) {
      change.binary = jit.Lookup(change.measured);
      if (change.binary != nullptr && change.binary->target != device.target) {
        change.binary = nullptr;
      }
    }
    if (change.binary == nullptr) by_op[change.op].push_back(&change);
  }
  const Workbench bench = Bench(plan);
  for (const auto& [op, changes] : by_op) {
    std::vector<Candidate> candidates;
    for (const SwapChange* change : changes) candidates.push_back(change->after);
    PhaseProgress progress(nullptr, Phase::kCompile, static_cast<int>(candidates.size()));
    const std::vector<absl::StatusOr<Built>> built =
        BuildAll(bench, op->spec(), candidates, device.target, progress);
    for (size_t i = 0; i < changes.size(); ++i) {
      KVR_RETURN_IF_ERROR(built[i].status());
      changes[i]->binary = built[i]->binary;
    }
  }

  // Does it fit each shape that is loaded?
  for (SwapChange& change : plan.changes) {
    std::vector<Axes> fitting;
    for (Axes& axes : change.shapes) {
      KVR_ASSIGN_OR_RETURN(const AxisVector resolved, ResolveAxes(change.op->spec(), axes));
      LaunchPlan launch;
      absl::Status fits =
          CheckPlan(*change.after.variant, change.after.config, resolved, device, &launch);
      if (fits.ok()) {
        fits = CheckResources(*change.after.variant, launch, *change.binary, device);
      }
      if (fits.ok()) {
        fitting.push_back(std::move(axes));
      } else if (plan.misfits_fall_back && IsMisfit(fits)) {
        plan.notes.push_back(
            StrCat(change.Text(), " does not fit {", AxesText(axes), "}: the baseline serves it"));
      } else {
        return WithContext(StrCat(change.Text(), " at {", AxesText(axes), "}"), fits);
      }
    }
    change.shapes = std::move(fitting);
  }

  // The generation names the binaries that were built.
  for (SwapPlan::Selected& s : plan.selected) {
    if (s.selection.binary != Fingerprint{}) continue;
    const Variant& variant = *s.selection.variant;
    for (const SwapChange& change : plan.changes) {
      if (change.after.variant == s.selection.variant &&
          CompileScope(change.after.config, variant.tunables) ==
              CompileScope(s.selection.config, variant.tunables)) {
        s.selection.binary = change.binary->key;
        break;
      }
    }
  }
  return plan.MakeNext();
}

absl::Status Swapper::Impl::Verify(SwapPlan& plan) {
  struct Proof {
    const SwapChange* change;
    const Axes* axes;
    Fingerprint proof;
  };
  std::vector<Proof> wanted;
  size_t known = 0;
  for (const SwapChange& change : plan.changes) {
    for (const Axes& axes : change.shapes) {
      KVR_ASSIGN_OR_RETURN(const AxisVector resolved, ResolveAxes(change.op->spec(), axes));
      if (NothingToLaunch(change.op->spec(), resolved)) continue;
      const Fingerprint proof = ProofOf(change, axes);
      if (verified.count(proof) > 0) {
        ++known;
      } else if (std::none_of(wanted.begin(), wanted.end(),
                              [&](const Proof& other) { return other.proof == proof; })) {
        wanted.push_back({&change, &axes, proof});
      }
    }
  }
  if (known > 0) plan.notes.push_back(StrCat("verified before at ", Shapes(known)));
  if (wanted.empty()) return absl::OkStatus();

  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerClient> worker,
                       WorkerClient::Start(Worker(plan)));
  const DeviceInfo& device = dispatcher.device().info();
  if (worker->device().target != device.target || worker->device().model != device.model) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat("the worker's device is ", worker->device().name, " (", worker->device().target,
               "), this process has ", device.name, " (", device.target, ")"),
        "give the swapper the runtime's device");
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<BinaryFiles> files, BinaryFiles::Create());
  uint64_t seed = 0;
  const std::vector<uint64_t> seeds = Seeds(&seed, kRounds);
  for (const Proof& proof : wanted) {
    const SwapChange& change = *proof.change;
    KVR_RETURN_IF_ERROR(change.op->operation->Load());
    KVR_ASSIGN_OR_RETURN(std::string path, files->Add(*change.binary));
    const absl::StatusOr<Finding> finding = worker->Verify({change.op->name(), *proof.axes, seeds},
                                                           ItemOf(change.after, std::move(path)));
    if (!finding.ok()) return WithContext(change.Text(), finding.status());
    if (finding->status != TrialStatus::kPassed) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat(change.Text(), " at {", AxesText(*proof.axes),
                          "}: ", TrialStatusName(finding->status), ": ", finding->reason),
                   "correct the variant, or select another config");
    }
    if (verified.size() >= kMostVerified) verified.clear();
    verified.insert(proof.proof);
    if (!finding->quality.empty()) {
      plan.notes.push_back(StrCat(change.Text(), " at {", AxesText(*proof.axes),
                                  "}: ", QualityLine(finding->quality)));
    }
  }
  plan.notes.push_back(StrCat("verified at ", Shapes(wanted.size())));
  return absl::OkStatus();
}

absl::Status Swapper::Impl::Canary(SwapPlan& plan) {
  struct Pair {
    const Catalog::Op* op;
    Candidate before, after;
    std::vector<Axes> shapes;
  };
  std::vector<Pair> pairs;
  for (const SwapChange& change : plan.changes) {
    if (change.before.variant == nullptr || change.before == change.after) continue;
    const auto known = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) {
      return pair.op == change.op && pair.before == change.before && pair.after == change.after;
    });
    Pair& pair = known != pairs.end() ? *known : pairs.emplace_back();
    pair.op = change.op;
    pair.before = change.before;
    pair.after = change.after;
    pair.shapes.insert(pair.shapes.end(), change.shapes.begin(), change.shapes.end());
  }
  for (const Pair& pair : pairs) {
    AbRequest request;
    request.op = pair.op->name();
    request.shapes = pair.shapes;
    request.sides = {pair.before, pair.after};
    request.approximate = dispatcher.options().approximate;
    const absl::StatusOr<AbReport> compared = CompareContestants(Bench(plan), request);
    if (absl::IsAborted(compared.status())) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat(What(compared.status()), ": what serves now can no longer be measured"),
                   "swap without a canary and compare live");
    }
    KVR_RETURN_IF_ERROR(compared.status());
    const AbReport& report = *compared;
    if (cancel.load(std::memory_order_relaxed)) return absl::CancelledError("cancelled");
    const std::string where =
        StrCat("canary on ", report.device.name, ": ", report.names[kChallenger], " against ",
               report.names[kIncumbent]);
    for (const AbShape& shape : report.shapes) {
      const std::string at = StrCat(where, " at {", ShapeText(pair.op->spec(), shape.axes), "}: ");
      // Trouble of a session (drift, throttling) says nothing against the challenger.
      const bool unproved = shape.verdict == stats::Verdict::kInvalid &&
                            shape.reason != kNothingToLaunch &&
                            (shape.sessions.empty() || shape.sessions.front().fault());
      if (shape.verdict != stats::Verdict::kLoss && !unproved) continue;
      return Error(
          absl::StatusCode::kFailedPrecondition,
          StrCat(at, unproved ? shape.reason
                              : StrCat("LOSS, ", DifferenceText(shape.difference, shape.interval))),
          "keep what serves, or swap without a canary");
    }
    plan.notes.push_back(StrCat(where, ": ", Answer(report)));
  }
  return absl::OkStatus();
}

}  // namespace kvr
