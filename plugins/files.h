// SPDX-License-Identifier: Apache-2.0
//
// The files of a bundle, in a directory or in a compiled plugin: only what lies inside it, only
// what nobody untrusted can change, only whole files of bounded size.
//
// Threading: const after construction; a directory is read afresh by every call.
// Errors say what is wrong with the file; the caller adds the place that named it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvr::bundle {

inline constexpr std::string_view kManifestName = "variant.toml";
inline constexpr std::string_view kDefinitionName = "definition.json";

inline constexpr int64_t kMaxManifestBytes = 64 << 10;
inline constexpr int64_t kMaxSourceBytes = 1 << 20;
inline constexpr int64_t kMaxCubinBytes = 16 << 20;
inline constexpr int64_t kMaxBundleBytes = 32 << 20;
inline constexpr int kMaxBundleFiles = 64;

// A file name as a manifest may state it: relative, no "..", portable characters.
absl::Status CheckFileName(std::string_view name);

// Valid UTF-8 without NUL; the error gives the line.
absl::Status CheckText(std::string_view content);

// A regular file that belongs to root, to this user or to the executable's owner and that nobody
// else may write. `path` has its symlinks resolved.
absl::StatusOr<std::string> ReadTrustedFile(const std::string& path, int64_t max_bytes);

class BundleFiles {
 public:
  virtual ~BundleFiles() = default;

  // What errors call the bundle and a file of it: "/b/w8" and "/b/w8/variant.toml", or
  // "/p/libx.so:w8" and "/p/libx.so:w8/variant.toml".
  const std::string& path() const { return path_; }
  std::string FilePath(std::string_view name) const;

  // `name` has passed CheckFileName. ReadText also checks that it is text.
  virtual absl::StatusOr<std::string> Read(std::string_view name, int64_t max_bytes) const = 0;
  absl::StatusOr<std::string> ReadText(std::string_view name, int64_t max_bytes) const;

 protected:
  explicit BundleFiles(std::string path) : path_(std::move(path)) {}

 private:
  std::string path_;
};

// On disk. A symlink is followed only within the bundle.
class BundleDirectory final : public BundleFiles {
 public:
  // Resolves symlinks in `path` itself, then checks who may write it.
  static absl::StatusOr<BundleDirectory> Open(const std::string& path);
  absl::StatusOr<std::string> Read(std::string_view name, int64_t max_bytes) const override;

 private:
  explicit BundleDirectory(std::string path) : BundleFiles(std::move(path)) {}
};

// In a compiled plugin, whose trust is the library's.
class EmbeddedBundle final : public BundleFiles {
 public:
  using Files = std::map<std::string, std::string, std::less<>>;
  // `files` are the plugin's, and outlive this; `directory` is the bundle's among them, or "".
  EmbeddedBundle(std::string_view library, std::string_view directory, const Files& files);
  absl::StatusOr<std::string> Read(std::string_view name, int64_t max_bytes) const override;

 private:
  std::string directory_;
  const Files& files_;
};

}  // namespace kvr::bundle
