// SPDX-License-Identifier: Apache-2.0
//
// What mla_sparse_decode_fp8 and mla_sparse_decode_fp8_v32 have in common: everything but the
// layout of a cache row. Their definitions name axes and tensors in one order.
//
// For a token's head, over the entries of both of its lists that count (at a place below the list's
// length, and not negative), k being the row that an entry names and v the first 512 values of it:
//
//   s = sm_scale * (q . k)       lse = log2(sum e^s)       no entry counts: lse -infinity
//   output = sum softmax(s) * v / (1 + e^(sink - lse * ln 2))                output 0
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"
#include "variants/common/mla_fp8/layout.h"

namespace kvr::mla_fp8 {

// Positions in the definitions; const axes that differ follow.
enum Axis {
  kNumTokens,
  kNumHeads,
  kHeadDim,
  kPageSize,
  kNumPages,
  kTopk,
  kExtraPageSize,
  kExtraNumPages,
  kExtraTopk
};
enum Input {
  kQ,
  kKvCache,
  kSparseIndices,
  kTopkLength,
  kSink,
  kExtraKvCache,
  kExtraIndices,
  kExtraTopkLength,
  kSmScale
};
enum OutputTensor { kOutput, kLse };

inline constexpr int kValueDims = 512;
inline constexpr double kDefaultSmScale = 0.07216878364870323;  // 192^-1/2

// q is N(0, 1) rounded to bf16. A row of a cache that some list names is N(0, 1), each group of
// dims that share a scale times 2^-4 ... 2^1, quantised as a cache is: the scale is the least at
// which nothing saturates. All other rows, slot 0 first of all, are 0xff through and through: NaN.
// A list's slots are distinct as far as the cache has enough. An even seed fills all lists: what is
// timed on it reads all that its shape says. An odd one adds what a kernel must survive, token by
// token in turn: nothing, scattered -1, a length below the list's with anything behind it, both;
// with more than two tokens, one has lists of -1 alone and the next one a topk_length of 0.
// Sinks lie in the range of the scores; every fourth head has none (-infinity).
void Generate(const Layout& layout, const int64_t* axes, uint64_t seed, const kvr_tensor* inputs);

// In float64, from the same bytes. Errors: a slot beyond its cache, a length beyond its list.
int Reference(const Layout& layout, const int64_t* axes, const kvr_tensor* inputs, int threads,
              kvr_expected* outputs, char* error, size_t error_size);

// Each row that the generator's lists name once, however many tokens read it; q, output and lists.
int64_t MinimumBytes(const Layout& layout, const int64_t* axes);

}  // namespace kvr::mla_fp8
