// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/lanes.h"

#include <cmath>

namespace kvr::moe {
namespace {

// Written so that compilers turn the inner loops into vector instructions, whichever ones the
// function has that this is inlined into: accumulators by name, a constant number of lanes.
[[gnu::always_inline]] inline void DotRows(const double* rows, int64_t width, const Lanes* columns,
                                           Lanes* sums) {
  const double* const row1 = rows + width;
  const double* const row2 = row1 + width;
  const double* const row3 = row2 + width;
  Lanes sum0{}, sum1{}, sum2{}, sum3{};
  for (int64_t d = 0; d < width; ++d) {
    for (int t = 0; t < kLanes; ++t) {
      const double x = columns[d].of[t];
      sum0.of[t] += rows[d] * x;
      sum1.of[t] += row1[d] * x;
      sum2.of[t] += row2[d] * x;
      sum3.of[t] += row3[d] * x;
    }
  }
  sums[0] = sum0, sums[1] = sum1, sums[2] = sum2, sums[3] = sum3;
}

[[gnu::always_inline]] inline void SumRows(const double* rows, int64_t width, const Lanes* columns,
                                           Lanes* sums, Lanes* magnitudes) {
  const double* const row1 = rows + width;
  Lanes sum0{}, sum1{}, magnitude0{}, magnitude1{};
  for (int64_t d = 0; d < width; ++d) {
    for (int t = 0; t < kLanes; ++t) {
      const double x = columns[d].of[t];
      const double term0 = rows[d] * x, term1 = row1[d] * x;
      sum0.of[t] += term0;
      magnitude0.of[t] += std::abs(term0);
      sum1.of[t] += term1;
      magnitude1.of[t] += std::abs(term1);
    }
  }
  sums[0] = sum0, sums[1] = sum1;
  magnitudes[0] = magnitude0, magnitudes[1] = magnitude1;
}

void PlainDot(const double* rows, int64_t width, const Lanes* columns, Lanes* sums) {
  DotRows(rows, width, columns, sums);
}

void PlainSum(const double* rows, int64_t width, const Lanes* columns, Lanes* sums,
              Lanes* magnitudes) {
  SumRows(rows, width, columns, sums, magnitudes);
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] void WideDot(const double* rows, int64_t width, const Lanes* columns,
                                        Lanes* sums) {
  DotRows(rows, width, columns, sums);
}

[[gnu::target("avx512f")]] void WideSum(const double* rows, int64_t width, const Lanes* columns,
                                        Lanes* sums, Lanes* magnitudes) {
  SumRows(rows, width, columns, sums, magnitudes);
}
#endif

}  // namespace

const LaneMath& PlainLaneMath() {
  static constexpr LaneMath kPlain = {PlainDot, PlainSum};
  return kPlain;
}

const LaneMath* WideLaneMath() {
#if defined(__x86_64__)
  static constexpr LaneMath kWide = {WideDot, WideSum};
  if (__builtin_cpu_supports("avx512f")) return &kWide;
#endif
  return nullptr;
}

const LaneMath& FastestLaneMath() {
  const LaneMath* const wide = WideLaneMath();
  return wide != nullptr ? *wide : PlainLaneMath();
}

}  // namespace kvr::moe
