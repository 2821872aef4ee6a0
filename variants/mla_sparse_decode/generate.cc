// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>

#include "variants/common/parallel.h"
#include "variants/common/random.h"
#include "variants/common/slot_lists.h"
#include "variants/mla_sparse_decode/op.h"

namespace kvr::mla_sparse_decode {
namespace {

void PadTail(const RandomStream& random, std::span<int32_t> slots) {
  if (slots.size() == 1) return;  // scattered padding empties such a list often enough
  std::fill(slots.end() - DrawTail(random, slots.size()), slots.end(), kPaddingSlot);
}

std::span<uint16_t> Bf16(const kvr_tensor& tensor) {
  return {static_cast<uint16_t*>(tensor.data),
          static_cast<size_t>(tensor.shape[0] * tensor.shape[1] * tensor.shape[2])};
}

}  // namespace

void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
  for (int input : {kQNope, kQPe, kCkvCache, kKpeCache}) {
    FillNormalBf16(RandomStream(seed, input), Bf16(inputs[input]));
  }
  *static_cast<float*>(inputs[kSmScale].data) = static_cast<float>(kDefaultSmScale);

  const int64_t num_tokens = axes[kNumTokens], topk = axes[kTopk];
  const int32_t cache_slots = static_cast<int32_t>(axes[kNumPages] * axes[kPageSize]);
  const bool padded = seed % 2 == 1;
  const int64_t all_padding =
      padded && num_tokens > 2 ? static_cast<int64_t>(seed % num_tokens) : -1;
  int32_t* const indices = static_cast<int32_t*>(inputs[kSparseIndices].data);
  ParallelFor(num_tokens, HardwareThreads(), [&](int64_t token) {
    // Streams of their own per token; those below 8 are the tensors'.
    const RandomStream draw(seed, 8 + 3 * token), scatter(seed, 9 + 3 * token),
        tail(seed, 10 + 3 * token);
    const std::span<int32_t> slots(indices + token * topk, topk);
    if (token == all_padding) {
      std::fill(slots.begin(), slots.end(), kPaddingSlot);
      return;
    }
    DrawSlots(draw, 0, cache_slots, slots);
    if (!padded) return;
    const uint64_t turn = (token + seed) % 4;
    if (turn % 2 == 1) ScatterPadding(scatter, slots);
    if (turn / 2 == 1) PadTail(tail, slots);
  });
}

}  // namespace kvr::mla_sparse_decode
