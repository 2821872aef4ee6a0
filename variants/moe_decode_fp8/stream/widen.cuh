// SPDX-License-Identifier: Apache-2.0
//
// e4m3 codes to bf16, four at a time, in as few integer instructions as it takes: a multiprocessor
// does 64 lanes of those a cycle, and weights come at 18 codes a cycle. Shifts to the left may be
// multiplications, which another pipe does; so even and odd bytes are taken apart, not halves.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <kvr/device.cuh>

namespace moe {

// `even`: bytes 0 and 2 of `codes`, `odd`: 1 and 3. A code whose exponent is put where bf16 has its
// own is the value times 2^-120, subnormal codes included. NaN codes give 480.
KVR_DEVICE void Widen(uint32_t codes, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kSign = 0x80008000, kRest = 0x07f007f0;
  constexpr uint32_t kScale = 0x7b807b80;  // 2^120, twice
  even = (codes * 256 & kSign) | (codes * 16 & kRest);
  odd = (codes & kSign) | (codes >> 4 & kRest);
  asm("mul.rn.bf16x2 %0, %0, %1;\n" : "+r"(even) : "r"(kScale));
  asm("mul.rn.bf16x2 %0, %0, %1;\n" : "+r"(odd) : "r"(kScale));
}

// So rows of bf16 that meet codes (tokens, the hidden layer) have columns 0, 2, 1, 3 of every four.
KVR_DEVICE int Place(int column) {
  const int in_four = column % 4;
  return column - in_four + in_four / 2 + in_four % 2 * 2;
}

// Widens one token, by `threads` threads. codes, row: [hidden]; scales are left for the products.
KVR_DEVICE void WidenToken(const __nv_fp8_e4m3* codes, __nv_bfloat16* row, int hidden, int thread,
                           int threads) {
  constexpr int kCodes = 16;
#pragma unroll 2
  for (int column = thread * kCodes; column < hidden; column += threads * kCodes) {
    const uint4 from = kvr::LoadReadOnly<uint4>(codes + column);
    uint4 first, last;
    Widen(from.x, first.x, first.y);
    Widen(from.y, first.z, first.w);
    Widen(from.z, last.x, last.y);
    Widen(from.w, last.z, last.w);
    kvr::Store(row + column, first);
    kvr::Store(row + column + 8, last);
  }
}

}  // namespace moe
