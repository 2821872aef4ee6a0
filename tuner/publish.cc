// SPDX-License-Identifier: Apache-2.0
#include "tuner/publish.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "core/status.h"
#include "core/strings.h"
#include "registry/selection_file.h"

namespace kvr {
namespace {

// Held while it lives; best-effort.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) return;
    for (int i = 0; i < 100 && flock(fd_, LOCK_EX | LOCK_NB) != 0; ++i) usleep(50'000);
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<GenerationPtr> ReadIncumbents(const std::string& path, const Catalog& catalog,
                                             const DeviceInfo& device) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return GenerationPtr();
  KVR_ASSIGN_OR_RETURN(LoadedSelections loaded, ReadSelectionFile(path, catalog, device));
  return loaded.generation;
}

absl::StatusOr<GenerationPtr> PublishSelection(const std::string& path, const Catalog& catalog,
                                               const DeviceInfo& device, const std::string& op,
                                               const KeyPolicy& policy, const BucketedKey& key,
                                               Selection selection) {
  const FileLock lock(StrCat(path, ".lock"));
  KVR_ASSIGN_OR_RETURN(const GenerationPtr base, ReadIncumbents(path, catalog, device));
  GenerationBuilder builder =
      base == nullptr ? GenerationBuilder(device.model, device.target) : GenerationBuilder(*base);
  builder.SetPolicy(op, policy);
  KVR_RETURN_IF_ERROR(builder.Select(op, key, std::move(selection)));
  GenerationPtr next = builder.Build(base == nullptr ? 1 : base->number() + 1);
  KVR_RETURN_IF_ERROR(WriteSelectionFile(*next, path));
  return next;
}

}  // namespace kvr
