// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/active.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "bench/kernels/suite.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::bench {
namespace {

struct Inputs {
  std::vector<TensorView> views;
  std::vector<std::unique_ptr<unsigned char[]>> storage;
};

absl::StatusOr<Inputs> Generated(const Operation& op, const AxisVector& axes, uint64_t seed) {
  Inputs inputs{.views = TensorShapes(op.spec(), axes), .storage = {}};
  inputs.views.resize(op.spec().inputs.size());
  for (TensorView& view : inputs.views) {
    const auto bytes = static_cast<size_t>(std::max<int64_t>(view.bytes(), 1));
    inputs.storage.push_back(std::make_unique<unsigned char[]>(bytes));
    view.data = inputs.storage.back().get();
  }
  KVR_RETURN_IF_ERROR(op.Generate(axes, seed, inputs.views));
  return inputs;
}

absl::StatusOr<int> TensorOf(const OpSpec& spec, std::string_view name) {
  const int index = spec.TensorIndex(name);
  if (index >= 0) return index;
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("operation ", spec.name, " has no tensor '", name, "'"),
               "count active experts of an operation that routes tokens as moe_decode does");
}

}  // namespace

int64_t DistinctExperts(absl::Span<const double> expert_ids) {
  std::set<double> distinct(expert_ids.begin(), expert_ids.end());
  distinct.erase(distinct.begin(), distinct.lower_bound(0));
  return static_cast<int64_t>(distinct.size());
}

absl::StatusOr<std::optional<int64_t>> ActiveExperts(const Operation& op, const Axes& axes,
                                                     uint64_t seed, const Candidate* candidate) {
  const OpSpec& spec = op.spec();
  const MoeOp* const moe = FindMoe(spec.name);
  if (moe == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("operation '", spec.name, "' has no experts that are known here"),
                 "count active experts of a moe operation");
  }
  Axes small = axes;
  for (const auto& [name, value] : moe->smallest) small[name] = value;
  for (const AxisSpec& axis : spec.axes) {
    if (axis.is_const) small.erase(axis.name);
  }
  KVR_ASSIGN_OR_RETURN(const AxisVector resolved, ResolveAxes(spec, small));
  KVR_ASSIGN_OR_RETURN(const int valid, TensorOf(spec, "num_valid_tokens"));
  KVR_ASSIGN_OR_RETURN(const int ids, TensorOf(spec, "expert_ids"));
  KVR_RETURN_IF_ERROR(op.Load());
  KVR_ASSIGN_OR_RETURN(const Inputs inputs, Generated(op, resolved, seed));
  if (*static_cast<const int32_t*>(inputs.views[valid].data) != axes.at(std::string(moe->tokens))) {
    return std::nullopt;
  }
  std::vector<ReferenceOutput> outputs;
  if (candidate != nullptr && candidate->variant->semantics == Semantics::kApproximate) {
    const Variant& variant = *candidate->variant;
    if (variant.code == nullptr) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("'", variant.name, "' is approximate and says nowhere what it computes"),
                   "give it a reference function");
    }
    KVR_RETURN_IF_ERROR(variant.code->Load());
    const std::vector<int64_t> tunables = variant.TunableValues(candidate->config);
    KVR_ASSIGN_OR_RETURN(outputs,
                         variant.code->Reference(resolved, tunables, inputs.views, /*threads=*/1));
  } else {
    KVR_ASSIGN_OR_RETURN(outputs, op.Reference(resolved, inputs.views, /*threads=*/1));
  }
  std::vector<double>& chosen = outputs[static_cast<size_t>(ids) - spec.inputs.size()].expected;
  if (const auto local = axes.find("num_local_experts"); local != axes.end()) {
    const int64_t first = axes.at("local_expert_offset"), end = first + local->second;
    std::erase_if(chosen, [&](double id) {
      return id < static_cast<double>(first) || id >= static_cast<double>(end);
    });
  }
  return DistinctExperts(chosen);
}

absl::StatusOr<TypicalSeeds> FindTypicalSeeds(
    uint64_t first, int wanted, int draws,
    const std::function<absl::StatusOr<std::optional<int64_t>>(uint64_t seed)>& count) {
  constexpr int kMostSeeds = 1000;
  std::vector<std::pair<uint64_t, int64_t>> found;
  TypicalSeeds typical;
  for (int i = 0; i < kMostSeeds; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    KVR_ASSIGN_OR_RETURN(const std::optional<int64_t> active, count(seed));
    if (!active.has_value()) continue;
    found.emplace_back(seed, *active);
    if (static_cast<int>(found.size()) < draws) continue;
    if (static_cast<int>(found.size()) == draws) {
      std::vector<int64_t> counts;
      for (const auto& each : found) counts.push_back(each.second);
      std::nth_element(counts.begin(), counts.begin() + draws / 2, counts.end());
      typical.active = counts[static_cast<size_t>(draws) / 2];
    }
    typical.seeds.clear();
    for (const auto& [drawn, experts] : found) {
      if (experts == typical.active) typical.seeds.push_back(drawn);
    }
    if (static_cast<int>(typical.seeds.size()) < wanted) continue;
    typical.seeds.resize(static_cast<size_t>(wanted));
    return typical;
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("of ", kMostSeeds, " input sets only ", typical.seeds.size(), " activate ",
                      typical.active, " experts"),
               StrCat("ask for fewer than ", wanted, " input sets"));
}

}  // namespace kvr::bench
