// SPDX-License-Identifier: Apache-2.0
//
// A block's table of the batch, in shared memory: the (token, slot) pairs whose expert is this
// rank's, sorted by expert, as one segment per active expert. Every block makes the same one from
// the tokens' choices, so none waits for another. Segments are in the order of the experts, pairs
// of a segment in that of the tokens. Experts are counted from the rank's first.
#pragma once

#include <kvr/device.cuh>

namespace moe {

struct Table {
  int num_tokens, num_local, top_k;
  int words;  // of a mask

  unsigned* masks;       // [num_local][words]: the tokens that take an expert
  int* begins;           // [num_local]: where its pairs begin
  int* segment_expert;   // [num_local]
  int* segment_first;    // [num_local + 1]: first pair; after the last segment, all pairs
  int* segments;         // [1]: how many
  uint16_t* experts;     // [pairs] by token, then slot; kNone: none of this rank's
  uint16_t* pair_token;  // [pairs] by expert, then token

  static constexpr uint16_t kNone = 0xffff;

  // Lays the table out from `memory` on, which is aligned to 4; the manifest counts the same bytes:
  // num_local * (4 * words + 12) + 8 + pairs * 4.
  KVR_DEVICE Table(void* memory, int num_tokens, int num_local, int top_k)
      : num_tokens(num_tokens), num_local(num_local), top_k(top_k), words((num_tokens + 31) / 32) {
    masks = static_cast<unsigned*>(memory);
    begins = reinterpret_cast<int*>(masks + num_local * words);
    segment_expert = begins + num_local;
    segment_first = segment_expert + num_local;
    segments = segment_first + num_local + 1;
    experts = reinterpret_cast<uint16_t*>(segments + 1);
    pair_token = experts + num_tokens * top_k;
  }

  // By all threads, then a block barrier.
  KVR_DEVICE void Clear() {
#pragma unroll 1
    for (int i = threadIdx.x; i < num_local * words; i += blockDim.x) masks[i] = 0;
  }

  // All choices, by all threads, then a block barrier. pair_expert [pairs]: of all ranks, -1: none.
  KVR_DEVICE void Fill(const int* pair_expert, int offset) {
#pragma unroll 1
    for (int pair = threadIdx.x; pair < num_tokens * top_k; pair += blockDim.x) {
      const int expert = pair_expert[pair], local = expert - offset;
      const bool here = expert >= 0 && local >= 0 && local < num_local;
      experts[pair] = here ? static_cast<uint16_t>(local) : kNone;
      const int token = pair / top_k;
      if (here) atomicOr(&masks[local * words + token / 32], 1u << token % 32);
    }
  }

  // Segments from the masks, by one warp, then a block barrier.
  KVR_DEVICE void MakeSegments() {
    const int lane = kvr::LaneIndex();
    int active = 0, pairs = 0;
#pragma unroll 1
    for (int base = 0; base < num_local; base += kvr::kWarpLanes) {
      const int e = base + lane;
      int count = 0;
#pragma unroll 1
      for (int word = 0; word < words && e < num_local; ++word) {
        count += __popc(masks[e * words + word]);
      }
      const int through = kvr::WarpPrefixSum(count);  // of this lane and those before
      const unsigned busy = __ballot_sync(kvr::kAllLanes, count > 0);
      if (e < num_local) begins[e] = pairs + through - count;
      if (count > 0) {
        const int segment = active + __popc(busy & ((1u << lane) - 1));
        segment_expert[segment] = e;
        segment_first[segment] = pairs + through - count;
      }
      active += __popc(busy);
      pairs += __shfl_sync(kvr::kAllLanes, through, kvr::kWarpLanes - 1);
    }
    if (lane == 0) {
      *segments = active;
      segment_first[active] = pairs;
    }
  }

  // Places of the pairs, by all threads, once there are segments; then a block barrier.
  // positions [pairs], by token, then slot: -1 where there is none; null: nobody asks.
  KVR_DEVICE void PlacePairs(int* positions) {
#pragma unroll 1
    for (int pair = threadIdx.x; pair < num_tokens * top_k; pair += blockDim.x) {
      int position = -1;
      if (experts[pair] != kNone) {
        const int token = pair / top_k, expert = experts[pair];
        const unsigned* mask = masks + expert * words;
        position = begins[expert] + __popc(mask[token / 32] & ((1u << token % 32) - 1));
#pragma unroll 1
        for (int word = 0; word < token / 32; ++word) position += __popc(mask[word]);
        pair_token[position] = static_cast<uint16_t>(token);
      }
      if (positions != nullptr) positions[pair] = position;
    }
  }
};

}  // namespace moe
