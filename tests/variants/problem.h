// SPDX-License-Identifier: Apache-2.0
//
// The built-in plugins as they are loaded, and an operation's inputs in host memory, generated or
// written by hand, with its reference.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/install_layout.h"
#include "core/op.h"
#include "plugins/scan.h"

namespace kvr {

inline Scan ScanBuiltins() {
  const std::string root = InstallPath("lib/kvr/plugins");
  Scan scan = ScanPlugins({&root, 1});
  for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << ": " << r.status;
  return scan;
}

inline std::unique_ptr<Operation> BuiltinOperation(const std::string& name) {
  for (std::unique_ptr<Operation>& operation : ScanBuiltins().operations) {
    if (operation->spec().name == name) return std::move(operation);
  }
  ADD_FAILURE() << "no built-in operation " << name;
  return nullptr;
}

struct Problem {
  Problem(const Operation& op, const Axes& given) : operation(&op) {
    absl::StatusOr<AxisVector> resolved = ResolveAxes(op.spec(), given);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    axes = *resolved;
    inputs = TensorShapes(op.spec(), axes);
    inputs.resize(op.spec().inputs.size());
    for (TensorView& input : inputs) {
      memory.emplace_back(input.bytes() + 8);
      input.data = memory.back().data();
    }
  }

  Problem& Generate(uint64_t seed) {
    const absl::Status status = operation->Generate(axes, seed, inputs);
    EXPECT_TRUE(status.ok()) << status;
    return *this;
  }

  std::vector<ReferenceOutput> Reference(int threads = 1) const {
    absl::StatusOr<std::vector<ReferenceOutput>> outputs =
        operation->Reference(axes, inputs, threads);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return *std::move(outputs);
  }

  template <typename T>
  absl::Span<T> Input(int index) {
    return {static_cast<T*>(inputs[index].data), static_cast<size_t>(inputs[index].elements())};
  }

  const Operation* operation;
  AxisVector axes;
  std::vector<std::vector<char>> memory;
  std::vector<TensorView> inputs;
};

}  // namespace kvr
