// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "jit/cache.h"
#include "tuner/worker/client.h"

namespace kvr {

absl::StatusOr<std::unique_ptr<BinaryFiles>> BinaryFiles::Create() {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<ScratchDirectory> directory,
                       ScratchDirectory::Create("binaries"));
  return std::unique_ptr<BinaryFiles>(new BinaryFiles(std::move(directory)));
}

absl::StatusOr<std::string> BinaryFiles::Add(const Binary& binary) {
  std::string path = absl::StrCat(directory_->path(), "/", binary.key.Hex());
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
