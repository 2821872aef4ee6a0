// SPDX-License-Identifier: Apache-2.0
//
// What exists: the operations, the variants admitted for each, and what was refused with the
// reason. Says nothing about which is selected (registry/generation.h).
//
//   Scan scan = ScanPlugins(roots);
//   KVR_ASSIGN_OR_RETURN(Catalog catalog, Catalog::Create(std::move(scan.operations)));
//   catalog.Add(std::move(scan));
//   KVR_ASSIGN_OR_RETURN(VariantPtr w8, catalog.Find("mla_sparse_decode", "w8"));
//
// Threading: filled by one thread (Create, Add, Admit, Reject), then only read, by any number.
// Ownership: owns the operations; they and their specs live as long as the catalog, at fixed
// addresses (moving the catalog keeps them).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/key_policy.h"
#include "core/op.h"
#include "core/variant.h"
#include "plugins/scan.h"

namespace kvr {

class Catalog {
 public:
  struct Op {
    std::unique_ptr<Operation> operation;
    KeyPolicy policy;                  // the op's default
    std::vector<VariantPtr> variants;  // admitted: the baseline first, then by name
    VariantPtr baseline;               // null until its bundle is admitted
    int index = 0;                     // position in ops(): a dense handle

    const OpSpec& spec() const { return operation->spec(); }
    const std::string& name() const { return spec().name; }
  };

  // Errors: two operations of one name; an op whose default key policy does not parse.
  static absl::StatusOr<Catalog> Create(std::vector<std::unique_ptr<Operation>> operations);

  // Admits every variant of the scan; what cannot be admitted joins rejections().
  void Add(Scan scan);
  // Refused: unknown op, a name taken (the first one stays), a second baseline, an approximate
  // baseline, a key policy that does not parse. The refusal is returned, not recorded.
  absl::Status Admit(VariantPtr variant);
  void Reject(Rejection rejection) { rejections_.push_back(std::move(rejection)); }

  absl::Span<const std::unique_ptr<Op>> ops() const { return ops_; }
  std::vector<const OpSpec*> specs() const;
  const std::vector<Rejection>& rejections() const { return rejections_; }

  // An unknown name is kNotFound; the message names the nearest and lists the others.
  absl::StatusOr<const Op*> FindOp(std::string_view op) const;
  absl::StatusOr<VariantPtr> Find(std::string_view op, std::string_view variant) const;
  // kFailedPrecondition when the op has none: nothing may be launched then.
  absl::StatusOr<VariantPtr> Baseline(std::string_view op) const;
  // The variant's own key policy, else the op's.
  absl::StatusOr<KeyPolicy> PolicyOf(const Variant& variant) const;

 private:
  Catalog() = default;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Rejection> rejections_;
};

}  // namespace kvr
