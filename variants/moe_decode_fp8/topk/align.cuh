// SPDX-License-Identifier: Apache-2.0
//
// From what each token chose to what the expert kernels read: the (token, slot) pairs whose expert
// is this rank's, sorted by expert (segments.cuh), by one block.
//
// While they choose, tokens leave a bit in the mask of each of their local experts: masks, in
// shared memory, [num_local][MaskWords(num_tokens)], bit t % 32 of word t / 32. However the warps'
// turns fall, the masks say the same, and so does what is counted from them.
#pragma once

#include <kvr/device.cuh>

namespace moe {

KVR_DEVICE int MaskWords(int num_tokens) { return (num_tokens + 31) / 32; }

// The experts whose weights are here.
struct Local {
  int offset, count;

  // Counted from the first; -1: it is another rank's, or none.
  KVR_DEVICE int Index(int expert) const {
    const int index = expert - offset;
    return expert >= 0 && index >= 0 && index < count ? index : -1;
  }
};

// By any thread, for itself.
KVR_DEVICE void MarkToken(const Local& here, unsigned* masks, int words, int expert, int token) {
  const int local = here.Index(expert);
  if (local >= 0) atomicOr(&masks[local * words + token / 32], 1u << token % 32);
}

// pair_expert    [num_tokens, top_k], by this block, before a barrier; of all ranks, or -1
// begins         [num_local], shared memory to work with
// pair_token     [pairs]: by expert, then token
// pair_position  [num_tokens, top_k]: a pair's place in pair_token; -1: none
//
// By the whole block, after a barrier that follows the last mark.
KVR_DEVICE void SortPairs(const Local& here, const unsigned* masks, const int* pair_expert,
                          int num_tokens, int top_k, int* begins, int* segments, int* pair_token,
                          int* pair_position) {
  const int num_local = here.count;
  const int words = MaskWords(num_tokens), lane = kvr::LaneIndex();
  if (kvr::WarpIndex() == 0) {
    int active = 0, pairs = 0;
    for (int base = 0; base < num_local; base += kvr::kWarpLanes) {
      const int expert = base + lane;
      int count = 0;
      for (int word = 0; word < words && expert < num_local; ++word) {
        count += __popc(masks[expert * words + word]);
      }
      const int through = kvr::WarpPrefixSum(count);  // of this lane and those before
      const unsigned busy = __ballot_sync(kvr::kAllLanes, count > 0);
      if (expert < num_local) begins[expert] = pairs + through - count;
      if (count > 0) {
        const int segment = active + __popc(busy & ((1u << lane) - 1));
        segments[1 + segment] = expert;
        segments[1 + num_local + segment] = pairs + through - count;
      }
      active += __popc(busy);
      pairs += __shfl_sync(kvr::kAllLanes, through, kvr::kWarpLanes - 1);
    }
    if (lane == 0) {
      segments[0] = active;
      segments[1 + num_local + active] = pairs;
    }
  }
  __syncthreads();

  // A pair's place: where its expert's segment begins, plus the tokens before it.
  const int threads = static_cast<int>(blockDim.x);
  for (int pair = static_cast<int>(threadIdx.x); pair < num_tokens * top_k; pair += threads) {
    const int token = pair / top_k, expert = here.Index(pair_expert[pair]);
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
