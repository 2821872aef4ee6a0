// SPDX-License-Identifier: Apache-2.0
#include "variants/mla_sparse_decode/op.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace kvr {
namespace mla_sparse_decode {
namespace {

// Rows of the cache that the generator's lists are expected to name at least once: each token draws
// `topk` different slots of `cache`, so a row is left out by all with probability
// (1 - topk/cache)^tokens. Padding, a few percent, is not taken off.
int64_t DistinctRows(int64_t tokens, int64_t topk, int64_t cache) {
  const double left_out =
      1.0 - std::min(1.0, static_cast<double>(topk) / static_cast<double>(cache));
  return std::llround(static_cast<double>(cache) *
                      (1.0 - std::pow(left_out, static_cast<double>(tokens))));
}

OpSpec MakeSpec() {
  OpSpec op;
  op.name = "mla_sparse_decode";
  op.op_type = "dsa_paged";
  op.description =
      "MLA decode over a sparse top-k of a paged latent cache (bf16), after weight absorption";
  op.tags = {"stage:decode"};
  // The default cache has 32768 slots, 37.7 MB: at the default axes four times what is read.
  op.axes = {
      {.name = "num_tokens", .default_value = 16, .description = "batch size"},
      {.name = "num_qo_heads", .default_value = 16, .description = "heads of this rank"},
      {.name = "head_dim_ckv", .is_const = true, .value = 512, .default_value = 512},
      {.name = "head_dim_kpe", .is_const = true, .value = 64, .default_value = 64},
      {.name = "page_size", .default_value = 64, .description = "slots of a page"},
      {.name = "num_pages", .default_value = 512, .description = "pages of the cache"},
      {.name = "topk", .default_value = 512, .description = "length of a token's slot list"},
  };
  op.inputs = {
      {.name = "q_nope", .dtype = DType::kBF16, .axes = {kNumTokens, kNumHeads, kCkvDim}},
      {.name = "q_pe", .dtype = DType::kBF16, .axes = {kNumTokens, kNumHeads, kKpeDim}},
      {.name = "ckv_cache", .dtype = DType::kBF16, .axes = {kNumPages, kPageSize, kCkvDim}},
      {.name = "kpe_cache", .dtype = DType::kBF16, .axes = {kNumPages, kPageSize, kKpeDim}},
      {.name = "sparse_indices",
       .dtype = DType::kI32,
       .axes = {kNumTokens, kTopk},
       .description = "page * page_size + offset; -1: padding"},
      {.name = "sm_scale",
       .dtype = DType::kF32,
       .is_scalar = true,
       .scalar_default = kDefaultSmScale,
       .description = "multiplies the scores"},
  };
  op.outputs = {
      {.name = "output", .dtype = DType::kBF16, .axes = {kNumTokens, kNumHeads, kCkvDim}},
      {.name = "lse",
       .dtype = DType::kF32,
       .axes = {kNumTokens, kNumHeads},
       .description = "base 2; -infinity where every slot is padding"},
  };
  op.constraints = {
      "num_qo_heads >= 1 and num_qo_heads <= 128",
      "topk >= 1 and topk <= 32768",
      "page_size >= 1 and num_pages >= 1 and page_size * num_pages <= 2147483647",
  };
  op.key_policy = "topk:pow2";
  return op;
}

class MlaSparseDecode final : public Operation {
 public:
  const OpSpec& spec() const override { return spec_; }

  absl::Status Generate(const AxisVector& axes, uint64_t seed,
                        absl::Span<const TensorView> inputs) const override {
    return mla_sparse_decode::Generate(axes, seed, inputs);
  }

  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector& axes,
                                                         absl::Span<const TensorView> inputs,
                                                         int threads) const override {
    return mla_sparse_decode::Reference(axes, inputs, threads);
  }

  // Each KV row once, however many tokens read it; q, output and the slot lists.
  int64_t MinimumBytes(const AxisVector& axes) const override {
    const int64_t slots = axes[kNumTokens] * axes[kTopk];
    const int64_t rows =
        DistinctRows(axes[kNumTokens], axes[kTopk], axes[kNumPages] * axes[kPageSize]);
    const int64_t key_bytes = 2 * (axes[kCkvDim] + axes[kKpeDim]);
    const int64_t value_bytes = 2 * axes[kCkvDim];
    return rows * key_bytes + axes[kNumTokens] * axes[kNumHeads] * (key_bytes + value_bytes) +
           slots * 4;
  }

 private:
  const OpSpec spec_ = MakeSpec();
};

}  // namespace
}  // namespace mla_sparse_decode

std::unique_ptr<Operation> MakeOperation_mla_sparse_decode() {
  return std::make_unique<mla_sparse_decode::MlaSparseDecode>();
}

}  // namespace kvr
