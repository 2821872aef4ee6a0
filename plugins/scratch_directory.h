// SPDX-License-Identifier: Apache-2.0
//
// A private temporary directory, removed with the object; what a killed process left is removed by
// the next process of the same user that makes one.
//
// Whose owner lives is told by a lock (flock) that the owner holds on the directory and the kernel
// gives back when the process ends; process ids would say nothing where containers share a TMPDIR.
// Younger than a minute none is taken away: its owner may be about to lock it. Where the file
// system has no such locks, what is left stays.
//
// Threading: callable from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace kvr {

class ScratchDirectory {
 public:
  // <TMPDIR, else /tmp>/kvr-USE-XXXXXX. kUnavailable: says where and why not.
  static absl::StatusOr<std::unique_ptr<ScratchDirectory>> Create(std::string_view use);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  ScratchDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  const std::string path_;
  const int lock_;  // -1: none
};

// Removes what dead processes of this user left in `temporary`. Create does it once a process.
void RemoveAbandonedScratch(const std::string& temporary);

}  // namespace kvr
