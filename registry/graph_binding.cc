// SPDX-License-Identifier: Apache-2.0
#include "registry/graph_binding.h"

#include <utility>

#include "registry/captured_graph.h"

namespace kvr {

GraphBinding::GraphBinding(std::shared_ptr<CapturedGraph> graph) : graph_(std::move(graph)) {}
GraphBinding::GraphBinding(GraphBinding&&) noexcept = default;
GraphBinding& GraphBinding::operator=(GraphBinding&&) noexcept = default;
GraphBinding::~GraphBinding() = default;

absl::StatusOr<Applied> GraphBinding::Apply(GraphExec exec) { return graph_->Apply(exec); }

absl::StatusOr<Applied> GraphBinding::Apply(GraphExec exec, const Fingerprint& digest) {
  return graph_->Apply(exec, digest);
}

Fingerprint GraphBinding::digest(GraphExec exec) const { return graph_->digest(exec); }
void GraphBinding::Forget(GraphExec exec) { graph_->Forget(exec); }
int GraphBinding::launches() const { return graph_->launches(); }

}  // namespace kvr
