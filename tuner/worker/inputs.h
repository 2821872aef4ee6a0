// SPDX-License-Identifier: Apache-2.0
//
// Input sets on the host, with their references: drawn and computed once per (op, axes, seed), kept
// until another op or other axes are asked for. The reference is what takes time: all cores.
//
// Threading: one thread. Ownership: sets are immutable and shared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"
#include "core/tensor.h"

namespace kvr {

struct InputSet {
  uint64_t seed = 0;
  std::vector<TensorView> inputs;  // host memory below; rank-0 ones too
  std::vector<ReferenceOutput> reference;
  std::vector<std::unique_ptr<unsigned char[]>> storage;
};
using InputSetPtr = std::shared_ptr<const InputSet>;

class InputSets {
 public:
  // `doing`, if there is one, is told what comes next: "generating inputs of operation x".
  explicit InputSets(int threads, std::function<void(const std::string&)> doing = nullptr)
      : threads_(threads), doing_(std::move(doing)) {}
  absl::StatusOr<InputSetPtr> Get(const Operation& op, const AxisVector& axes, uint64_t seed);

 private:
  void Say(std::string_view what, const Operation& op) const;
  const int threads_;
  const std::function<void(const std::string&)> doing_;
  std::string op_;
  AxisVector axes_{};
  std::vector<InputSetPtr> sets_;
};

}  // namespace kvr
