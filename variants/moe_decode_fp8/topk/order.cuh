// SPDX-License-Identifier: Apache-2.0
//
// The order in which rows of bf16 (tokens, hidden layer) lie, so that they meet fp8 weights. An
// ldmatrix of fp8 rows gives lane t of four 4 neighbouring codes, where of 16-bit rows it gives 2
// and 2 that are 8 apart. A product's depth may be taken in any order, as long as both sides agree:
// so of 16 columns, pairs 0, 2, 4, 6 of neighbours come first, then 1, 3, 5, 7.
#pragma once

#include <cuda_fp8.h>

#include <kvr/device.cuh>

namespace moe {

// Where a column lies in such a row.
KVR_DEVICE int Place(int column) {
  const int four = column % 16 / 4, second = column / 2 % 2, odd = column % 2;
  return column / 16 * 16 + second * 8 + four * 2 + odd;
}

// Widens one token, by a whole block. codes, row: [hidden]; scales are left for the products.
KVR_DEVICE void WidenToken(const __nv_fp8_e4m3* codes, __nv_bfloat16* row, int hidden) {
  const int stride = static_cast<int>(4 * blockDim.x);
  for (int column = static_cast<int>(4 * threadIdx.x); column < hidden; column += stride) {
    uint32_t pairs[2];
    kvr::E4m3x4ToBf16(kvr::LoadReadOnly<uint32_t>(codes + column), pairs);
    kvr::Store<uint32_t>(row + Place(column), pairs[0]);
    kvr::Store<uint32_t>(row + Place(column + 2), pairs[1]);
  }
}

}  // namespace moe
