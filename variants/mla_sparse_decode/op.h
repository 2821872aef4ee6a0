// SPDX-License-Identifier: Apache-2.0
//
// mla_sparse_decode: MLA decode over a sparse top-k of a paged latent cache, after weight
// absorption (FlashInfer-Bench's dsa_sparse_attention). For a token's head, over the slots that
// sparse_indices names (slot = page * page_size + offset; negative: padding):
//
//   s = sm_scale * (q_nope . ckv + q_pe . kpe)     output = sum softmax(s) * ckv
//   lse = log2(sum e^s)                            no slot kept: output 0, lse -infinity
//
// definition.json has axes and tensors. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"

namespace kvr::mla_sparse_decode {

// Positions in definition.json.
enum Axis { kNumTokens, kNumHeads, kCkvDim, kKpeDim, kPageSize, kNumPages, kTopk };
enum Input { kQNope, kQPe, kCkvCache, kKpeCache, kSparseIndices, kSmScale };
enum OutputTensor { kOutput, kLse };

inline constexpr double kDefaultSmScale = 0.07216878364870323;  // 192^-1/2: head dims 128 + 64

// q and the caches are N(0, 1) rounded to bf16, sm_scale its default. A token's slots are distinct
// as far as the cache has enough. An even seed pads nothing: what is timed on it reads all that its
// shape says. An odd one, token by token in turn: nothing, scattered slots, a tail, both; with more
// than two tokens one of them is all padding.
void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs);

// Errors: a slot beyond the cache.
int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* error, size_t error_size);

}  // namespace kvr::mla_sparse_decode
