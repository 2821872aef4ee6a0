// SPDX-License-Identifier: Apache-2.0
//
// The definition in float64, and what a correct bf16 kernel may differ from it.
//
// Per output element the bound is 2^-8 (|o| + sum p |v|), the sink's factor in both: a kernel
// rounds p to 16 bits (by at most 2^-8 of each term) and the result once more. lse is fp32
// throughout.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "variants/common/bfloat16.h"
#include "variants/common/errors.h"
#include "variants/common/mla_fp8/mla_fp8.h"
#include "variants/common/parallel.h"

namespace kvr::mla_fp8 {
namespace {

constexpr double kOutputBound = 1.0 / 256;
constexpr double kCosineLimit = 5e-6;
constexpr double kLseAbsolute = 1e-6, kLseRelative = 8.01 / 65536;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr int kHeads = 16;  // heads that one task takes through a token's rows together

// One of the two caches with its lists. Without a second one there are no lists to read.
struct Cache {
  const char *list_name, *length_name;
  const uint8_t* rows;
  const int32_t *indices, *lengths;  // lengths null: the whole list
  int64_t page_size, slots, topk;

  int64_t Length(int64_t token) const { return lengths == nullptr ? topk : lengths[token]; }
};

struct Problem {
  const Layout& layout;
  int64_t num_heads;
  const uint16_t* q;
  const float* sinks;  // null: none
  std::array<Cache, 2> caches;
  double sm_scale;
  kvr_expected *output, *lse;
};

using KeyRow = Row<const uint8_t>;

// The rows that count for a token, of both caches.
std::vector<KeyRow> RowsOf(const Problem& problem, int64_t token) {
  std::vector<KeyRow> rows;
  for (const Cache& cache : problem.caches) {
    for (int64_t i = 0; i < cache.Length(token); ++i) {
      const int32_t slot = cache.indices[token * cache.topk + i];
      if (slot >= 0) rows.push_back(RowOf(problem.layout, cache.rows, cache.page_size, slot));
    }
  }
  return rows;
}

// Heads [first, first + heads) of one token.
void ReferenceHeads(const Problem& problem, int64_t token, int64_t first, int64_t heads) {
  const int key_dims = problem.layout.key_dims();
  const int64_t first_row = token * problem.num_heads + first;
  const std::vector<KeyRow> rows = RowsOf(problem, token);

  // Heads innermost: the compiler vectorises over them and every sum keeps its plain order.
  std::vector<std::array<double, kHeads>> q(key_dims);  // zero beyond `heads`
  for (int64_t h = 0; h < heads; ++h) {
    const uint16_t* const bits = problem.q + (first_row + h) * key_dims;
    for (int d = 0; d < key_dims; ++d) q[d][h] = WidenBf16(bits[d]);
  }

  // Scores, then probabilities.
  std::array<double, kMostKeyDims> k;
  std::vector<std::array<double, kHeads>> p(rows.size());
  std::array<double, kHeads> largest, sum{};
  largest.fill(-kInfinity);
  for (size_t j = 0; j < rows.size(); ++j) {
    Decode(problem.layout, rows[j], k.data());
    std::array<double, kHeads> score{};
    for (int d = 0; d < key_dims; ++d) {
      for (int h = 0; h < kHeads; ++h) score[h] += q[d][h] * k[d];
    }
    for (int h = 0; h < kHeads; ++h) {
      p[j][h] = problem.sm_scale * score[h];
      largest[h] = std::max(largest[h], p[j][h]);
    }
  }
  for (size_t j = 0; j < rows.size(); ++j) {
    for (int h = 0; h < kHeads; ++h) {
      p[j][h] = std::exp(p[j][h] - largest[h]);
      sum[h] += p[j][h];
    }
  }

  // Outputs, and the sums of |terms| that the bounds need.
  std::vector<std::array<double, kValueDims>> output(heads), magnitude(heads);
  for (size_t j = 0; j < rows.size(); ++j) {
    Decode(problem.layout, rows[j], k.data());
    for (int64_t h = 0; h < heads; ++h) {
      const double weight = p[j][h] / sum[h];
      for (int d = 0; d < kValueDims; ++d) {
        output[h][d] += weight * k[d];
        magnitude[h][d] += weight * std::abs(k[d]);
      }
    }
  }

  for (int64_t h = 0; h < heads; ++h) {
    const int64_t row = first_row + h;
    const bool empty = rows.empty();
    const double natural_lse = empty ? -kInfinity : largest[h] + std::log(sum[h]);
    // An empty row is 0 whatever its sink: no 0 * NaN where both are -infinity.
    const double factor = empty || problem.sinks == nullptr
                              ? 1
                              : 1 / (1 + std::exp(problem.sinks[first + h] - natural_lse));
    for (int d = 0; d < kValueDims; ++d) {
      problem.output->expected[row * kValueDims + d] = factor * output[h][d];
      problem.output->bound[row * kValueDims + d] =
          kOutputBound * factor * (std::abs(output[h][d]) + magnitude[h][d]);
    }
    const double lse = natural_lse / std::numbers::ln2;
    problem.lse->expected[row] = lse;
    problem.lse->bound[row] = empty ? 0 : kLseAbsolute + kLseRelative * std::abs(lse);
  }
}

// A failure names the first length beyond its list, or slot beyond the cache.
int CheckLists(const Cache& cache, int64_t num_tokens, char* error, size_t error_size) {
  for (int64_t token = 0; token < num_tokens; ++token) {
    const int64_t length = cache.Length(token);
    if (length < 0 || length > cache.topk) {
      return Fail(KVR_INVALID_ARGUMENT, error, error_size,
                  "%s[%lld] is %lld, for a list of %lld; give 0 to %lld", cache.length_name,
                  static_cast<long long>(token), static_cast<long long>(length),
                  static_cast<long long>(cache.topk), static_cast<long long>(cache.topk));
    }
    for (int64_t i = 0; i < length; ++i) {
      const int32_t slot = cache.indices[token * cache.topk + i];
      if (slot < cache.slots) continue;
      return Fail(KVR_INVALID_ARGUMENT, error, error_size,
                  "%s[%lld, %lld] is %d, beyond the cache of %lld slots; give page * page_size + "
                  "offset of an existing page, or -1 for padding",
                  cache.list_name, static_cast<long long>(token), static_cast<long long>(i), slot,
                  static_cast<long long>(cache.slots));
    }
  }
  return KVR_OK;
}

Cache CacheOf(const int64_t* axes, const kvr_tensor* inputs, bool extra) {
  const int cache = extra ? kExtraKvCache : kKvCache;
  const int page_size = extra ? kExtraPageSize : kPageSize;
  return {.list_name = extra ? "extra_indices" : "sparse_indices",
          .length_name = extra ? "extra_topk_length" : "topk_length",
          .rows = static_cast<const uint8_t*>(inputs[cache].data),
          .indices = static_cast<const int32_t*>(inputs[cache + 1].data),
          .lengths = static_cast<const int32_t*>(inputs[cache + 2].data),
          .page_size = axes[page_size],
          .slots = axes[page_size] * axes[page_size + 1],
          .topk = axes[extra ? kExtraTopk : kTopk]};
}

}  // namespace

int Reference(const Layout& layout, const int64_t* axes, const kvr_tensor* inputs, int threads,
              kvr_expected* outputs, char* error, size_t error_size) {
  const int64_t num_tokens = axes[kNumTokens], num_heads = axes[kNumHeads];
  const Problem problem = {
      .layout = layout,
      .num_heads = num_heads,
      .q = static_cast<const uint16_t*>(inputs[kQ].data),
      .sinks = static_cast<const float*>(inputs[kSink].data),
      .caches = {CacheOf(axes, inputs, false), CacheOf(axes, inputs, true)},
      .sm_scale = static_cast<const float*>(inputs[kSmScale].data)[0],
      .output = &outputs[kOutput],
      .lse = &outputs[kLse],
  };
  for (const Cache& cache : problem.caches) {
    const int code = CheckLists(cache, num_tokens, error, error_size);
    if (code != KVR_OK) return code;
  }
  outputs[kOutput].cosine_limit = kCosineLimit;

  const int64_t head_blocks = (num_heads + kHeads - 1) / kHeads;
  ParallelFor(num_tokens * head_blocks, threads, [&](int64_t task) {
    const int64_t first = task % head_blocks * kHeads;
    ReferenceHeads(problem, task / head_blocks, first,
                   std::min<int64_t>(kHeads, num_heads - first));
  });
  return KVR_OK;
}

}  // namespace kvr::mla_fp8
