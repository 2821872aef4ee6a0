// SPDX-License-Identifier: Apache-2.0
#include "tuner/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/names.h"
#include "core/status.h"

namespace kvr {
namespace {

constexpr std::array<std::string_view, 7> kNames = {
    "PASSED",        "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR",
    "COMPILE_ERROR", "TIMEOUT"};

bool IsInteger(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kU8 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

bool IsPoison(const void* data, int64_t size, int64_t index, uint8_t poison) {
  const auto* bytes = static_cast<const uint8_t*>(data) + index * size;
  return std::all_of(bytes, bytes + size, [poison](uint8_t b) { return b == poison; });
}

// Sums of one tensor's elements, and the element furthest outside its bound.
OutputError CompareTensor(const TensorSpec& spec, const TensorView& out,
                          const ReferenceOutput& reference, uint8_t poison) {
  OutputError error;
  error.name = spec.name;
  error.elements = out.elements();
  const int64_t size = DTypeSize(out.dtype);
  double xy = 0, squares = 0, worst_excess = -1;
  double squared_error = 0, squared_expected = 0;
  for (int64_t i = 0; i < error.elements; ++i) {
    const double got = LoadAsDouble(out.data, out.dtype, i);
    const double expected = reference.expected[i];
    const double bound = reference.bound[i];
    double excess = 0;  // how far outside, in units that order "worst"
    bool ok;
    if (std::isnan(got)) {
      ++error.nans;
      ok = false;
    } else if (std::isinf(expected)) {
      ok = got == expected;
    } else {
      const double difference = std::abs(got - expected);
      ok = difference <= bound;  // a NaN expectation or bound fails too
      excess = difference - bound;
      error.max_abs = std::max(error.max_abs, difference);
      if (std::abs(expected) > bound) {
        error.max_rel = std::max(error.max_rel, difference / std::abs(expected));
      }
    }
    if (!std::isinf(expected)) {
      xy += got * expected;
      squares += got * got + expected * expected;
      squared_error += (got - expected) * (got - expected);
      squared_expected += expected * expected;
    }
    if (ok) continue;
    ++error.violations;
    if (IsPoison(out.data, size, i, poison)) ++error.unwritten;
    if (std::isnan(got) || std::isinf(expected) || std::isnan(excess)) {
      excess = std::numeric_limits<double>::max();
    }
    if (excess > worst_excess) {
      worst_excess = excess;
      error.worst = i;
      error.worst_got = got;
      error.worst_expected = expected;
      error.worst_bound = bound;
    }
  }
  error.cosine_difference = squares == 0 ? 0 : 1 - 2 * xy / squares;
  error.relative_error = squared_error == 0 ? 0 : std::sqrt(squared_error / squared_expected);
  return error;
}

// "[3, 0, 17]" of a flat element index.
std::string IndexText(const TensorView& view, int64_t element) {
  std::string text = "]";
  for (int d = view.rank - 1; d >= 0; --d) {
    text = absl::StrCat(d == 0 ? "" : ", ", element % view.shape[d], text);
    element /= view.shape[d];
  }
  return absl::StrCat("[", text);
}

std::string Explain(const OutputError& e, const TensorView& view, double cosine_limit) {
  if (e.violations == 0) {
    return absl::StrFormat("%s: cosine difference %.3g is over its limit %.3g", e.name,
                           e.cosine_difference, cosine_limit);
  }
  std::string extra;
  if (e.unwritten > 0) absl::StrAppend(&extra, ", ", e.unwritten, " never written");
  if (e.nans > e.unwritten) absl::StrAppend(&extra, ", ", e.nans, " NaN");
  return absl::StrFormat(
      "%s: %d of %d elements are outside their bound%s; worst %s: %.6g, "
      "expected %.6g ± %.3g",
      e.name, e.violations, e.elements, extra, IndexText(view, e.worst), e.worst_got,
      e.worst_expected, e.worst_bound);
}

}  // namespace

std::string_view TrialStatusName(TrialStatus status) { return kNames[static_cast<size_t>(status)]; }

absl::StatusOr<TrialStatus> ParseTrialStatus(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<TrialStatus>(i);
  }
  return Error(absl::StatusCode::kInvalidArgument,
               absl::StrCat("unknown trial status ", Quoted(name)),
               "use PASSED, INCORRECT_SHAPE, INCORRECT_NUMERICAL, INCORRECT_DTYPE, RUNTIME_ERROR, "
               "COMPILE_ERROR or TIMEOUT");
}

uint8_t PoisonByte(int round) { return round % 2 == 0 ? 0xff : 0x7f; }

int64_t FindBrokenCanary(absl::Span<const uint8_t> fence) {
  for (size_t i = 0; i < fence.size(); ++i) {
    if (fence[i] != kCanaryByte) return static_cast<int64_t>(i);
  }
  return -1;
}

Comparison Compare(const OpSpec& spec, absl::Span<const TensorView> outputs,
                   absl::Span<const ReferenceOutput> reference, uint8_t poison) {
  Comparison result;
  if (outputs.size() != spec.outputs.size() || reference.size() != spec.outputs.size()) {
    result.status = TrialStatus::kIncorrectShape;
    result.reason = absl::StrCat(spec.name, " has ", spec.outputs.size(), " outputs; got ",
                                 outputs.size(), " tensors and ", reference.size(), " references");
    return result;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& tensor = spec.outputs[i];
    const auto elements = static_cast<size_t>(outputs[i].elements());
    if (outputs[i].dtype != tensor.dtype) {
      result.status = TrialStatus::kIncorrectDtype;
      result.reason = absl::StrCat(tensor.name, ": ", std::string(DTypeName(outputs[i].dtype)),
                                   ", the op says ", std::string(DTypeName(tensor.dtype)));
      return result;
    }
    if (reference[i].expected.size() != elements || reference[i].bound.size() != elements) {
      result.status = TrialStatus::kIncorrectShape;
      result.reason = absl::StrCat(tensor.name, ": ", elements, " elements, the reference has ",
                                   reference[i].expected.size());
      return result;
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    OutputError error = CompareTensor(spec.outputs[i], outputs[i], reference[i], poison);
    const double limit = reference[i].cosine_limit;
    const bool cosine_ok = limit == 0 || error.cosine_difference <= limit;
    if ((error.violations > 0 || !cosine_ok) && result.reason.empty()) {
      result.status = TrialStatus::kIncorrectNumerical;
      result.reason = Explain(error, outputs[i], limit);
    }
    result.max_abs = std::max(result.max_abs, error.max_abs);
    result.max_rel = std::max(result.max_rel, error.max_rel);
    result.outputs.push_back(std::move(error));
  }
  return result;
}

std::vector<QualityMeasure> DistanceOf(const OpSpec& spec, const Comparison& comparison) {
  std::vector<QualityMeasure> distance;
  for (size_t i = 0; i < comparison.outputs.size(); ++i) {
    if (IsInteger(spec.outputs[i].dtype)) continue;
    const OutputError& output = comparison.outputs[i];
    distance.push_back({absl::StrCat(output.name, ".cosine_difference"), output.cosine_difference});
    distance.push_back({absl::StrCat(output.name, ".relative_error"), output.relative_error});
  }
  return distance;
}

}  // namespace kvr
