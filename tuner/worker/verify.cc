// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "tuner/worker/bench.h"

namespace kvr {
namespace {

Outcome RuntimeError(std::string reason, bool damaged) {
  Outcome outcome;
  outcome.finding.status = TrialStatus::kRuntimeError;
  outcome.finding.reason = std::move(reason);
  outcome.damaged = damaged;
  return outcome;
}

// The buffers of one round: inputs, outputs, then workspace regions, each fenced, and their names.
struct Layout {
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
  std::vector<TensorView> tensors;
};

Layout LayOut(const OpSpec& spec, const AxisVector& axes, const Variant& variant,
              const LaunchPlan& plan) {
  Layout layout;
  layout.tensors = TensorShapes(spec, axes);
  for (int i = 0; i < spec.tensor_count(); ++i) {
    layout.sizes.push_back(layout.tensors[i].bytes());
    layout.names.push_back(absl::StrCat(
        i < static_cast<int>(spec.inputs.size()) ? "input " : "output ", spec.tensor(i).name));
  }
  for (size_t r = 0; r < variant.plan.regions.size(); ++r) {
    layout.sizes.push_back(plan.region_bytes[r]);
    layout.names.push_back(absl::StrCat("workspace ", variant.plan.regions[r].name));
  }
  return layout;
}

// Copies the tensor's bytes to the host.
absl::StatusOr<std::vector<unsigned char>> Fetch(Bench& bench, const TensorView& view) {
  std::vector<unsigned char> bytes(static_cast<size_t>(std::max<int64_t>(view.bytes(), 1)));
  if (view.bytes() > 0) {
    KVR_RETURN_IF_ERROR(
        bench.device.CopyToHost(bytes.data(), view.data, view.bytes(), bench.stream));
    KVR_RETURN_IF_ERROR(bench.device.Synchronize(bench.stream));
  }
  return bytes;
}

// How far a right result of an approximate variant is from the exact one.
absl::StatusOr<std::vector<QualityMeasure>> QualityOf(const Operation& op, const AxisVector& axes,
                                                      const InputSet& set,
                                                      absl::Span<const TensorView> outputs,
                                                      uint8_t poison) {
  std::vector<QualityMeasure> quality =
      DistanceOf(op.spec(), Compare(op.spec(), outputs, set.reference, poison));
  absl::StatusOr<std::vector<QualityMeasure>> own_terms =
      op.Quality(axes, set.inputs, outputs, set.reference);
  if (!own_terms.ok()) {
    return WithContext(absl::StrCat("quality of ", op.spec().name), own_terms.status());
  }
  quality.insert(quality.end(), own_terms->begin(), own_terms->end());
  return quality;
}

}  // namespace

absl::StatusOr<Outcome> VerifyRound(Bench& bench, const Operation& op, const AxisVector& axes,
                                    const InputSet& set, const Prepared& prepared, int round,
                                    const OwnReference& own) {
  const OpSpec& spec = op.spec();
  Device& device = bench.device;
  const Stream stream = bench.stream;
  const uint8_t poison = PoisonByte(round);
  LaunchPlan plan;
  bench.at(Stage::kLaunch, 0, absl::StrCat("planning ", prepared.variant().name));
  KVR_RETURN_IF_ERROR(prepared.Plan(axes, &plan));
  Layout layout = LayOut(spec, axes, prepared.variant(), plan);
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Arena> arena,
                       Arena::Create(device, bench.memory, layout.sizes, kFenceBytes));

  // Fences everywhere, then contents: inputs as drawn, all else poison.
  KVR_RETURN_IF_ERROR(arena->FillAll(stream));
  const int inputs = static_cast<int>(spec.inputs.size());
  for (size_t i = 0; i < layout.sizes.size(); ++i) {
    if (static_cast<int>(i) < inputs) {
      if (layout.tensors[i].rank == 0) {
        layout.tensors[i].data = set.inputs[i].data;  // by value, from host memory
        continue;
      }
      layout.tensors[i].data = arena->at(static_cast<int>(i));
      if (layout.sizes[i] == 0) continue;
      KVR_RETURN_IF_ERROR(
          device.CopyToDevice(layout.tensors[i].data, set.inputs[i].data, layout.sizes[i], stream));
      continue;
    }
    void* const memory = arena->at(static_cast<int>(i));
    if (i < layout.tensors.size()) layout.tensors[i].data = memory;
    if (layout.sizes[i] > 0) {
      KVR_RETURN_IF_ERROR(device.MemsetAsync(memory, poison, layout.sizes[i], stream));
    }
  }
  KVR_RETURN_IF_ERROR(device.Synchronize(stream));

  // Regions lie between fences of their own instead of back to back.
  const int first_region = spec.tensor_count();
  char* workspace = nullptr;
  if (!prepared.variant().plan.regions.empty()) {
    workspace = static_cast<char*>(arena->at(first_region));
    for (size_t r = 0; r < prepared.variant().plan.regions.size(); ++r) {
      plan.region_offset[r] =
          arena->offset(first_region + static_cast<int>(r)) - arena->offset(first_region);
    }
  }

  bench.at(Stage::kLaunch, 0, absl::StrCat("running ", prepared.variant().name));
  absl::Status launched = prepared.Launch(plan, layout.tensors, workspace, stream);
  if (launched.ok()) launched = device.Synchronize(stream);
  if (!launched.ok()) return RuntimeError(std::string(What(launched)), /*damaged=*/true);

  const absl::StatusOr<std::string> broken = arena->CheckFences(stream, layout.names);
  if (!broken.ok()) return RuntimeError(std::string(What(broken.status())), /*damaged=*/true);
  if (!broken->empty()) {
    return RuntimeError(absl::StrCat("out-of-bounds write: ", *broken), /*damaged=*/true);
  }
  for (int i = 0; i < inputs; ++i) {
    if (layout.tensors[i].rank == 0) continue;
    KVR_ASSIGN_OR_RETURN(const auto now, Fetch(bench, layout.tensors[i]));
    if (std::memcmp(now.data(), set.inputs[i].data, static_cast<size_t>(layout.sizes[i])) != 0) {
      return RuntimeError(absl::StrCat("it wrote into its ", layout.names[i]), /*damaged=*/false);
    }
  }

  std::vector<TensorView> outputs(layout.tensors.begin() + inputs, layout.tensors.end());
  std::vector<std::vector<unsigned char>> contents;
  for (TensorView& output : outputs) {
    KVR_ASSIGN_OR_RETURN(contents.emplace_back(), Fetch(bench, output));
    output.data = contents.back().data();
  }
  Comparison comparison = Compare(spec, outputs, own ? *own : set.reference, poison);
  Outcome outcome;
  outcome.finding.status = comparison.status;
  outcome.finding.reason = std::move(comparison.reason);
  outcome.finding.max_abs = comparison.max_abs;
  outcome.finding.max_rel = comparison.max_rel;
  if (own != nullptr && comparison.status == TrialStatus::kPassed) {
    KVR_ASSIGN_OR_RETURN(outcome.finding.quality, QualityOf(op, axes, set, outputs, poison));
  }
  return outcome;
}

}  // namespace kvr
