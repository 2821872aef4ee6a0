// SPDX-License-Identifier: Apache-2.0
#include "plugins/scratch_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUses[] = {"kvr-binaries-", "kvr-plugin-", "kvr-try-plugin-"};
constexpr time_t kLeastAge = 60;  // seconds

absl::Status CannotMake(std::string_view where, int error) {
  return Error(absl::StatusCode::kUnavailable,
               StrCat("cannot make a directory in ", where, ": ", std::strerror(error)),
               "make room there, or let TMPDIR name another directory");
}

int OpenDirectory(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool IsAbandoned(int directory) {
  struct stat info;
  return fstat(directory, &info) == 0 && info.st_uid == geteuid() &&
         time(nullptr) - info.st_mtime > kLeastAge && flock(directory, LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchDirectory>> ScratchDirectory::Create(std::string_view use) {
  std::error_code error;
  const std::string temporary = fs::temp_directory_path(error).string();
  if (error) return CannotMake("the temporary directory", error.value());
  static std::once_flag once;
  std::call_once(once, RemoveAbandonedScratch, temporary);
  std::string path = StrCat(temporary, "/kvr-", use, "-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return CannotMake(temporary, errno);
  int lock = OpenDirectory(path);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    lock = -1;
  }
  return std::unique_ptr<ScratchDirectory>(new ScratchDirectory(std::move(path), lock));
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

void RemoveAbandonedScratch(const std::string& temporary) {
  std::error_code error;
  for (fs::directory_iterator it(temporary, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (std::none_of(std::begin(kUses), std::end(kUses),
                     [&](std::string_view use) { return name.starts_with(use); })) {
      continue;
    }
    const int directory = OpenDirectory(it->path().string());
    if (directory < 0) continue;
    std::error_code ignored;
    if (IsAbandoned(directory)) fs::remove_all(it->path(), ignored);
    close(directory);
  }
}

}  // namespace kvr
