// SPDX-License-Identifier: Apache-2.0
//
// A block's table of the batch, in shared memory: the (token, slot) pairs sorted by expert, as one
// segment per active expert. Every block makes the same one from the tokens' choices, so none waits
// for another. Segments are in the order of the experts, pairs of a segment in that of the tokens.
#pragma once

#include <kvr/device.cuh>

namespace moe {

struct Table {
  int num_tokens, num_experts, top_k;
  int words;  // of a mask

  unsigned* masks;       // [num_experts][words]: the tokens that take an expert
  int* begins;           // [num_experts]: where its pairs begin
  int* segment_expert;   // [num_experts]
  int* segment_first;    // [num_experts + 1]: first pair; after the last segment, all pairs
  int* segments;         // [1]: how many
  unsigned* totals;      // [kMostChunks]: of 32 experts each, while segments are made
  float* weights;        // [pairs] by token, then slot
  uint16_t* experts;     // [pairs] by token, then slot; kNone: none
  uint16_t* positions;   // [pairs] by token, then slot: place in the order by expert
  uint16_t* pair_token;  // [pairs] by expert, then token

  static constexpr uint16_t kNone = 0xffff;
  static constexpr int kMostChunks = 16;

  // Lays the table out from `memory` on, which is aligned to 4; the manifest counts the same bytes:
  // num_experts * (4 * words + 12) + 72 + pairs * 10.
  KVR_DEVICE Table(void* memory, int num_tokens, int num_experts, int top_k)
      : num_tokens(num_tokens),
        num_experts(num_experts),
        top_k(top_k),
        words((num_tokens + 31) / 32) {
    masks = static_cast<unsigned*>(memory);
    begins = reinterpret_cast<int*>(masks + num_experts * words);
    segment_expert = begins + num_experts;
    segment_first = segment_expert + num_experts;
    segments = segment_first + num_experts + 1;
    const int pairs = num_tokens * top_k;
    totals = reinterpret_cast<unsigned*>(segments + 1);
    weights = reinterpret_cast<float*>(totals + kMostChunks);
    experts = reinterpret_cast<uint16_t*>(weights + pairs);
    positions = experts + pairs;
    pair_token = positions + pairs;
  }

  // Behind the table.
  KVR_DEVICE void* End() const { return pair_token + num_tokens * top_k; }

  // By `threads` threads, then a block barrier.
  KVR_DEVICE void Clear(int thread, int threads) {
#pragma unroll 1
    for (int i = thread; i < num_experts * words; i += threads) masks[i] = 0;
  }

  // One choice of a token, by any thread; expert -1: none.
  KVR_DEVICE void Add(int token, int slot, int expert, float weight) {
    const int at = token * top_k + slot;
    experts[at] = static_cast<uint16_t>(expert);
    weights[at] = weight;
    if (expert >= 0) atomicOr(&masks[expert * words + token / 32], 1u << token % 32);
  }

  // Segments from the masks, by all threads, a warp 32 experts at a time; a block barrier before
  // and after. Active experts and pairs are counted together, in the two halves of a word.
  KVR_DEVICE void MakeSegments() {
    const int lane = kvr::LaneIndex(), warps = static_cast<int>(blockDim.x) / kvr::kWarpLanes;
#pragma unroll 1
    for (int chunk = kvr::WarpIndex(); chunk * kvr::kWarpLanes < num_experts; chunk += warps) {
      const int e = chunk * kvr::kWarpLanes + lane;
      const unsigned own = e < num_experts ? Count(e) : 0;
      const unsigned through = kvr::WarpPrefixSum(own);
      if (e < num_experts) begins[e] = through - own;
      if (lane == kvr::kWarpLanes - 1) totals[chunk] = through;
    }
    __syncthreads();
#pragma unroll 1
    for (int chunk = kvr::WarpIndex(); chunk * kvr::kWarpLanes < num_experts; chunk += warps) {
      const int e = chunk * kvr::kWarpLanes + lane;
      unsigned at = 0;
#pragma unroll 4
      for (int before = 0; before < chunk; ++before) at += totals[before];
      const unsigned own = e < num_experts ? Count(e) : 0;
      if (e < num_experts) {
        at += begins[e];
        begins[e] = at & 0xffff;
        if (own != 0) {
          segment_expert[at >> 16] = e;
          segment_first[at >> 16] = at & 0xffff;
        }
      }
      if (e != num_experts - 1) continue;
      at += own;
      *segments = at >> 16;
      segment_first[at >> 16] = at & 0xffff;
    }
  }

  // Places of the pairs, by `threads` threads, once there are segments; then a block barrier.
  KVR_DEVICE void PlacePairs(int thread, int threads) {
#pragma unroll 1
    for (int pair = thread; pair < num_tokens * top_k; pair += threads) {
      const int token = pair / top_k;
      if (experts[pair] == kNone) continue;
      const int expert = experts[pair];
      const unsigned* mask = masks + expert * words;
      int position = begins[expert] + __popc(mask[token / 32] & ((1u << token % 32) - 1));
#pragma unroll 1
      for (int word = 0; word < token / 32; ++word) position += __popc(mask[word]);
      positions[pair] = static_cast<uint16_t>(position);
      pair_token[position] = static_cast<uint16_t>(token);
    }
  }

 private:
  // One active expert and its pairs; or neither.
  KVR_DEVICE unsigned Count(int expert) const {
    unsigned pairs = 0;
#pragma unroll 1
    for (int word = 0; word < words; ++word) pairs += __popc(masks[expert * words + word]);
    return pairs == 0 ? 0 : 0x10000u + pairs;
  }
};

}  // namespace moe
