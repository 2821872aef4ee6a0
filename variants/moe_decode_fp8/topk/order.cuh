// SPDX-License-Identifier: Apache-2.0
//
// e4m3 codes to bf16 in registers, and the order of columns that follows from how they get there.
//
// A multiprocessor does 64 lanes of integer instructions a cycle, and weights come at 18 codes a
// cycle: so even and odd bytes of a word are taken apart, not halves, which needs fewer. And an
// ldmatrix of fp8 rows gives lane t of four 4 neighbouring codes, where of 16-bit rows it gives 2
// and 2 that are 8 apart. A product's depth may be taken in any order, as long as both sides agree:
// so rows of bf16 that meet codes (tokens, hidden layer) have, of 16 columns, 0 2 4 6 ... first,
// then 1 3 5 7 ...
#pragma once

#include <cuda_fp8.h>

#include <kvr/device.cuh>

namespace moe {

// `even`: bytes 0 and 2 of `codes`, `odd`: 1 and 3. A code whose exponent is put where bf16 has its
// own is the value times 2^-120, subnormal codes included. NaN codes give 480.
KVR_DEVICE void Widen(uint32_t codes, uint32_t& even, uint32_t& odd) {
#if defined(KVR_HOST)
  uint32_t pairs[2];
  kvr::E4m3x4ToBf16(codes, pairs);
  even = (pairs[0] & 0xffff) | pairs[1] << 16;
  odd = pairs[0] >> 16 | (pairs[1] & 0xffff0000);
#else
  constexpr uint32_t kSign = 0x80008000, kRest = 0x07f007f0;
  constexpr uint32_t kScale = 0x7b807b80, kMinusZero = 0x80008000;  // 2^120, and -0, twice
  even = (codes * 256 & kSign) | (codes * 16 & kRest);
  odd = (codes & kSign) | (codes >> 4 & kRest);
  asm("fma.rn.bf16x2 %0, %0, %1, %2;\n" : "+r"(even) : "r"(kScale), "r"(kMinusZero));
  asm("fma.rn.bf16x2 %0, %0, %1, %2;\n" : "+r"(odd) : "r"(kScale), "r"(kMinusZero));
#endif
}

// Where a column lies in such a row.
KVR_DEVICE int Place(int column) {
  const int in_16 = column % 16;
  return column - in_16 + in_16 % 2 * 8 + in_16 / 2;
}

// Widens one token, by a whole block. codes, row: [hidden]; scales are left for the products.
KVR_DEVICE void WidenToken(const __nv_fp8_e4m3* codes, __nv_bfloat16* row, int hidden) {
  const int stride = static_cast<int>(4 * blockDim.x);
  for (int column = static_cast<int>(4 * threadIdx.x); column < hidden; column += stride) {
    uint32_t even, odd;
    Widen(kvr::LoadReadOnly<uint32_t>(codes + column), even, odd);
    kvr::Store<uint32_t>(row + Place(column), even);
    kvr::Store<uint32_t>(row + Place(column + 1), odd);
  }
}

}  // namespace moe
