// SPDX-License-Identifier: Apache-2.0
//
// The journal of publications in the ledger: a row each, failures too, beside the verdicts that
// they rest on.
//
//   axes             empty: it is of a generation, not of one tuned key
//   op               where all changes are of one; else empty
//   variant, config  what serves now, where that is one; else empty
//   outcome          "published", "kept" (it served already) or "failed"
//   reason           a line why, then a line a change, then who asked
//
// Threading: as registry/publication.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/device_info.h"
#include "registry/publication.h"

namespace kvr {

// `directory`: as ledger::Ledger::Open takes it. `compiler`: Jit::Identity of the device's target.
absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationLedger(const std::string& directory,
                                                                       const DeviceInfo& device,
                                                                       std::string compiler);

}  // namespace kvr
