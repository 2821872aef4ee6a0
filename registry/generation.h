// SPDX-License-Identifier: Apache-2.0
//
// A generation: one immutable snapshot of all selections of one device model, with its digest.
// Generation 0 of a process is empty: every key is served by the op's baseline.
//
//   GenerationBuilder builder(device.info().model, device.info().target);
//   builder.SetPolicy("mla_sparse_decode", policy);
//   KVR_RETURN_IF_ERROR(builder.Select("mla_sparse_decode", key, selection));
//   GenerationPtr next = builder.Build(current.number() + 1);
//
// Digest: what is selected, not how it was found: device model, target, and per op (by name) the
// key policy and per key the variant, its version and fingerprint, the config by value and the
// binary. Evidence, the generation's number and the order of insertion do not enter, so ranks that
// agree on what runs agree on the digest.
//
// Threading: a Generation is immutable and shared; a builder belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/config.h"
#include "core/fingerprint.h"
#include "core/key_policy.h"
#include "core/variant.h"

namespace kvr {

struct Evidence {
  double median_us = 0;  // of the winner, at the bucket's representative
  int tried = 0;         // configs measured for this key
  std::string device;    // name of the device it was measured on
  std::string date;      // RFC 3339, UTC

  // How it won its place; empty and 0 where a file does not say.
  // "WIN", "EQUIVALENT", ...; "BASELINE": nothing beat it; "KEPT": it was selected under another
  // key policy, and nothing beat it.
  std::string verdict;
  std::string kind;       // "quick", "ship"
  std::string incumbent;  // what it was compared with: "w8 {BLOCK_H=16}"
  double gain_low = 0,
         gain_high = 0;  // interval of ln(its time / the incumbent's): below 0, faster
  bool operator==(const Evidence&) const = default;
};

struct Selection {
  VariantPtr variant;
  Config config;       // every tunable, by value
  Fingerprint binary;  // Binary::key of what was measured; all zero: not built yet
  Evidence evidence;
  bool overridden = false;  // --set, KVR_FORCE_… or KVR_<OP>_… decided it: never stored
};

class Generation {
 public:
  struct Op {
    KeyPolicy policy;
    absl::flat_hash_map<BucketedKey, Selection> selections;
  };

  int64_t number() const { return number_; }
  const Fingerprint& digest() const { return digest_; }
  const std::string& device_model() const { return device_model_; }
  const std::string& target() const { return target_; }
  const std::map<std::string, Op, std::less<>>& ops() const { return ops_; }

  const Op* FindOp(std::string_view op) const;  // null: it says nothing about this op
  const Selection* Find(std::string_view op, const BucketedKey& key) const;  // null: no selection

 private:
  friend class GenerationBuilder;
  Generation() = default;
  int64_t number_ = 0;
  Fingerprint digest_;
  std::string device_model_, target_;
  std::map<std::string, Op, std::less<>> ops_;
};

using GenerationPtr = std::shared_ptr<const Generation>;

class GenerationBuilder {
 public:
  GenerationBuilder(std::string device_model, std::string target);
  // Starts from what `base` selects, to replace some of it.
  explicit GenerationBuilder(const Generation& base);

  // The policy this generation keys `op` by. A different one than before drops the op's selections:
  // keys of two policies do not mix.
  void SetPolicy(std::string_view op, KeyPolicy policy);

  // Last one wins. Refused: an overridden selection; a policy not set; a config that does not fit
  // the variant; a variant of another op; a variant that does not support the target.
  absl::Status Select(std::string_view op, const BucketedKey& key, Selection selection);
  void Remove(std::string_view op, const BucketedKey& key);

  GenerationPtr Build(int64_t number) const;

 private:
  Generation generation_;
};

// The selections of one op in a stable order: by key.
std::vector<std::pair<BucketedKey, const Selection*>> Sorted(const Generation::Op& op);

}  // namespace kvr
