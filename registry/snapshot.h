// SPDX-License-Identifier: Apache-2.0
//
// What a launch reads: everything that is loaded, as one immutable value behind one pointer.
// Parts that a publication does not change are shared with the snapshot before.
//
// Threading: immutable once published; read under an EpochGuard.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "core/key_policy.h"
#include "core/plan.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/prepared.h"
#include "registry/workspace.h"

namespace kvr {

// Multilinear over all axes: the products are independent, so a lookup costs a few nanoseconds
// whatever the rank. Constants: odd, from the digits of the golden ratio, one an axis.
inline size_t HashShape(const AxisVector& axes) {
  uint64_t sum = 0x9e3779b97f4a7c15u;
  uint64_t factor = 0xbf58476d1ce4e5b9u;
  for (int64_t axis : axes) {
    sum += static_cast<uint64_t>(axis) * factor;
    factor += 0x9e3779b97f4a7c16u;  // even: factors stay odd
  }
  // The table looks at the low bits, where a product shows little of its factor's high ones.
  sum ^= sum >> 32;
  sum *= 0xd6e8feb86659fd93u;
  return sum ^ (sum >> 32);
}

// The baseline serves it for lack of a selection that fits: counted at every launch.
struct ServedKey {
  PreparedPtr prepared;
  bool missed = false;
};

// One loaded shape and its plan, kept small and together: a server may load thousands, and a launch
// should touch few cache lines of them. The axes are the key: the table itself holds pointers.
struct ServedShape {
  ServedShape(const AxisVector& shape, PreparedPtr serves, const LaunchPlan& made, bool miss)
      : axes(shape),
        prepared(std::move(serves)),
        missed(miss),
        workspace_bytes(made.workspace_bytes),
        region_offset(made.region_offset),
        region_bytes(made.region_bytes),
        kernels(made.launches().begin(), made.launches().end()),
        tensor_maps(made.tensor_maps.begin(),
                    made.tensor_maps.begin() + prepared->variant().plan.tensor_maps.size()) {}

  PlanView plan() const {
    PlanView view;
    view.kernels = kernels;
    view.workspace_bytes = workspace_bytes;
    view.region_offset = region_offset.data();
    view.region_bytes = region_bytes.data();
    view.tensor_maps = tensor_maps.data();
    return view;
  }

  AxisVector axes;
  PreparedPtr prepared;
  bool missed;
  int64_t workspace_bytes;
  std::array<int64_t, kMaxRegions> region_offset, region_bytes;
  absl::InlinedVector<KernelLaunch, 2> kernels;
  std::vector<TensorMapLaunch> tensor_maps;
};
using ServedShapePtr = std::shared_ptr<const ServedShape>;

struct ShapeHash {
  using is_transparent = void;
  size_t operator()(const AxisVector& axes) const { return HashShape(axes); }
  size_t operator()(const ServedShapePtr& shape) const { return HashShape(shape->axes); }
};
struct ShapeEqual {
  using is_transparent = void;
  static const AxisVector& Axes(const AxisVector& axes) { return axes; }
  static const AxisVector& Axes(const ServedShapePtr& shape) { return shape->axes; }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return Axes(a) == Axes(b);
  }
};

struct OpTable {
  const Catalog::Op* op = nullptr;
  KeyPolicy policy;  // the generation's, else the op's
  absl::flat_hash_map<BucketedKey, ServedKey> keys;
  absl::flat_hash_set<ServedShapePtr, ShapeHash, ShapeEqual> shapes;
  PreparedPtr baseline;  // null: not loaded, or it does not run here
  // Keys whose last load failed, and why. Policy `jit` does not try them again: the next explicit
  // Load or generation does.
  absl::flat_hash_map<BucketedKey, absl::Status> failed;
};

struct Snapshot {
  uint64_t version = 0;
  GenerationPtr generation;
  std::vector<std::shared_ptr<const OpTable>> ops;  // by Catalog::Op::index
  std::shared_ptr<const Streams> streams;
};

}  // namespace kvr
