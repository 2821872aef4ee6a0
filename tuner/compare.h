// SPDX-License-Identifier: Apache-2.0
//
// Is a result right? Outputs on the host against the op's reference, element by element.
//
// An element passes when |out - expected| <= bound; a NaN never passes, an infinite expectation
// must be met exactly, and a tensor passes when, beyond that, its cosine difference
// 1 - 2*sum(xy)/sum(x^2+y^2) stays within the reference's limit (0/0 counts as 0; elements whose
// expectation is infinite do not enter the sums).
//
// Poison: outputs are filled with PoisonByte(round) before the launch, so that an element a kernel
// forgot is seen even when an earlier run left the right value there. The bytes alternate between
// rounds because an integer output may happen to equal one of them. An element counts as unwritten
// only where it also fails its bound.
//
// Statuses carry the names of the FlashInfer-Bench trace format.
//
// Threading: pure functions over caller-owned memory; Compare itself uses one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "core/tensor.h"

namespace kvr {

enum class TrialStatus : uint8_t {
  kPassed,
  kIncorrectShape,
  kIncorrectNumerical,
  kIncorrectDtype,
  kRuntimeError,
  kCompileError,
  kTimeout,
};
std::string_view TrialStatusName(TrialStatus status);  // "PASSED", "INCORRECT_NUMERICAL", ...
absl::StatusOr<TrialStatus> ParseTrialStatus(std::string_view name);

// 0xff (NaN in every float type, -1) and 0x7f (NaN or huge), by turns.
uint8_t PoisonByte(int round);

// Bytes of memory fences around buffers, checked after each launch.
inline constexpr uint8_t kCanaryByte = 0xc5;
// First byte of `fence` that is no longer kCanaryByte, or -1.
int64_t FindBrokenCanary(absl::Span<const uint8_t> fence);

struct OutputError {
  std::string name;
  int64_t elements = 0;
  int64_t violations = 0;  // outside the bound, NaN, or a missed infinity
  int64_t unwritten = 0;   // of those, still the poison
  int64_t nans = 0;
  double max_abs = 0;            // over elements whose expectation is finite
  double max_rel = 0;            // |out - expected| / |expected| where |expected| > bound: an
                                 // expectation within its own tolerance of 0 has no relative error
  double cosine_difference = 0;  // 1 - 2*sum(xy)/sum(x^2+y^2)
  double relative_error = 0;     // |out - expected| / |expected|, Euclidean norms of the tensor
  int64_t worst = -1;            // the element furthest beyond its bound
  double worst_got = 0, worst_expected = 0, worst_bound = 0;
};

struct Comparison {
  TrialStatus status = TrialStatus::kPassed;
  std::string reason;  // empty when passed; else names tensor, element, value and bound
  double max_abs = 0;  // over all outputs
  double max_rel = 0;
  std::vector<OutputError> outputs;
};

// `outputs` are host views of spec.outputs in order; `poison` is what filled them.
Comparison Compare(const OpSpec& spec, absl::Span<const TensorView> outputs,
                   absl::Span<const ReferenceOutput> reference, uint8_t poison);

// How far the outputs are from what they were compared with: "<output>.cosine_difference" and
// "<output>.relative_error" of each but those of integers, which are names more often than amounts.
std::vector<QualityMeasure> DistanceOf(const OpSpec& spec, const Comparison& comparison);

}  // namespace kvr
