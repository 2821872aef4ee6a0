// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/generate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "variants/common/bfloat16.h"
#include "variants/common/parallel.h"

namespace kvr::moe {
namespace {

constexpr double kLogitSpread = 2;  // standard deviation of a token's logits
constexpr double kLogitGrid = 64;   // logits are multiples of 1 / 64
constexpr double kBiasSpread = 1.0 / 16;
// Scores of float32 kernels are right to about 5e-7 of themselves. Tokens with a decision nearer
// than this are drawn anew.
constexpr double kLeastMargin = 5e-6;
constexpr int kDraws = 32;  // at most; then the token stands as it is
// Of a token's own part, from its second draw on: two steps of the grid, for tokens that have none.
constexpr double kLeastOwn = 1 / kLogitGrid;
constexpr uint64_t kFirstTokenStream = 16;

float OnGrid(double value) {
  return static_cast<float>(std::round(value * kLogitGrid) / kLogitGrid);
}

// One token's logits: the shares of the common part and of its own.
void DrawToken(std::span<const double> common, double rho, double own_share,
               const RandomStream& random, std::span<float> logits) {
  const std::vector<double> own = Normals(random, static_cast<int64_t>(logits.size()));
  for (size_t e = 0; e < logits.size(); ++e) {
    logits[e] = OnGrid(kLogitSpread * (rho * common[e] + own_share * own[e]));
  }
}

double Tail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }  // P(N(0, 1) > z)

}  // namespace

std::vector<double> Normals(const RandomStream& random, int64_t count) {
  std::vector<uint16_t> bits(count);
  FillNormalBf16(random, bits);
  std::vector<double> values(count);
  std::transform(bits.begin(), bits.end(), values.begin(), WidenBf16);
  return values;
}

std::vector<float> DrawBias(const RandomStream& random, int64_t num_experts) {
  std::vector<float> bias;
  for (const double draw : Normals(random, num_experts)) bias.push_back(OnGrid(draw * kBiasSpread));
  return bias;
}

void DrawLogits(const Router& router, int64_t num_tokens, int64_t correlation, uint64_t seed,
                uint64_t stream, float* logits) {
  const double rho = static_cast<double>(correlation) / 1000;
  const std::vector<double> common = Normals(RandomStream(seed, stream), router.num_experts);
  ParallelFor(num_tokens, HardwareThreads(), [&](int64_t token) {
    const std::span<float> own(logits + token * router.num_experts, router.num_experts);
    for (int draw = 0; draw < kDraws; ++draw) {
      const double own_share = std::max(std::sqrt(1 - rho * rho), draw > 0 ? kLeastOwn : 0);
      const RandomStream random(seed, kFirstTokenStream + token * kDraws + draw);
      DrawToken(common, rho, own_share, random, own);
      if (Margin(router, own.data()) >= kLeastMargin) return;
    }
  });
}

// A token takes an expert of common part g if rho g + sqrt(1 - rho^2) n is above the level that
// `share` of all reach; averaged over g.
double ExpectedActive(double share, int64_t num_tokens, int64_t correlation) {
  const double rho = std::min(0.999, static_cast<double>(correlation) / 1000);
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
    active += kStep * density * (1 - std::pow(1 - taken, static_cast<double>(num_tokens)));
  }
  return active;
}

}  // namespace kvr::moe
