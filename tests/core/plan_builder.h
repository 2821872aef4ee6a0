// SPDX-License-Identifier: Apache-2.0
//
// A PlanProgram from texts, as a bundle reader builds it from a manifest. What it evaluates is
// compared with its fast form.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "tests/core/plan_agreement.h"

namespace kvr {

class PlanBuilder {
 public:
  PlanBuilder(OpSpec spec, std::vector<Tunable> variant_tunables)
      : op(std::move(spec)), tunables(std::move(variant_tunables)) {
    program.axis_count = static_cast<int>(op.axes.size());
    program.tunable_count = static_cast<int>(tunables.size());
  }

  Expr Parse(const std::string& text) const {
    absl::StatusOr<Expr> expr =
        Expr::Parse(text, PlanProgram::Symbols(op, tunables, {}, program.lets));
    EXPECT_TRUE(expr.ok()) << expr.status();
    return expr.ok() ? *expr : Expr();
  }

  PlanBuilder& Let(const std::string& name, const std::string& text) {
    Expr value = Parse(text);
    program.lets.push_back({name, value});
    return *this;
  }

  PlanBuilder& Constraint(const std::string& text) {
    program.constraints.push_back(Parse(text));
    return *this;
  }

  PlanBuilder& Region(const std::string& name, DType dtype, const std::string& elements) {
    program.regions.push_back({name, dtype, Parse(elements), false});
    return *this;
  }

  // The kernel is program.kernels.back(), for what is not given here.
  KernelSpec& Kernel(const std::string& name, const std::vector<std::string>& grid,
                     const std::vector<std::string>& block, const std::string& smem = "0") {
    KernelSpec kernel;
    kernel.name = name;
    for (size_t i = 0; i < grid.size(); ++i) kernel.grid[i] = Parse(grid[i]);
    for (size_t i = 0; i < block.size(); ++i) kernel.block[i] = Parse(block[i]);
    kernel.smem = Parse(smem);
    kernel.file = "variant.toml";
    kernel.line = 30;
    program.kernels.push_back(std::move(kernel));
    return program.kernels.back();
  }

  static ArgSpec ValueArg(DType dtype, Expr value) {
    ArgSpec arg;
    arg.kind = ArgSpec::Kind::kValue;
    arg.dtype = dtype;
    arg.text = (dtype == DType::kI32 ? "i32(" : "i64(") + value.text() + ")";
    arg.value = std::move(value);
    return arg;
  }

  // At the op's defaults but for `axes`, and the tunables' defaults but for `config`.
  absl::Status Evaluate(const Axes& axes, const Config& config, const DeviceInfo& device,
                        LaunchPlan* plan) const {
    std::vector<int64_t> values;
    for (const Tunable& tunable : tunables) {
      auto found = config.find(tunable.name);
      values.push_back(found != config.end() ? found->second : tunable.default_value);
    }
    absl::StatusOr<AxisVector> resolved = ResolveAxes(op, axes);
    if (!resolved.ok()) return resolved.status();
    const absl::Status status = program.Evaluate(*resolved, values, device, plan);
    ExpectAgreement(program, op, values, *resolved, device, status, *plan);
    return status;
  }

  OpSpec op;
  std::vector<Tunable> tunables;
  PlanProgram program;
};

}  // namespace kvr
