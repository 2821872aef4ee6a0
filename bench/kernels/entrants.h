// SPDX-License-Identifier: Apache-2.0
//
// Who is measured at a shape, and with which configs: every exact variant of the operation, or
// those that were named, and each approximate one that was opted in, by its config's text.
//
//   race        all configs of each: the tuner's race at the shape chooses
//   selections  what selection files (kvr tune) have for the shape's key; a variant that they do
//               not name runs its default config
//   neither     default configs
//
// Threading: values and pure functions, but for reading the files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/kernels/meter.h"
#include "core/device_info.h"
#include "registry/catalog.h"
#include "registry/selection_content.h"

namespace kvr::bench {

struct EntrantOptions {
  std::vector<std::string> variants;  // empty: all exact ones
  // Opt-ins (registry/opt_in.h), "oea{K0=4,...}": a variant may be measured with several qualities.
  std::vector<std::string> approximate;
  bool race = false;
  std::vector<std::string> selection_files;  // of several that know a key, the first counts
};

class EntrantList {
 public:
  // Errors: unknown variants; an approximate one whose quality is not stated; files that cannot be
  // read or are of another device.
  static absl::StatusOr<EntrantList> Create(const Catalog& catalog, const Catalog::Op& op,
                                            const DeviceInfo& device,
                                            const EntrantOptions& options);

  // Errors: what an opt-in states can be at none of the shapes.
  absl::Status CheckStated(const std::vector<AxisVector>& shapes) const;

  struct AtShape {
    std::vector<Entrant> entrants;
    int selected = -1;  // by a selection file; -1: none knows the shape's key
  };
  absl::StatusOr<AtShape> At(const Axes& axes) const;

 private:
  struct Named {
    VariantPtr variant;
    Config fixed;  // quality tunables
  };
  explicit EntrantList(const Catalog::Op& op) : op_(&op) {}
  const Catalog::Op* op_;
  bool race_ = false;
  std::vector<Named> named_;
  std::vector<SelectionContent::Op> selections_;
};

}  // namespace kvr::bench
