// SPDX-License-Identifier: Apache-2.0
//
// roofline_gather: the reads of a sparse decode without its arithmetic. A cache slot is a row of
// token_bytes - side_bytes bytes and, behind the rows of its page, side_bytes more:
//
//   mla_sparse_decode_fp8       584 = 576 + 8 bytes
//   mla_sparse_decode_fp8_v32   656 = 656 + 0
//   mla_sparse_decode           1152 = 1024 + 128: ckv_cache and kpe_cache in one
//
// The output is one sum for each 4 entries of a list, so that no read can be left out and writing
// costs a five-hundredth of reading. Threading: pure functions.
#include <algorithm>
#include <cstring>

#include "variants/common/errors.h"
#include "variants/common/operation.h"
#include "variants/common/parallel.h"
#include "variants/common/slot_lists.h"

namespace kvr::roofline_gather {
namespace {

// Positions in definition.json.
enum Axis { kNumTokens, kTopk, kPageSize, kNumPages, kTokenBytes, kSideBytes, kGroups };
enum Input { kCache, kSparseIndices, kSideBytesValue };
enum OutputTensor { kChecksum };

constexpr int64_t kGroup = 4;  // entries of a sum
enum Stream : uint64_t { kBytes, kFirstList };

// Any bytes; lists as the generators of the decode operations draw them. An even seed pads nothing.
void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
  const int64_t slots = axes[kNumPages] * axes[kPageSize];
  *static_cast<int32_t*>(inputs[kSideBytesValue].data) = static_cast<int32_t>(axes[kSideBytes]);
  auto* const words = static_cast<uint64_t*>(inputs[kCache].data);
  const RandomStream bytes(seed, kBytes);
  constexpr int64_t kChunk = 1 << 16;
  const int64_t count = slots * axes[kTokenBytes] / 8;
  ParallelFor((count + kChunk - 1) / kChunk, HardwareThreads(), [&](int64_t chunk) {
    const int64_t end = std::min(count, (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i) words[i] = bytes.Bits(i);
  });
  auto* const indices = static_cast<int32_t*>(inputs[kSparseIndices].data);
  ParallelFor(axes[kNumTokens], HardwareThreads(), [&](int64_t token) {
    const std::span<int32_t> list(indices + token * axes[kTopk], axes[kTopk]);
    DrawSlots(RandomStream(seed, kFirstList + 2 * token), 0, static_cast<int32_t>(slots), list);
    if (seed % 2 == 1) ScatterPadding(RandomStream(seed, kFirstList + 2 * token + 1), list);
  });
}

uint32_t SumOfWords(const unsigned char* bytes, int64_t count) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < count; i += 4) {
    uint32_t word;
    std::memcpy(&word, bytes + i, 4);
    sum += word;
  }
  return sum;
}

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size) {
  const int64_t topk = axes[kTopk], page_size = axes[kPageSize], side_bytes = axes[kSideBytes];
  const int64_t row_bytes = axes[kTokenBytes] - side_bytes;
  const int64_t slots = axes[kNumPages] * page_size;
  const auto* const cache = static_cast<const unsigned char*>(inputs[kCache].data);
  const auto* const indices = static_cast<const int32_t*>(inputs[kSparseIndices].data);
  for (int64_t i = 0; i < axes[kNumTokens] * topk; ++i) {
    if (indices[i] < slots) continue;
    return Fail(KVR_INVALID_ARGUMENT, error, error_size,
                "sparse_indices has slot %d; the cache has %lld", indices[i],
                static_cast<long long>(slots));
  }
  ParallelFor(axes[kNumTokens], threads, [&](int64_t token) {
    for (int64_t group = 0; group < axes[kGroups]; ++group) {
      uint32_t sum = 0;
      for (int64_t i = group * kGroup; i < std::min(topk, (group + 1) * kGroup); ++i) {
        const int64_t slot = indices[token * topk + i];
        if (slot < 0) continue;
        const unsigned char* const page = cache + slot / page_size * page_size * axes[kTokenBytes];
        const int64_t offset = slot % page_size;
        sum += SumOfWords(page + offset * row_bytes, row_bytes);
        sum += SumOfWords(page + page_size * row_bytes + offset * side_bytes, side_bytes);
      }
      outputs[kChecksum].expected[token * axes[kGroups] + group] = static_cast<int32_t>(sum);
    }
  });
  return KVR_OK;
}

// The rows that the lists are expected to name once; lists and sums.
int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  const int64_t rows =
      DistinctSlots(axes[kNumTokens], axes[kTopk], axes[kNumPages] * axes[kPageSize]);
  return rows * axes[kTokenBytes] + 4 * axes[kNumTokens] * (axes[kTopk] + axes[kGroups]);
}

constexpr kvr_operation kOperation =
    OperationOf<Generate, Reference>("roofline_gather", MinimumBytes);
constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();

}  // namespace
}  // namespace kvr::roofline_gather

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::roofline_gather::kPlugin; }
