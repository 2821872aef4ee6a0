// SPDX-License-Identifier: Apache-2.0
#include "jit/cache_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <thread>

#include "core/strings.h"

namespace kvr {

KeyLock::KeyLock(CacheFiles& files, const std::string& directory, const Fingerprint& key,
                 std::chrono::milliseconds timeout) {
  error_ = MakeDirectories(files, directory);
  if (error_ != 0) return;
  const std::string path = StrCat(directory, "/lock");
  file_ = std::make_unique<File>(
      files.Open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  if (file_->get() < 0) {
    error_ = errno;
    return;
  }
  // Two keys may share a byte: then one waits for the other, once in 2^62.
  uint64_t digits;
  memcpy(&digits, key.bytes.data(), sizeof digits);
  offset_ = static_cast<int64_t>(digits >> 2);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::milliseconds(1);
  while (files.LockByte(file_->get(), offset_) != 0) {
    error_ = errno;
    if (error_ == EINTR) continue;
    if (error_ != EAGAIN && error_ != EACCES) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      outcome_ = Outcome::kTimedOut;
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  error_ = 0;
  outcome_ = Outcome::kHeld;
}

KeyLock::~KeyLock() {
  if (outcome_ != Outcome::kHeld) return;
  // Said, not left to closing: a child that the program forked meanwhile keeps the file open.
  struct flock lock = {};
  lock.l_type = F_UNLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset_;
  lock.l_len = 1;
  fcntl(file_->get(), F_OFD_SETLK, &lock);
}

}  // namespace kvr
