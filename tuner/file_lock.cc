// SPDX-License-Identifier: Apache-2.0
#include "tuner/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileLock::Take(const std::string& path, double timeout_s) {
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

}  // namespace kvr
