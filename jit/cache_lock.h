// SPDX-License-Identifier: Apache-2.0
//
// One compile per key across processes, as far as it goes. A lock on one byte of <root>/v2/lock,
// the key's own, held while compiling: one file for all keys, never removed, and the kernel frees
// what a killed holder held. It saves work and guards nothing: whoever does not get it compiles
// too, and publishing is atomic with or without it.
//
// Threading: locks of one process exclude each other like those of several.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/fingerprint.h"
#include "jit/cache_files.h"

namespace kvr {

class KeyLock {
 public:
  enum class Outcome {
    kHeld,
    kTimedOut,     // somebody else has it still
    kUnavailable,  // it cannot be had here: `error`
  };

  // Tries until it is held or `timeout` has passed; zero: once.
  KeyLock(CacheFiles& files, const std::string& directory, const Fingerprint& key,
          std::chrono::milliseconds timeout);
  ~KeyLock();
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

  Outcome outcome() const { return outcome_; }
  int error() const { return error_; }

 private:
  std::unique_ptr<File> file_;
  int64_t offset_ = 0;
  Outcome outcome_ = Outcome::kUnavailable;
  int error_ = 0;
};

}  // namespace kvr
