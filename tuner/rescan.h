// SPDX-License-Identifier: Apache-2.0
//
// One place of plugins read again beside a running catalog: a bundle that was edited, a compiled
// plugin that was rebuilt, or a directory of such. The catalog stays as it is; what the place
// brings are new variants of known operations, perhaps under names that the catalog has.
//
// A bundle extends what it names as a start of the process would find it: first in the place
// itself, then in `roots`, on disk. `still` is asked for each variant that one of the place extends
// from elsewhere: an error says that it is not what runs here. What runs here and extends one of
// the place is read again with it, from its own place: kFailedPrecondition of `still` says that it
// is no longer the same.
//
// Trust and every other check are those of plugins/scan.h. All or nothing: a rejected bundle of the
// place is an error. So is an operation that the catalog does not know: it takes a new process.
//
// Threading: reads the file system only. No code is loaded; that of a library is tried in
// kvr-worker when it is needed first (`check_load`).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/variant.h"
#include "registry/catalog.h"

namespace kvr {

struct RescanOptions {
  std::vector<std::string> roots;  // where else parents are looked for, in this order
  std::function<absl::Status(const Variant&)> still;                // null: whatever is there
  std::function<absl::Status(const std::string& path)> check_load;  // null: none
};

struct Rescanned {
  std::vector<VariantPtr> brought;   // by the place
  std::vector<VariantPtr> children;  // from elsewhere: they extend one of these, and have changed
};

// The directory or library that a variant came from.
std::string PlaceOf(const Variant& variant);

absl::StatusOr<Rescanned> RescanPlace(const std::string& place, const Catalog& catalog,
                                      const RescanOptions& options);

}  // namespace kvr
