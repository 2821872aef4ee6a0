// SPDX-License-Identifier: Apache-2.0
//
// A small op and a variant of it, built by hand: the split planner of the mla_sparse_decode
// baseline, without kernels behind it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/binary.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/variant.h"

namespace kvr::test {

inline AxisSpec Axis(std::string name, int64_t default_value) {
  AxisSpec axis;
  axis.name = std::move(name);
  axis.default_value = default_value;
  return axis;
}

inline TensorSpec Tensor(std::string name, DType dtype, std::vector<int> axes) {
  TensorSpec tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.axes = std::move(axes);
  return tensor;
}

// Axes num_tokens, num_qo_heads, topk; outputs o[num_tokens, num_qo_heads] f32, ids[num_tokens]
// i32.
class DecodeOp : public Operation {
 public:
  DecodeOp() {
    spec_.name = "decode";
    spec_.axes = {Axis("num_tokens", 96), Axis("num_qo_heads", 32), Axis("topk", 512)};
    spec_.inputs = {Tensor("q", DType::kF32, {0, 1})};
    spec_.outputs = {Tensor("o", DType::kF32, {0, 1}), Tensor("ids", DType::kI32, {0})};
    spec_.key_policy = "topk:pow2";
  }
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>(2);
  }
  int64_t MinimumBytes(const AxisVector& axes) const override { return 1000 * axes[0]; }

 private:
  OpSpec spec_;
};

inline Tunable MakeTunable(std::string name, std::vector<int64_t> values, int64_t default_value,
                           Scope scope) {
  Tunable tunable;
  tunable.name = std::move(name);
  tunable.values = std::move(values);
  tunable.default_value = default_value;
  tunable.scope = scope;
  return tunable;
}

inline std::shared_ptr<Variant> SplitVariant(const OpSpec& op, std::string name = "baseline") {
  auto variant = std::make_shared<Variant>();
  variant->op = op.name;
  variant->name = std::move(name);
  variant->targets = {"sm_80+", "host"};
  variant->tunables = {MakeTunable("BLOCK_H", {16, 32}, 32, Scope::kCompile),
                       MakeTunable("STAGES", {2, 3}, 2, Scope::kCompile),
                       MakeTunable("TARGET_CTAS", {256, 512, 1024}, 256, Scope::kLaunch)};
  PlanProgram& plan = variant->plan;
  plan.axis_count = static_cast<int>(op.axes.size());
  plan.tunable_count = static_cast<int>(variant->tunables.size());
  const auto parse = [&](const std::string& text) {
    absl::StatusOr<Expr> expr =
        Expr::Parse(text, PlanProgram::Symbols(op, variant->tunables, {}, plan.lets));
    EXPECT_TRUE(expr.ok()) << expr.status();
    return *std::move(expr);
  };
  const auto let = [&](const std::string& let_name, const std::string& text) {
    PlanProgram::Let value;
    value.value = parse(text);
    value.name = let_name;
    plan.lets.push_back(std::move(value));
  };
  let("head_groups", "ceildiv(num_qo_heads, BLOCK_H)");
  let("nsplit",
      "min(ceildiv(TARGET_CTAS, max(1, num_tokens * head_groups)), 16,"
      " max(1, floordiv(topk, 32)))");
  const Expr one = Expr::Constant(1);
  KernelSpec split;
  split.name = "split";
  split.entry = "split<BLOCK_H>";
  split.grid = {parse("nsplit"), parse("head_groups"), parse("num_tokens")};
  split.block = {Expr::Constant(128), one, one};
  split.cluster = {one, one, one};
  split.smem = parse("STAGES * 30000");
  ArgSpec q;
  q.kind = ArgSpec::Kind::kTensor;
  q.index = 0;
  q.dtype = DType::kF32;
  q.text = "q";
  split.args = {q};
  KernelSpec merge;
  merge.name = "merge";
  merge.entry = "merge";
  merge.grid = {parse("num_qo_heads"), parse("num_tokens"), one};
  merge.block = {Expr::Constant(32), one, one};
  merge.cluster = {one, one, one};
  merge.when = parse("nsplit > 1");
  plan.kernels = {split, merge};
  plan.constraints = {parse("topk <= 4096")};
  return variant;
}

// The null device loads anything made for it: the sentinel's binary, without a kernel behind it.
inline BinaryPtr NullSentinel() {
  auto binary = std::make_shared<Binary>();
  binary->key = FingerprintOf("null sentinel");
  binary->target = "null";
  binary->bytes = "nothing";
  binary->content = FingerprintOf(binary->bytes);
  BinaryKernel& kernel = binary->kernels.emplace_back();
  kernel.entry = kernel.symbol = "kvr_sentinel";
  return binary;
}

inline DeviceInfo Blackwell() {  // of the seed campaign
  DeviceInfo device;
  device.kind = "profile";
  device.name = "RTX PRO 6000 Blackwell";
  device.target = "sm_120a";
  device.sms = 188;
  device.max_threads_per_sm = 1536;
  device.max_blocks_per_sm = 24;
  device.smem_per_sm = 102400;
  device.smem_per_block = 101376;
  device.smem_reserved_per_block = 1024;
  device.memory_bandwidth = 1.6e12;
  return device;
}

inline AxisVector Shape(const OpSpec& op, const Axes& axes) {
  absl::StatusOr<AxisVector> resolved = ResolveAxes(op, axes);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return *resolved;
}

}  // namespace kvr::test
