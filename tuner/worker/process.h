// SPDX-License-Identifier: Apache-2.0
//
// A child process that speaks lines: requests to its stdin, answers from its stdout, its stderr
// kept for messages. Spawned with posix_spawn, never forked: the caller may hold a CUDA context and
// threads. It gets its own process group (a Ctrl-C at the terminal is the parent's to handle), no
// descriptor of the parent beyond the three, default signal dispositions, and is killed with its
// whole group by Kill or the destructor. stdin is a socket, so that writing to a dead child is an
// error here and never SIGPIPE in the caller's process.
//
// Threading: one thread at a time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvr {

class ChildProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(
      const std::string& executable, const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // `line` without its newline. False: the child is gone.
  bool Send(std::string_view line);

  enum class Read { kLine, kGone, kTimeout, kCancelled };
  // Waits for the next line until `deadline`; `cancel` (may be null) is looked at ten times a
  // second.
  Read ReadLine(std::string* line, absl::Time deadline, const std::atomic<bool>* cancel);

  // Ends it (SIGKILL to the group unless it has exited by itself) and says how it ended:
  // "killed by SIGSEGV (Segmentation fault)", "exited with status 3".
  std::string End();

  // The last lines it wrote to stderr, at most 4 KiB.
  std::string StderrTail();

  pid_t pid() const { return pid_; }

 private:
  ChildProcess() = default;
  void DrainStderr();
  bool Reap(bool block);
  pid_t pid_ = -1;
  bool reaped_ = false;
  bool killed_by_us_ = false;
  int wait_status_ = 0;
  bool wait_status_known_ = false;
  int in_ = -1, out_ = -1, err_ = -1;  // from the parent's side
  std::string buffer_;                 // of stdout, not yet a line
  std::string stderr_;
};

// "SIGSEGV (Segmentation fault)"
std::string SignalText(int signal);

}  // namespace kvr
