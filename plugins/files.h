// SPDX-License-Identifier: Apache-2.0
//
// Reading the files of a bundle: only what lies inside it, only what nobody untrusted can change,
// only whole UTF-8 text of bounded size.
//
// Threading: const after Open; every call reads the disk afresh.
// Errors say what is wrong with the file; the caller adds the place that named it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvr::bundle {

inline constexpr int64_t kMaxManifestBytes = 64 << 10;
inline constexpr int64_t kMaxSourceBytes = 1 << 20;
inline constexpr int64_t kMaxBundleBytes = 8 << 20;
inline constexpr int kMaxBundleFiles = 64;

// A file name as a manifest may state it: relative, no "..", portable characters.
absl::Status CheckFileName(std::string_view name);

// Valid UTF-8 without NUL; the error gives the line.
absl::Status CheckText(std::string_view content);

class BundleDirectory {
 public:
  // Resolves symlinks in `path` itself, then checks who may write it.
  static absl::StatusOr<BundleDirectory> Open(const std::string& path);

  const std::string& path() const { return path_; }  // absolute, no symlinks
  std::string FilePath(std::string_view name) const;

  // `name` has passed CheckFileName. A symlink is followed only within the bundle.
  absl::StatusOr<std::string> Read(std::string_view name, int64_t max_bytes) const;

 private:
  explicit BundleDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace kvr::bundle
