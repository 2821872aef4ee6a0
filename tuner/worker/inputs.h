// SPDX-License-Identifier: Apache-2.0
//
// Input sets on the host, with their references: drawn and computed once per (op, axes, seed), kept
// until another op or other axes are asked for. So are the own references of approximate variants,
// once per set, variant and values of its quality tunables. All of it on all cores.
//
// A model's experts are gigabytes, and memory that was never touched takes longer than drawing
// numbers into it: large tensors of the op's next shape lie where those of its last one lay.
//
// Threading: one thread. Ownership: sets are immutable and shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"
#include "core/tensor.h"
#include "core/variant.h"

namespace kvr {

// Of one tensor.
class InputMemory {
 public:
  // To `size` bytes or more, of any contents; memory that grows keeps the pages that it has. False:
  // there is no more.
  bool Reserve(size_t size);
  unsigned char* get() const { return bytes_.get(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(unsigned char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<unsigned char, Free> bytes_;
  size_t capacity_ = 0;
};

struct InputSet {
  uint64_t seed = 0;
  std::vector<TensorView> inputs;  // host memory below; rank-0 ones too
  std::vector<ReferenceOutput> reference;
  std::vector<InputMemory> storage;
};
using InputSetPtr = std::shared_ptr<const InputSet>;

// What an approximate variant is held to on one input set; null: the set's own, the operation's.
using OwnReference = std::shared_ptr<const std::vector<ReferenceOutput>>;

class InputSets {
 public:
  // `doing`, if there is one, is told what comes next: "generating inputs of operation x".
  explicit InputSets(int threads, std::function<void(const std::string&)> doing = nullptr)
      : threads_(threads), doing_(std::move(doing)) {}
  absl::StatusOr<InputSetPtr> Get(const Operation& op, const AxisVector& axes, uint64_t seed);
  // Null of an exact variant. `set` is one of Get's last op and axes. Runs the variant's code: the
  // caller says so beforehand.
  absl::StatusOr<OwnReference> Own(const InputSet& set, const Variant& variant,
                                   const Config& config);

 private:
  void Say(std::string_view what, const Operation& op) const;
  void Forget(bool same_op);
  absl::StatusOr<InputMemory> Zeros(size_t size);
  const int threads_;
  const std::function<void(const std::string&)> doing_;
  std::string op_;
  AxisVector axes_{};
  std::vector<std::shared_ptr<InputSet>> sets_;
  std::vector<InputMemory> spare_;           // of sets that nobody has
  std::map<std::string, OwnReference> own_;  // by seed, variant and its quality
};

}  // namespace kvr
