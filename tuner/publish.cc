// SPDX-License-Identifier: Apache-2.0
#include "tuner/publish.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// Held while it lives.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  absl::Status Take(const std::string& path, double timeout_s) {
    const auto failed = [&](std::string_view why) {
      return Error(absl::StatusCode::kUnavailable, StrCat("cannot lock ", path, ": ", why),
                   "wait for the other tune, or name another selection file in a directory that "
                   "you may write");
    };
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) return failed(std::strerror(errno));
    const absl::Time deadline = absl::Now() + absl::Seconds(timeout_s);
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) break;  // no locks here
      if (errno != EWOULDBLOCK && errno != EINTR) return failed(std::strerror(errno));
      if (absl::Now() >= deadline) return failed("another process holds it");
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::OkStatus();
  }

 private:
  int fd_ = -1;
};

}  // namespace

absl::StatusOr<LoadedSelections> ReadIncumbents(const std::string& path, const Catalog& catalog,
                                                const DeviceInfo& device) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return LoadedSelections();
  return ReadSelectionFile(path, catalog, device);
}

std::string LostBy(const Publication& publication, absl::Span<const DroppedSelection> dropped) {
  std::string lost;
  for (const DroppedSelection& selection : dropped) {
    const auto is_its = [&](const BucketedKey& key) {
      return selection.op == publication.op && selection.key == publication.policy.Named(key);
    };
    if (is_its(publication.key) ||
        std::any_of(publication.retuned.begin(), publication.retuned.end(), is_its)) {
      continue;
    }
    lost += StrCat(lost.empty() ? "" : "; ", selection.op, " {", AxesText(selection.key),
                   "}: ", selection.variant, ", because ", selection.reason);
  }
  return lost;
}

absl::StatusOr<GenerationPtr> PublishSelection(const std::string& path, const Catalog& catalog,
                                               const DeviceInfo& device, Publication publication,
                                               double lock_timeout_s) {
  FileLock lock;
  KVR_RETURN_IF_ERROR(lock.Take(StrCat(path, ".lock"), lock_timeout_s));
  KVR_ASSIGN_OR_RETURN(const LoadedSelections file, ReadIncumbents(path, catalog, device));
  if (const std::string lost = LostBy(publication, file.dropped); !lost.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(path, " has selections that publishing here would delete: ", lost),
                 "tune with the --plugins that brought their variants, tune their keys anew, or "
                 "name another selection file");
  }
  const GenerationPtr& base = file.generation;
  GenerationBuilder builder =
      base == nullptr ? GenerationBuilder(device.model, device.target) : GenerationBuilder(*base);
  builder.SetPolicy(publication.op, publication.policy);
  KVR_RETURN_IF_ERROR(
      builder.Select(publication.op, publication.key, std::move(publication.selection)));
  GenerationPtr next = builder.Build(base == nullptr ? 1 : base->number() + 1);
  KVR_RETURN_IF_ERROR(WriteSelectionFile(*next, path));
  return next;
}

}  // namespace kvr
