// SPDX-License-Identifier: Apache-2.0
#include "tuner/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

namespace {

// Is what lies at `path` what `fd` has open? Whoever gives a lock back removes its file, so that
// who waited for it holds a lock that nobody else will meet.
bool IsAt(const std::string& path, int fd) {
  struct stat opened, there;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

}  // namespace

FileLock::~FileLock() {
  if (fd_ < 0) return;
  unlink(path_.c_str());  // while it is held: the file is ours
  close(fd_);
}

absl::Status FileLock::Take(const std::string& path, double timeout_s) {
  const absl::Time deadline = absl::Now() + absl::Seconds(timeout_s);
  int fd = -1;
  const auto failed = [&](std::string_view why) {
    if (fd >= 0) close(fd);
    return Error(absl::StatusCode::kUnavailable, StrCat("cannot lock ", path, ": ", why),
                 "wait for the other tune, or name another selection file in a directory that "
                 "you may write");
  };
  while (true) {
    fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return failed(std::strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) break;  // no locks here
      if (errno != EWOULDBLOCK && errno != EINTR) return failed(std::strerror(errno));
      if (absl::Now() >= deadline) return failed("another process holds it");
      absl::SleepFor(absl::Milliseconds(20));
    }
    if (IsAt(path, fd)) break;
    if (absl::Now() >= deadline) return failed("another process holds it");
    close(fd);
  }
  path_ = path;
  fd_ = fd;
  return absl::OkStatus();
}

}  // namespace kvr
