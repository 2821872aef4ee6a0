// SPDX-License-Identifier: Apache-2.0
//
// From what each token chose to what the expert kernels read: the (token, slot) pairs sorted by
// expert (segments.cuh), by one block.
//
// While they choose, tokens leave a bit in the mask of each of their experts: masks, in shared
// memory, [num_experts][MaskWords(num_tokens)], bit t % 32 of word t / 32. However the warps' turns
// fall, the masks say the same, and so does what is counted from them.
#pragma once

#include <kvr/device.cuh>

namespace moe {

KVR_DEVICE int MaskWords(int num_tokens) { return (num_tokens + 31) / 32; }

// By any thread, for itself.
KVR_DEVICE void MarkToken(unsigned* masks, int words, int expert, int token) {
  atomicOr(&masks[expert * words + token / 32], 1u << token % 32);
}

// expert_ids     [num_tokens, top_k], by this block, before a barrier; -1: unused, without a mark
// begins         [num_experts], shared memory to work with
// pair_token     [pairs]: by expert, then token
// pair_position  [num_tokens, top_k]: a pair's place in pair_token; -1: none
//
// By the whole block, after a barrier that follows the last mark.
KVR_DEVICE void SortPairs(const unsigned* masks, const int* expert_ids, int num_tokens,
                          int num_experts, int top_k, int* begins, int* segments, int* pair_token,
                          int* pair_position) {
  const int words = MaskWords(num_tokens), lane = kvr::LaneIndex();
  if (kvr::WarpIndex() == 0) {
    int active = 0, pairs = 0;
    for (int base = 0; base < num_experts; base += kvr::kWarpLanes) {
      const int expert = base + lane;
      int count = 0;
      for (int word = 0; word < words && expert < num_experts; ++word) {
        count += __popc(masks[expert * words + word]);
      }
      const int through = kvr::WarpPrefixSum(count);  // of this lane and those before
      const unsigned busy = __ballot_sync(kvr::kAllLanes, count > 0);
      if (expert < num_experts) begins[expert] = pairs + through - count;
      if (count > 0) {
        const int segment = active + __popc(busy & ((1u << lane) - 1));
        segments[1 + segment] = expert;
        segments[1 + num_experts + segment] = pairs + through - count;
      }
      active += __popc(busy);
      pairs += __shfl_sync(kvr::kAllLanes, through, kvr::kWarpLanes - 1);
    }
    if (lane == 0) {
      segments[0] = active;
      segments[1 + num_experts + active] = pairs;
    }
  }
  __syncthreads();

  // A pair's place: where its expert's segment begins, plus the tokens before it.
  const int threads = static_cast<int>(blockDim.x);
  for (int pair = static_cast<int>(threadIdx.x); pair < num_tokens * top_k; pair += threads) {
    const int token = pair / top_k, expert = expert_ids[pair];
    int position = -1;
    if (expert >= 0) {
      const unsigned* mask = masks + expert * words;
      position = begins[expert] + __popc(mask[token / 32] & ((1u << token % 32) - 1));
      for (int word = 0; word < token / 32; ++word) position += __popc(mask[word]);
      pair_token[position] = token;
    }
    pair_position[pair] = position;
  }
}

}  // namespace moe
