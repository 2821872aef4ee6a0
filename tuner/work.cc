// SPDX-License-Identifier: Apache-2.0
#include "tuner/work.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"
#include "registry/overrides.h"
#include "tuner/feasibility.h"

namespace kvr {
namespace {

// --set, then those of the environment that --set does not name and some chosen variant knows.
absl::StatusOr<std::vector<std::string>> AllPins(const Catalog& catalog, const WorkRequest& request,
                                                 absl::Span<const VariantPtr> variants) {
  std::vector<std::string> pins = request.pins;
  KVR_ASSIGN_OR_RETURN(const auto parsed, ParsePins(pins));
  KVR_ASSIGN_OR_RETURN(const Overrides overrides, Overrides::FromEnvironment(catalog));
  const Overrides::ForOp* found = overrides.Find(request.op);
  if (found == nullptr) return pins;
  for (const auto& pinned : found->tunables) {
    const std::string& name = pinned.first;
    const bool set = std::any_of(parsed.begin(), parsed.end(),
                                 [&](const auto& pin) { return pin.first == name; });
    const bool known = std::any_of(variants.begin(), variants.end(), [&](const VariantPtr& v) {
      return std::any_of(v->tunables.begin(), v->tunables.end(),
                         [&](const Tunable& t) { return t.name == name; });
    });
    if (!set && known) pins.push_back(StrCat(name, "=", pinned.second.value));
  }
  return pins;
}

// The build that a candidate needs.
std::pair<const Variant*, Config> BuildOf(const Candidate& candidate) {
  return {candidate.variant.get(), CompileScope(candidate.config, candidate.variant->tunables)};
}

// Tells the journal of a build.
void Record(const Workbench& bench, const OpSpec& op, const Variant& variant, const Config& config,
            const std::string& target, const absl::StatusOr<Built>& built, double milliseconds) {
  if (bench.journal == nullptr || absl::IsCancelled(built.status())) return;
  ledger::Build record;
  record.op = op.name;
  record.variant = variant.name;
  record.version = variant.version;
  record.fingerprint = variant.fingerprint.Hex();
  record.config = ConfigText(config);
  record.target = target;
  record.milliseconds = milliseconds;
  if (built.ok()) {
    record.binary = built->binary->key.Hex();
    record.status = built->cache_hit ? "hit" : "built";
  } else {
    record.status = "failed";
    record.reason = Reason(built.status());
  }
  bench.journal->Add(std::move(record));
}

}  // namespace

absl::StatusOr<Work> Resolve(const Catalog& catalog, const WorkRequest& request,
                             const std::string& target, Unasked unasked) {
  Work work;
  KVR_ASSIGN_OR_RETURN(work.op, catalog.FindOp(request.op));
  const OpSpec& spec = work.op->spec();

  std::vector<Axes> shapes = request.shapes;
  if (shapes.empty()) shapes.emplace_back();
  for (const Axes& axes : shapes) {
    KVR_ASSIGN_OR_RETURN(const AxisVector resolved, ResolveAxes(spec, axes));
    if (std::find(work.shapes.begin(), work.shapes.end(), resolved) == work.shapes.end()) {
      work.shapes.push_back(resolved);
    }
  }

  std::vector<VariantPtr> variants;
  for (const std::string& name : request.variants) {
    KVR_ASSIGN_OR_RETURN(VariantPtr variant, catalog.Find(request.op, name));
    if (std::find(variants.begin(), variants.end(), variant) == variants.end()) {
      variants.push_back(std::move(variant));
    }
  }
  if (request.variants.empty()) variants = work.op->variants;
  KVR_RETURN_IF_ERROR(CheckOptIns(catalog, request.approximate));
  KVR_ASSIGN_OR_RETURN(const std::vector<std::string> pins, AllPins(catalog, request, variants));
  work.overridden = !pins.empty();

  KVR_ASSIGN_OR_RETURN(const auto parsed, ParsePins(pins));
  const Config pinned(parsed.begin(), parsed.end());
  std::vector<VariantPtr> usable;
  bool not_asked_for = false;
  for (VariantPtr& variant : variants) {
    std::string reason;
    if (!target.empty() && !variant->Supports(target, &reason)) {
      work.skipped.push_back({variant->name, reason});
    } else if (variant->semantics == Semantics::kApproximate && unasked == Unasked::kSkipped &&
               FindOptIn(request.approximate, *variant) == nullptr) {
      Skipped& skipped = work.skipped.emplace_back();
      skipped.variant = variant->name;
      skipped.reason = StrCat(
          "its results differ from the operation's, and it takes part when that "
          "is asked for: --approximate '",
          OptInText(OptInFor(*variant, pinned)), "', or other values");
      not_asked_for = true;
    } else {
      usable.push_back(std::move(variant));
    }
  }
  if (usable.empty() && not_asked_for && !request.variants.empty()) {
    const Skipped& last = work.skipped.back();
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat("nothing of ", request.op, " takes part: '", last.variant, "': ", last.reason),
        "say so, or name exact variants");
  }
  if (!usable.empty()) {
    KVR_ASSIGN_OR_RETURN(work.space,
                         BuildSpace(usable, pins, request.coverage, request.approximate));
  }
  for (const Omitted& omitted : work.space.omitted) {
    work.skipped.push_back({omitted.variant->name, omitted.reason});
  }
  return work;
}

