// SPDX-License-Identifier: Apache-2.0
//
// A compiled plugin: a shared library that is read and checked as a file, and loaded when code of
// it is first needed.
//
// What is loaded is what was read: the file is read again, must have the same content, and a
// private, uniquely named copy of it is loaded and unlinked at once. So a library may be rebuilt or
// overwritten while it is loaded, and the same path read again gives the new code beside the old.
// Unloaded with the last reference. A load that fails, fails for the life of the object.
//
// Threading: immutable but for the load, which any number of threads may ask for.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/fingerprint.h"
#include "plugins/module.h"
#include "plugins/section.h"

namespace kvr {

inline constexpr int64_t kMaxLibraryBytes = 256 << 20;

class PluginLibrary {
 public:
  using CheckLoad = std::function<absl::Status(const std::string& path)>;

  // `path` has its symlinks resolved; trust as for bundles. `check_load` may be null; it is asked
  // before the load. Loads nothing. Errors name the file.
  static absl::StatusOr<std::shared_ptr<const PluginLibrary>> Read(const std::string& path,
                                                                   CheckLoad check_load);

  const std::string& path() const { return path_; }
  const Fingerprint& fingerprint() const { return fingerprint_; }  // of the whole file
  const bundle::PluginSection& section() const { return section_; }
  std::string Label() const;  // "plugin 'my-kernels' (/p/libx.so)"

  // The first call loads. The module lives as long as this object.
  absl::StatusOr<const PluginModule*> Load() const;

 private:
  PluginLibrary() = default;
  absl::StatusOr<std::unique_ptr<const PluginModule>> LoadNow() const;

  std::string path_;
  Fingerprint fingerprint_;
  bundle::PluginSection section_;
  CheckLoad check_load_;
  mutable std::once_flag once_;
  mutable absl::Status status_;
  mutable std::unique_ptr<const PluginModule> module_;
};

// Reads and loads the library and checks what it says of its code: for a process that may die of
// it.
absl::Status CheckPluginLoads(const std::string& path);

}  // namespace kvr
