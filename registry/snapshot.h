// SPDX-License-Identifier: Apache-2.0
//
// What a launch reads: everything that is loaded, as one immutable value behind one pointer.
// Parts that a publication does not change are shared with the snapshot before.
//
// Threading: immutable once published; read under an EpochGuard.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/key_policy.h"
#include "core/plan.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/prepared.h"
#include "registry/workspace.h"

namespace kvr {

// Multilinear over all axes: the products are independent, so a lookup costs a few nanoseconds
// whatever the rank. Constants: odd, from the digits of the golden ratio, one an axis.
struct ShapeHash {
  size_t operator()(const AxisVector& axes) const {
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
};

// The baseline serves it for lack of a selection that fits: counted at every launch.
struct ServedKey {
  PreparedPtr prepared;
  bool missed = false;
};

struct ServedShape {
  PreparedPtr prepared;
  LaunchPlan plan;
  bool missed = false;
};

struct OpTable {
  const Catalog::Op* op = nullptr;
  KeyPolicy policy;  // the generation's, else the op's
  absl::flat_hash_map<BucketedKey, ServedKey> keys;
  absl::flat_hash_map<AxisVector, std::shared_ptr<const ServedShape>, ShapeHash> shapes;
  PreparedPtr baseline;  // null: not loaded, or it does not run here
};

struct Snapshot {
  uint64_t version = 0;
  GenerationPtr generation;
  std::vector<std::shared_ptr<const OpTable>> ops;  // by Catalog::Op::index
  std::shared_ptr<const Streams> streams;
};

}  // namespace kvr
