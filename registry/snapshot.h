// SPDX-License-Identifier: Apache-2.0
//
// What a launch reads: everything that is loaded, as one immutable value behind one pointer.
// Parts that a publication does not change are shared with the snapshot before.
//
// Threading: immutable once published; read under an EpochGuard.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/key_policy.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/key_table.h"
#include "registry/prepared.h"
#include "registry/tensor_reader.h"
#include "registry/workspace.h"

namespace kvr {

struct ServedKey {
  PreparedPtr prepared;
  bool missed = false;  // the baseline, for lack of a selection: counted at every launch
  bool overridden = false;
  std::string why;  // as LoadItem::why
};

struct OpTable {
  explicit OpTable(const Catalog::Op& of) : OpTable(of, of.policy) {}
  OpTable(const Catalog::Op& of, const KeyPolicy& by)
      : op(&of), policy(by), names(std::make_shared<const KeyPolicy>(by)), reader(of.spec()) {}

  // After the last change of `keys`, before anyone launches.
  void Index() {
    index = KeyTable(keys.size(), policy.axis_count());
    for (const auto& [key, served] : keys) {
      index.Insert(key, served.prepared.get(), served.missed);
    }
  }

  const Catalog::Op* op;
  KeyPolicy policy;  // the generation's, else the op's
  // The same, for whoever names keys when the table and its binaries may be gone.
  std::shared_ptr<const KeyPolicy> names;

  // What a launch reads: axes from tensors, their key's answer, the answer's plan. No shape is
  // remembered: evaluating a plan costs less than the cache misses of looking one up.
  TensorReader reader;
  KeyTable index;

  absl::flat_hash_map<BucketedKey, ServedKey> keys;
  std::set<AxisVector> shapes;  // loaded: what the next generation prepares as well
  PreparedPtr baseline;         // null: not loaded, or it does not run here
  // Keys whose last load failed, and why. Policy `jit` does not try them again: the next explicit
  // Load or generation does.
  absl::flat_hash_map<BucketedKey, absl::Status> failed;
};

struct Snapshot {
  uint64_t version = 0;  // unlike that of any other snapshot in the process
  GenerationPtr generation;
  std::vector<std::shared_ptr<const OpTable>> ops;  // by Catalog::Op::index
  std::shared_ptr<const Streams> streams;
};

}  // namespace kvr
