// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "jit/cache.h"
#include "tuner/worker/client.h"

namespace kvr {

absl::StatusOr<std::unique_ptr<BinaryFiles>> BinaryFiles::Create() {
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) base = "/tmp";
  std::string pattern = (base / "kvr-binaries-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    return Error(absl::StatusCode::kUnavailable,
                 absl::StrCat("cannot make a directory in ", base.string(), ": ", strerror(errno)),
                 "point TMPDIR at a directory that can be written");
  }
  return std::unique_ptr<BinaryFiles>(new BinaryFiles(std::move(pattern)));
}

BinaryFiles::~BinaryFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::StatusOr<std::string> BinaryFiles::Add(const Binary& binary) {
  std::string path = absl::StrCat(directory_, "/", binary.key.Hex());
  if (std::filesystem::exists(path)) return path;
  const std::string entry = EncodeEntry(binary, "");
  std::ofstream file(path, std::ios::binary);
  file.write(entry.data(), static_cast<std::streamsize>(entry.size()));
  file.close();
  if (!file.good()) {
    return Error(absl::StatusCode::kResourceExhausted, absl::StrCat("cannot write ", path),
                 "free space there, or point TMPDIR elsewhere");
  }
  return path;
}

}  // namespace kvr
