// SPDX-License-Identifier: Apache-2.0
//
// A lock between processes, beside a file that they replace (PATH.lock), gone when it is given
// back. Where the file system has no locks, taking one succeeds and keeps nobody out.
//
// Threading: belongs to one thread; two of one process exclude each other too.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace kvr {

// Held, once taken, while it lives.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Once. kUnavailable: somebody else held it all the time, or it cannot be made.
  absl::Status Take(const std::string& path, double timeout_s);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace kvr
