// SPDX-License-Identifier: Apache-2.0
//
// Rows of a matrix times the columns of kLanes tokens at once, in float64: what a reference spends
// its time on. Tokens lie innermost and several rows share a pass over the columns. Every sum keeps
// its plain order and no product is fused with it, so that results are the same bits on any
// processor.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

namespace kvr::moe {

inline constexpr int kLanes = 8;
struct alignas(64) Lanes {
  double of[kLanes];
};

struct LaneMath {
  static constexpr int kDotRows = 4, kSumRows = 2;  // rows of a call

  // sums[r] = sum over d of rows[r][d] * columns[d]; rows[kDotRows][width].
  void (*dot)(const double* rows, int64_t width, const Lanes* columns, Lanes* sums);
  // The same of kSumRows rows, and the sum of the terms' absolute values.
  void (*sum)(const double* rows, int64_t width, const Lanes* columns, Lanes* sums,
              Lanes* magnitudes);
};

const LaneMath& PlainLaneMath();
const LaneMath* WideLaneMath();  // eight lanes an instruction; null: not on this processor
const LaneMath& FastestLaneMath();

}  // namespace kvr::moe
