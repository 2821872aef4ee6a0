// SPDX-License-Identifier: Apache-2.0
//
// Winners into a selection file. Several processes may tune into one file: each publication takes
// a lock beside it (PATH.lock), reads what is there now, adds its key and replaces the file, so
// nobody's key is lost. Where the file system has no locks the last writer's whole file stands.
//
// Threading: any thread, any process.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/device_info.h"
#include "core/key_policy.h"
#include "registry/catalog.h"
#include "registry/generation.h"

namespace kvr {

// The generation in `path`; null if there is no such file.
absl::StatusOr<GenerationPtr> ReadIncumbents(const std::string& path, const Catalog& catalog,
                                             const DeviceInfo& device);

// Returns the generation written.
absl::StatusOr<GenerationPtr> PublishSelection(const std::string& path, const Catalog& catalog,
                                               const DeviceInfo& device, const std::string& op,
                                               const KeyPolicy& policy, const BucketedKey& key,
                                               Selection selection);

}  // namespace kvr
