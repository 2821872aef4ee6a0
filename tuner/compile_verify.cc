// SPDX-License-Identifier: Apache-2.0
//
// The compile and verify commands of tuner/tune.h.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/feasibility.h"
#include "tuner/work.h"

namespace kvr {
namespace {

CompileResult Describe(const Candidate& candidate, const CompileTarget& target,
                       const absl::StatusOr<Built>& built, const AxisVector& shape) {
  CompileResult result;
  result.variant = candidate.variant->name;
  result.config = candidate.config;
  result.target = target.target;
  if (candidate.variant->has_launch_function) {
    result.origin = Origin::kLaunchFunction;
  } else if (!candidate.variant->is_compiled()) {
    result.origin = Origin::kCubin;
  }
  // What was compiled is no use to a variant without the functions that its manifest asks for.
  absl::Status ready = built.status();
  if (ready.ok()) ready = LoadCode(*candidate.variant);
  if (!ready.ok()) {
    result.status = TrialStatus::kCompileError;
    result.reason = Reason(ready);
    return result;
  }
  const Binary& binary = *built->binary;
  for (const BinaryKernel& kernel : binary.kernels) {
    result.registers = std::max(result.registers, kernel.resources.registers);
    result.smem_static = std::max(result.smem_static, kernel.resources.smem_static);
    result.spill_bytes += kernel.resources.spill_bytes;
  }
  // A cubin does not say what it spills; of a launch function nothing is known.
  if (result.origin != Origin::kCompiled) result.spill_bytes = -1;
  result.binary_bytes = static_cast<int64_t>(binary.bytes.size());
  result.cache_hit = built->cache_hit;
  result.ms = built->milliseconds;
  LaunchPlan plan;
  if (!target.device.name.empty() && result.origin != Origin::kLaunchFunction &&
      CheckPlan(*candidate.variant, candidate.config, shape, target.device, &plan).ok()) {
    result.smem_dynamic = 0;
    for (const KernelLaunch& launch : plan.launches()) {
      result.smem_dynamic = std::max(result.smem_dynamic, launch.smem);
    }
  }
  return result;
}

}  // namespace

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kCompiled:
      return "compiled";
    case Origin::kCubin:
      return "prebuilt cubin";
    case Origin::kLaunchFunction:
      return "launch function";
  }
  return "compiled";
}

absl::StatusOr<CompileReport> CompileVariants(const Workbench& bench,
                                              const CompileRequest& request) {
  CompileReport report;
  struct Part {
    const CompileTarget* target;
    Work work;
    std::vector<Candidate> builds;
  };
  std::vector<Part> parts;
  int total = 0;
  for (const CompileTarget& target : request.targets) {
    KVR_ASSIGN_OR_RETURN(Work work,
                         Resolve(bench.catalog, request, target.target, Unasked::kTakePart));
    const std::vector<Candidate>& candidates = work.space.candidates;
    const bool brought = !candidates.empty() &&
                         std::none_of(candidates.begin(), candidates.end(),
                                      [](const Candidate& c) { return c.variant->is_compiled(); });
    if (std::string reason; !brought && !bench.jit.LayersHave(target.target) &&
                            !bench.jit.CanCompile(target.target, &reason)) {
      return Error(absl::StatusCode::kUnimplemented, reason, "`kvr doctor` says what is missing");
    }
    for (const Skipped& skipped : work.skipped) {
      report.skipped.push_back({skipped.variant, StrCat(target.target, ": ", skipped.reason)});
    }
    // One line a binary: of configs that differ in launch scope alone, the first.
    std::vector<Candidate> builds = DistinctBuilds(work.space.candidates);
    total += static_cast<int>(builds.size());
    parts.push_back({&target, std::move(work), std::move(builds)});
  }
  PhaseProgress progress(bench.progress, Phase::kCompile, total);
  for (const Part& part : parts) {
    const auto built =
        BuildAll(bench, part.work.op->spec(), part.builds, part.target->target, progress);
    for (size_t i = 0; i < built.size(); ++i) {
      if (absl::IsCancelled(built[i].status())) {
        report.cancelled = true;
        continue;
      }
      report.binaries.push_back(
          Describe(part.builds[i], *part.target, built[i], part.work.shapes.front()));
    }
  }
  return report;
}

