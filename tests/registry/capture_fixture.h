// SPDX-License-Identifier: Apache-2.0
//
// Variants with as many kernels and clears as a test asks for, and what a captured graph of them
// does, node by node.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "registry/capture_scope.h"
#include "registry/dispatcher.h"
#include "registry/graph_binding.h"
#include "tests/registry/fakes.h"

namespace kvr {

struct Steps {
  std::string name;
  int kernels = 1;
  int clears = 0;
  int64_t workspace = 0;                          // bytes, beside what is cleared
  std::vector<LaunchAttributes> attributes = {};  // by kernel; plain where left out
  uint32_t cluster = 1;
  bool baseline = false;
  std::string constraint = {};
};

inline std::shared_ptr<Variant> StepsVariant(const Steps& steps) {
  std::shared_ptr<Variant> variant = AxpyVariant(steps.name, steps.baseline, steps.constraint);
  PlanProgram& plan = variant->plan;
  KernelSpec kernel = plan.kernels[0];
  kernel.args.erase(kernel.args.begin() + 4);  // the workspace
  kernel.cluster[0] = Expr::Constant(steps.cluster);
  kernel.grid[0] =
      *Expr::Parse("min(n, 8)", PlanProgram::Symbols(AxpyOp().spec(), variant->tunables, {}, {}));
  plan.kernels.clear();
  for (int i = 0; i < steps.kernels; ++i) {
    kernel.name = StrCat(steps.name, i);
    kernel.entry = StrCat(steps.name, i, "<BLOCK>");
    const auto at = static_cast<size_t>(i);
    kernel.attributes = at < steps.attributes.size() ? steps.attributes[at] : LaunchAttributes{};
    plan.kernels.push_back(kernel);
  }
  plan.regions.clear();
  for (int i = 0; i < steps.clears; ++i) {
    plan.regions.push_back({.name = StrCat("counts", i),
                            .dtype = DType::kI32,
                            .elements = Expr::Constant(8),
                            .zeroed = true});
  }
  if (steps.workspace > 0) {
    plan.regions.push_back(
        {.name = "scratch", .dtype = DType::kU8, .elements = Expr::Constant(steps.workspace)});
  }
  return variant;
}

inline World StepsWorld(const std::vector<Steps>& all) {
  std::vector<std::shared_ptr<Variant>> variants;
  for (const Steps& steps : all) variants.push_back(StepsVariant(steps));
  return World(std::move(variants));
}

// "clear one0 one1 -": what the next launch of `exec` does.
inline std::string NodesText(const NullDevice& device, GraphExec exec) {
  const absl::StatusOr<std::vector<NullNode>> nodes = device.NodesOf(exec);
  if (!nodes.ok()) return std::string(What(nodes.status()));
  std::vector<std::string> words;
  for (const NullNode& node : *nodes) {
    switch (node.kind) {
      case NullNode::Kind::kNothing:
        words.emplace_back("-");
        break;
      case NullNode::Kind::kFill:
        words.emplace_back("clear");
        break;
      case NullNode::Kind::kKernel:
        words.push_back(node.symbol.substr(2, node.symbol.find('<') - 2));
        break;
      case NullNode::Kind::kCall:
        words.emplace_back("call");
        break;
    }
  }
  return StrJoin(words, " ");
}

// A captured launch of axpy, or several, with its binding and executable.
struct Captured {
  std::unique_ptr<Graph> graph;
  std::unique_ptr<GraphBinding> binding;
  GraphExec exec() const { return graph->exec(); }
};

}  // namespace kvr