std::vector<Candidate> DistinctBuilds(absl::Span<const Candidate> candidates) {
  std::set<std::pair<const Variant*, Config>> seen;
  std::vector<Candidate> distinct;
  for (const Candidate& candidate : candidates) {
    if (seen.insert(BuildOf(candidate)).second) distinct.push_back(candidate);
  }
  return distinct;
}

std::vector<absl::StatusOr<Built>> BuildAll(const Workbench& bench, const OpSpec& op,
                                            absl::Span<const Candidate> candidates,
                                            const std::string& target, PhaseProgress& progress,
                                            const std::function<bool()>& keep_building) {
  std::map<std::pair<const Variant*, Config>, size_t> index;
  std::vector<size_t> builds;  // the first candidate of each
  std::vector<size_t> build_of;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto [found, added] = index.emplace(BuildOf(candidates[i]), builds.size());
    if (added) builds.push_back(i);
    build_of.push_back(found->second);
  }

  std::vector<absl::StatusOr<Built>> built(builds.size(), absl::CancelledError("cancelled"));
  std::mutex telling;  // the journal may have a note for whom the steps are counted for
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = bench.compile_threads > 0 ? bench.compile_threads : cores;
  InParallel(builds.size(), threads, [&](size_t i) {
    if (Cancelled(bench)) return;
    if (keep_building && !keep_building()) {
      built[i] = absl::DeadlineExceededError("no time was left to build it");
      return;
    }
    const Candidate& candidate = candidates[builds[i]];
    const Config config = CompileScope(candidate.config, candidate.variant->tunables);
    {
      const std::lock_guard<std::mutex> lock(telling);
      progress.Begin(StrCat(candidate.variant->name, " {", ConfigText(config), "} for ", target));
    }
    const absl::Time start = absl::Now();
    built[i] = bench.jit.Build(op, *candidate.variant, config, target);
    const std::lock_guard<std::mutex> lock(telling);
    Record(bench, op, *candidate.variant, config, target, built[i],
           absl::ToDoubleMilliseconds(absl::Now() - start));
    progress.Done();
  });

  std::vector<absl::StatusOr<Built>> result;
  for (size_t build : build_of) result.push_back(built[build]);
  return result;
}

bool Cancelled(const Workbench& bench) {
  return bench.cancel != nullptr && bench.cancel->load(std::memory_order_relaxed);
}

std::vector<uint64_t> Seeds(uint64_t* seed, int count) {
  if (*seed == 0) *seed = std::random_device{}() | 1;
  std::vector<uint64_t> seeds;
  for (int i = 0; i < std::max(count, 1); ++i) seeds.push_back(*seed + static_cast<uint64_t>(i));
  return seeds;
}

WorkItem ItemOf(const Candidate& candidate, std::string binary_path) {
  WorkItem item;
  item.variant = candidate.variant->name;
  item.fingerprint = candidate.variant->fingerprint;
  item.config = candidate.config;
  item.binary_path = std::move(binary_path);
  return item;
}

ledger::Trial TrialOf(const Candidate& candidate, const absl::StatusOr<Built>& built,
                      const Axes& axes, MeasureMode mode, std::string_view stage) {
  ledger::Trial trial;
  trial.op = candidate.variant->op;
  trial.variant = candidate.variant->name;
  trial.version = candidate.variant->version;
  trial.fingerprint = candidate.variant->fingerprint.Hex();
  trial.config = ConfigText(candidate.config);
  trial.axes = AxesText(axes);
  if (built.ok()) trial.binary = built->binary->key.Hex();
  trial.mode = ModeText(mode);
  trial.stage = std::string(stage);
  trial.status = std::string(TrialStatusName(TrialStatus::kPassed));
  return trial;
}

}  // namespace kvr
