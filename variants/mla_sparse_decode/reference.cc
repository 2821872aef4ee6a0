// SPDX-License-Identifier: Apache-2.0
//
// The definition in float64, and what a correct bf16 kernel may differ from it.
//
// Per output element the bound is 2^-8 (|o| + sum p |v|): a kernel rounds p to bf16 (by at most
// 2^-8 of each term) and the result once more. lse is fp32 throughout.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "variants/common/bfloat16.h"
#include "variants/common/errors.h"
#include "variants/common/parallel.h"
#include "variants/mla_sparse_decode/op.h"

namespace kvr::mla_sparse_decode {
namespace {

constexpr double kOutputBound = 1.0 / 256;
constexpr double kCosineLimit = 5e-6;
constexpr double kLseAbsolute = 1e-6, kLseRelative = 8.01 / 65536;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr int kCkv = 512, kKpe = 64, kQk = kCkv + kKpe;
constexpr int kHeads = 16;  // heads that one task takes through a token's rows together

struct Problem {
  int64_t num_heads, topk;
  const uint16_t *q_nope, *q_pe, *ckv_cache, *kpe_cache;
  const int32_t* indices;
  double sm_scale;
  kvr_expected *output, *lse;
};

using Row = std::array<double, kQk>;

void Widen(const uint16_t* ckv, const uint16_t* kpe, Row& row) {
  for (int d = 0; d < kCkv; ++d) row[d] = WidenBf16(ckv[d]);
  for (int d = 0; d < kKpe; ++d) row[kCkv + d] = WidenBf16(kpe[d]);
}

// Heads [first, first + heads) of one token.
void ReferenceHeads(const Problem& problem, int64_t token, int64_t first, int64_t heads) {
  const int32_t* slots = problem.indices + token * problem.topk;
  const int64_t first_row = token * problem.num_heads + first;

  // Heads innermost: the compiler vectorises over them and every sum keeps its plain order.
  std::vector<std::array<double, kHeads>> q(kQk);  // zero beyond `heads`
  for (int64_t h = 0; h < heads; ++h) {
    Row row;
    Widen(problem.q_nope + (first_row + h) * kCkv, problem.q_pe + (first_row + h) * kKpe, row);
    for (int d = 0; d < kQk; ++d) q[d][h] = row[d];
  }

  auto widen_slot = [&](int64_t slot, Row& row) {
    Widen(problem.ckv_cache + slot * kCkv, problem.kpe_cache + slot * kKpe, row);
  };

  // Scores, then probabilities.
  std::vector<std::array<double, kHeads>> p(problem.topk);
  std::array<double, kHeads> largest, sum{};
  largest.fill(-kInfinity);
  for (int64_t j = 0; j < problem.topk; ++j) {
    if (slots[j] < 0) continue;
    Row k;
    widen_slot(slots[j], k);
    std::array<double, kHeads> score{};
    for (int d = 0; d < kQk; ++d) {
      for (int h = 0; h < kHeads; ++h) score[h] += q[d][h] * k[d];
    }
    for (int h = 0; h < kHeads; ++h) {
      p[j][h] = problem.sm_scale * score[h];
      largest[h] = std::max(largest[h], p[j][h]);
    }
  }
  for (int64_t j = 0; j < problem.topk; ++j) {
    if (slots[j] < 0) continue;
    for (int h = 0; h < kHeads; ++h) {
      p[j][h] = std::exp(p[j][h] - largest[h]);
      sum[h] += p[j][h];
    }
  }

  // Outputs, and the sums of |terms| that the bounds need.
  std::vector<std::array<double, kCkv>> output(heads), magnitude(heads);
  for (int64_t j = 0; j < problem.topk; ++j) {
    if (slots[j] < 0) continue;
    Row v;
    widen_slot(slots[j], v);
    for (int64_t h = 0; h < heads; ++h) {
      const double weight = p[j][h] / sum[h];
      for (int d = 0; d < kCkv; ++d) {
        output[h][d] += weight * v[d];
        magnitude[h][d] += weight * std::abs(v[d]);
      }
    }
  }

  for (int64_t h = 0; h < heads; ++h) {
    const int64_t row = first_row + h;
    for (int d = 0; d < kCkv; ++d) {
      problem.output->expected[row * kCkv + d] = output[h][d];
      problem.output->bound[row * kCkv + d] =
          kOutputBound * (std::abs(output[h][d]) + magnitude[h][d]);
    }
    const double lse =
        sum[h] > 0 ? (largest[h] + std::log(sum[h])) / std::numbers::ln2 : -kInfinity;
    problem.lse->expected[row] = lse;
    problem.lse->bound[row] = std::isinf(lse) ? 0 : kLseAbsolute + kLseRelative * std::abs(lse);
  }
}

// A failure names the first slot beyond the cache.
int CheckSlots(const int64_t* axes, const int32_t* indices, char* error, size_t error_size) {
  const int64_t cache_slots = axes[kNumPages] * axes[kPageSize];
  for (int64_t i = 0; i < axes[kNumTokens] * axes[kTopk]; ++i) {
    if (indices[i] < cache_slots) continue;
    return Fail(KVR_INVALID_ARGUMENT, error, error_size,
                "sparse_indices[%lld, %lld] is %d, beyond the cache of %lld slots; give page * "
                "page_size + offset of an existing page, or -1 for padding",
                static_cast<long long>(i / axes[kTopk]), static_cast<long long>(i % axes[kTopk]),
                indices[i], static_cast<long long>(cache_slots));
  }
  return KVR_OK;
}

}  // namespace

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size) {
  const int64_t num_tokens = axes[kNumTokens], num_heads = axes[kNumHeads];
  const Problem problem = {
      .num_heads = num_heads,
      .topk = axes[kTopk],
      .q_nope = static_cast<const uint16_t*>(inputs[kQNope].data),
      .q_pe = static_cast<const uint16_t*>(inputs[kQPe].data),
      .ckv_cache = static_cast<const uint16_t*>(inputs[kCkvCache].data),
      .kpe_cache = static_cast<const uint16_t*>(inputs[kKpeCache].data),
      .indices = static_cast<const int32_t*>(inputs[kSparseIndices].data),
      .sm_scale = static_cast<const float*>(inputs[kSmScale].data)[0],
      .output = &outputs[kOutput],
      .lse = &outputs[kLse],
  };
  if (const int code = CheckSlots(axes, problem.indices, error, error_size); code != KVR_OK) {
    return code;
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

}  // namespace kvr::mla_sparse_decode