absl::StatusOr<VerifyReport> VerifyVariants(const Workbench& bench, const VerifyRequest& request) {
  VerifyReport report;
  report.seed = request.seed;
  const std::vector<uint64_t> seeds = Seeds(&report.seed, request.rounds);
  // The request is checked before a worker starts.
  KVR_RETURN_IF_ERROR(Resolve(bench.catalog, request, "", Unasked::kTakePart).status());
  WorkerOptions options = bench.worker;
  options.cancel = bench.cancel;
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerClient> worker,
                       WorkerClient::Start(std::move(options)));
  report.device = worker->device();
  KVR_ASSIGN_OR_RETURN(Work work,
                       Resolve(bench.catalog, request, report.device.target, Unasked::kTakePart));
  KVR_RETURN_IF_ERROR(work.op->operation->Load());  // what does not load here, no worker is given
  report.skipped = std::move(work.skipped);
  const OpSpec& spec = work.op->spec();
  const std::vector<Candidate>& candidates = work.space.candidates;

  PhaseProgress compiling(bench.progress, Phase::kCompile,
                          static_cast<int>(DistinctBuilds(candidates).size()));
  const auto built = BuildAll(bench, spec, candidates, report.device.target, compiling);
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<BinaryFiles> files, BinaryFiles::Create());
  PhaseProgress verifying(bench.progress, Phase::kVerify,
                          static_cast<int>(candidates.size() * work.shapes.size()));
  const auto skip = [&](const Candidate& candidate, const Axes& axes, const absl::Status& why) {
    report.skipped.push_back(
        {candidate.variant->name,
         StrCat("{", ConfigText(candidate.config), "} at ", AxesText(axes), ": ", Reason(why))});
  };
  absl::Status memory;                                  // the first time it did not suffice
  std::set<std::pair<std::string, std::string>> noted;  // variants' failures, each once
  for (const AxisVector& axes : work.shapes) {
    const Axes named = NamedAxes(spec, axes);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (Cancelled(bench)) {
        report.cancelled = true;
        return report;
      }
      verifying.Begin(StrCat(CandidateText(candidate), " at ", AxesText(named)));
      LaunchPlan plan;
      absl::Status fits =
          CheckPlan(*candidate.variant, candidate.config, axes, report.device, &plan);
      if (fits.ok() && built[i].ok()) {
        fits = CheckResources(*candidate.variant, plan, *built[i]->binary, report.device);
      }
      if (IsMisfit(fits)) {
        skip(candidate, named, fits);
        verifying.Done();
        continue;
      }
      VerifyResult result;
      result.variant = candidate.variant->name;
      result.config = candidate.config;
      result.axes = named;
      result.device = report.device.name;
      if (!built[i].ok()) {
        result.status = TrialStatus::kCompileError;
        result.reason = Reason(built[i].status());
      } else if (!fits.ok()) {
        result.status = TrialStatus::kRuntimeError;
        result.reason = Reason(fits);
      } else {
        KVR_ASSIGN_OR_RETURN(std::string path, files->Add(*built[i]->binary));
        absl::StatusOr<Finding> finding =
            worker->Verify({spec.name, named, seeds}, ItemOf(candidate, std::move(path)));
        if (absl::IsCancelled(finding.status())) {
          report.cancelled = true;
          return report;
        }
        if (absl::IsResourceExhausted(finding.status())) {
          if (memory.ok()) memory = finding.status();
          skip(candidate, named, finding.status());
          verifying.Done();
          continue;
        }
        KVR_RETURN_IF_ERROR(finding.status());
        result.status = finding->status;
        result.reason = finding->reason;
        result.max_abs = finding->max_abs;
        result.max_rel = finding->max_rel;
        result.quality = finding->quality;
      }
      if (result.status != TrialStatus::kPassed &&
          noted.insert({result.variant, result.reason}).second) {
        verifying.Note(StrCat(CandidateText(candidate), ": ", TrialStatusName(result.status), ": ",
                              result.reason));
      }
      report.results.push_back(std::move(result));
      report.respawns = worker->respawns();
      verifying.Done();
    }
  }
  if (report.results.empty()) KVR_RETURN_IF_ERROR(memory);
  return report;
}

}  // namespace kvr
