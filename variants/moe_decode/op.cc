// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode/op.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "variants/common/operation.h"

namespace kvr::moe_decode {
namespace {

double Tail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }  // P(N(0, 1) > z)

// Experts that the generator's tokens are expected to choose together, for many experts and without
// ties: a token takes an expert of common part g if rho g + sqrt(1 - rho^2) n is above the level
// that `share` of all reach; averaged over g.
int64_t ActiveExperts(const int64_t* axes) {
  const double share = static_cast<double>(axes[kTopK]) / static_cast<double>(axes[kNumExperts]);
  const double rho = std::min(0.999, static_cast<double>(axes[kCorrelation]) / 1000);
  double low = -8, high = 8;  // the level, by bisection
  while (high - low > 1e-6) {
    const double middle = (low + high) / 2;
    (Tail(middle) > share ? low : high) = middle;
  }
  constexpr int kSteps = 400;
  constexpr double kRange = 8, kStep = 2 * kRange / kSteps;
  double active = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double g = (i + 0.5) * kStep - kRange;
    const double density = std::exp(-g * g / 2) / std::sqrt(2 * std::numbers::pi);
    const double taken = Tail((low - rho * g) / std::sqrt(1 - rho * rho));
    active += kStep * density * (1 - std::pow(1 - taken, static_cast<double>(axes[kNumTokens])));
  }
  return std::llround(active * static_cast<double>(axes[kNumExperts]));
}

// Each active expert's weights once; tokens, logits and results.
int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  const int64_t expert = 2 * (axes[kGateUp] + axes[kInner]) * axes[kHidden];
  const int64_t token = 2 * 2 * axes[kHidden] + 4 * axes[kNumExperts] + 8 * axes[kTopK];
  return ActiveExperts(axes) * expert + axes[kNumTokens] * token;
}

constexpr const char* kMeasureNames[kMeasures] = {"experts_changed", "mass_kept", "active_experts",
                                                  "active_experts_exact"};

constexpr kvr_operation kOperation = [] {
  kvr_operation operation = OperationOf<Generate, Reference>("moe_decode", MinimumBytes);
  operation.quality_count = kMeasures;
  operation.quality_names = kMeasureNames;
  operation.quality = MeasureQuality<Quality>;
  return operation;
}();
constexpr const kvr_operation* kOperations[] = {&kOperation};

constexpr kvr_plugin kPlugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .operation_count = 1,
    .operations = kOperations,
};

}  // namespace
}  // namespace kvr::moe_decode

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::moe_decode::kPlugin; }
