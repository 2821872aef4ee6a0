// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "variants/common/bfloat16.h"
#include "variants/common/mla_fp8/mla_fp8.h"
#include "variants/common/parallel.h"
#include "variants/common/random.h"
#include "variants/common/slot_lists.h"

namespace kvr::mla_fp8 {
namespace {

constexpr int kLeastExponent = -4, kExponents = 6;  // a group's magnitude: 2^-4 ... 2^1
constexpr int kUnread = 0xff;                       // NaN as e4m3, bf16, fp32 and UE8M0

// Streams of one seed, apart from each other by what they are for.
enum Purpose : uint64_t { kQuery, kSinks, kSlots, kScatter, kTail, kGarbage, kValues, kMagnitudes };
RandomStream Stream(uint64_t seed, Purpose purpose, bool extra = false, uint64_t index = 0) {
  return RandomStream(seed, (2 * purpose + extra) << 40 | index);
}

// One of the two caches with its lists.
struct Cache {
  bool extra;
  uint8_t* rows;
  int64_t page_size, slots;
  int32_t* indices;  // [num_tokens, topk]
  int32_t* lengths;  // [num_tokens]
  int64_t num_tokens, topk;
};

Cache CacheOf(const int64_t* axes, const kvr_tensor* inputs, bool extra) {
  const int cache = extra ? kExtraKvCache : kKvCache;
  const int page_size = extra ? kExtraPageSize : kPageSize;
  return {.extra = extra,
          .rows = static_cast<uint8_t*>(inputs[cache].data),
          .page_size = axes[page_size],
          .slots = axes[page_size] * axes[page_size + 1],
          .indices = static_cast<int32_t*>(inputs[cache + 1].data),
          .lengths = static_cast<int32_t*>(inputs[cache + 2].data),
          .num_tokens = axes[kNumTokens],
          .topk = axes[extra ? kExtraTopk : kTopk]};
}

// Every fourth head has no sink. The others' are like scores, whose sum over some hundred entries
// has a logarithm of 6 to 8.
float Sink(const RandomStream& random, int64_t head) {
  if (head % 4 == 3) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(random.Below(head, 1 << 16)) / (1 << 16) * 10 - 1;
}

// What may lie beyond a list's length: no slot at all, or one that holds NaN.
void FillWithGarbage(const RandomStream& random, std::span<int32_t> slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i] = i % 2 == 0 ? static_cast<int32_t>(random.Bits(i) >> 32) : 0;
  }
}

void FillList(const Cache& cache, uint64_t seed, int64_t token) {
  const std::span<int32_t> list(cache.indices + token * cache.topk, cache.topk);
  int32_t& length = cache.lengths[token];
  length = static_cast<int32_t>(cache.topk);
  if (list.empty()) return;
  // At an odd seed, one of more than two tokens has no entry in either list, the next one none in
  // the first list: padding alone, and a length of 0.
  const bool some_empty = seed % 2 == 1 && cache.num_tokens > 2;
  const bool all_padding = some_empty && token == static_cast<int64_t>(seed % cache.num_tokens);
  const bool no_length =
      some_empty && !cache.extra && token == static_cast<int64_t>((seed + 1) % cache.num_tokens);
  if (cache.slots < 2 || all_padding) {  // no list names slot 0
    std::fill(list.begin(), list.end(), kPaddingSlot);
    return;
  }
  DrawSlots(Stream(seed, kSlots, cache.extra, token), 1, static_cast<int32_t>(cache.slots - 1),
            list);
  if (seed % 2 == 0) return;
  const uint64_t turn = (token + seed / 2 + cache.extra) % 4;
  if (turn % 2 == 1) ScatterPadding(Stream(seed, kScatter, cache.extra, token), list);
  if (turn / 2 == 1) length -= DrawTail(Stream(seed, kTail, cache.extra, token), list.size());
  if (no_length) length = 0;
  FillWithGarbage(Stream(seed, kGarbage, cache.extra, token), list.subspan(length));
}

void FillRow(const Layout& layout, const Cache& cache, uint64_t seed, int64_t slot) {
  std::array<uint16_t, kMostKeyDims> bits;
  std::array<float, kMostKeyDims> values;
  std::array<int, 8> exponents;
  FillNormalBf16(Stream(seed, kValues, cache.extra, slot), {bits.data(), bits.size()});
  for (int i = 0; i < layout.key_dims(); ++i) values[i] = WidenBf16(bits[i]);
  const RandomStream magnitudes = Stream(seed, kMagnitudes, cache.extra, slot);
  for (int group = 0; group < layout.groups(); ++group) {
    exponents[group] = kLeastExponent + static_cast<int>(magnitudes.Below(group, kExponents));
  }
  Encode(layout, values.data(), exponents.data(), RowOf(layout, cache.rows, cache.page_size, slot));
}

// Rows that no list names are NaN through and through.
void FillRows(const Layout& layout, const Cache& cache, uint64_t seed) {
  if (cache.slots == 0) return;
  std::vector<bool> named(cache.slots);
  for (int64_t token = 0; token < cache.num_tokens; ++token) {
    const int32_t* const list = cache.indices + token * cache.topk;
    for (int32_t i = 0; i < cache.lengths[token]; ++i) {
      if (list[i] >= 0) named[list[i]] = true;
    }
  }
  std::memset(cache.rows, kUnread, cache.slots * layout.token_bytes);
  constexpr int64_t kBlock = 256;
  ParallelFor((cache.slots + kBlock - 1) / kBlock, HardwareThreads(), [&](int64_t block) {
    const int64_t end = std::min(cache.slots, (block + 1) * kBlock);
    for (int64_t slot = block * kBlock; slot < end; ++slot) {
      if (named[slot]) FillRow(layout, cache, seed, slot);
    }
  });
}

}  // namespace

void Generate(const Layout& layout, const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
  const int64_t num_tokens = axes[kNumTokens], num_heads = axes[kNumHeads];
  FillNormalBf16(Stream(seed, kQuery),
                 {static_cast<uint16_t*>(inputs[kQ].data),
                  static_cast<size_t>(num_tokens * num_heads * layout.key_dims())});
  *static_cast<float*>(inputs[kSmScale].data) = static_cast<float>(kDefaultSmScale);
  float* const sinks = static_cast<float*>(inputs[kSink].data);
  for (int64_t head = 0; head < num_heads; ++head) sinks[head] = Sink(Stream(seed, kSinks), head);
  for (bool extra : {false, true}) {
    const Cache cache = CacheOf(axes, inputs, extra);
    ParallelFor(num_tokens, HardwareThreads(),
                [&](int64_t token) { FillList(cache, seed, token); });
    FillRows(layout, cache, seed);
  }
}

}  // namespace kvr::mla_fp8
