// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Output of a value warpgroup, O += P V: 64 heads x 256 dims, from 256 Part() on; a warp has the
// heads that the score warp of its number has. A lane's dims of each 16 with codes are four in a
// row, 4 t ... + 3; of RoPE, 2 t, + 1 and 2 t + 8, + 9.
struct Values {
  static constexpr int kPartGroups = kGroups / 2;
  float o[2][64] = {};  // 128 dims each

  KVR_DEVICE static int Part() { return (kvr::WarpIndex() - kScoreWarps) / 4; }
  KVR_DEVICE static int Head(int upper) {
    return 16 * (kvr::WarpIndex() % 4) + 8 * upper + kvr::LaneIndex() / 4;
  }

  KVR_DEVICE void Tile(Shared& shared, int stage, int parity) {
    const int warp = kvr::WarpIndex() % 4;
    kvr::WaitBarrier(&shared.scored, parity);
    if (shared.moved[warp]) {
      Multiply({shared.rescale[Head(0)], shared.rescale[Head(1)]});
    }
    constexpr int kBlock = sizeof(Block<kTile>);
    const uint64_t p = BlockAddress(&shared.probabilities);
    const uint64_t v = BlockAddress(shared.tiles[stage] + 4 * Part(), kBlock);
    kvr::FenceProducts();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int step = 2 * half; step < 2 * half + 2; ++step) {
        AddProduct(o[0], p + step * kColumnStep, v + step * kRowStep);
        AddProduct(o[1], p + step * kColumnStep, v + step * kRowStep + 2 * kBlock / 16);
      }
      kvr::CommitProducts();
    }
    kvr::WaitForProducts<1>();
    kvr::Arrive(&shared.emptied[stage][0]);
    kvr::WaitForProducts<0>();
    kvr::Arrive(&shared.emptied[stage][1]);
    kvr::Arrive(&shared.taken);
  }

  // By a factor for each of the lane's heads.
  KVR_DEVICE void Multiply(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) o[0][i] *= factor[i / 2 % 2], o[1][i] *= factor[i / 2 % 2];
  }

  // Divides each of the lane's heads and groups by its scale, a power of two, so that the largest
  // of the 64 dims is between 2^14 and 2^15: below what f16 holds, and far above what it rounds
  // coarsely. Dims that are below 2^-24 of it lose bits.
  KVR_DEVICE void Scale(float (&scales)[2][kPartGroups]) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
#pragma unroll
      for (int group = 0; group < kPartGroups; ++group) {
        float* const of_group = o[group / 2] + 32 * (group % 2) + 2 * upper;
        float largest = 0;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
          largest = fmaxf(largest, fmaxf(fabsf(of_group[i]), fabsf(of_group[i + 1])));
        }
        // Its exponent field; at least 15, so that both factors below are normal numbers.
        const int field = min(max(__float_as_int(kvr::WarpMax<4>(largest)) >> 23, 15), 254);
        scales[upper][group] = __int_as_float((field - 14) << 23);
        const float inverse = __int_as_float((268 - field) << 23);
#pragma unroll
        for (int i = 0; i < 32; i += 4) of_group[i] *= inverse, of_group[i + 1] *= inverse;
      }
    }
  }

  // Calls store(head, dim, pairs) for all of it; `pairs`: by pack(low, high), of 4 dims from `dim`
  // on, or 2.
  template <class Pack, class Store>
  KVR_DEVICE void ForEach(Pack&& pack, Store&& store) const {
    const int t = kvr::LaneIndex() % 4;
#pragma unroll
    for (int i = 0; i < kPartGroups * 2 * 4; ++i) {
      const int group = i / 8, upper = i / 4 % 2, sixteen = i % 4;
      const float* chunk[2];
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        chunk[odd] = o[group / 2] + 32 * (group % 2) + 4 * ChunkOf(group, sixteen, odd) + 2 * upper;
      }
      const int dim = (kPartGroups * Part() + group) * kGroupDims + 16 * sixteen;
      if (kPartGroups * Part() + group == kRopeGroup) {
        // RoPE's group is an odd one: its first chunk is where the odd dims' would be.
        store(Head(upper), dim + 2 * t, pack(chunk[1][0], chunk[1][1]));
        store(Head(upper), dim + 2 * t + 8, pack(chunk[0][0], chunk[0][1]));
      } else {
        store(Head(upper), dim + 4 * t,
              make_uint2(pack(chunk[0][0], chunk[1][0]), pack(chunk[0][1], chunk[1][1])));
      }
    }
  }
};

}  // namespace mla
