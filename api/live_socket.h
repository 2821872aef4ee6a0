// SPDX-License-Identifier: Apache-2.0
//
// Lines over a UNIX socket between processes of one user.
//
//   KVR_ASSIGN_OR_RETURN(auto listener, Listener::Open("kvr.sock"));
//   while (std::unique_ptr<Connection> peer = listener->Accept(stop)) ...
//
// The socket has mode 0600 from the moment it exists, and takes peers of the same user or root
// only. A stale socket of one's own is replaced; one that somebody listens on, or whatever else has
// the name, is left alone and refused.
//
// Threading: an object belongs to one thread at a time; Wake::Set from any. Nothing here waits
// longer than its timeout, and a peer that is gone is an answer, never a signal.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvr {

// Makes every wait that was given it return, for good.
class Wake {
 public:
  Wake();
  ~Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  void Set();
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  int fd() const { return fd_; }  // negative where the process has no descriptors left

 private:
  int fd_;
  std::atomic<bool> set_{false};
};

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

class Connection {
 public:
  // Takes over `fd`.
  Connection(int fd, PeerCredentials peer);
  // As a client. Errors: nothing there, nobody listens, another user's, too long a path.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(const std::string& path);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  enum class Read {
    kLine,
    kGone,     // closed by the peer, or broken
    kTimeout,  // no whole line in time; what came of it is kept
    kTooLong,  // more than `most` bytes without a line end; the connection is of no use any more
    kStopped,  // `stop` was set
  };
  // The next line, without its end.
  Read ReadLine(std::string* line, size_t most, absl::Duration timeout, const Wake* stop = nullptr);
  // `line` must have no line end of its own. False: the peer is gone or does not read.
  bool Write(std::string_view line, absl::Duration timeout, const Wake* stop = nullptr);
  // Waits up to `timeout` for something to read. False: the peer is gone.
  bool Idle(absl::Duration timeout, const Wake* stop = nullptr);

  const PeerCredentials& peer() const { return peer_; }

 private:
  const int fd_;
  const PeerCredentials peer_;
  std::string buffer_;   // read, and not yet a line
  size_t searched_ = 0;  // of it, without a line end
};

class Listener {
 public:
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& path);
  // Removes the socket, if it is still this one.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The next peer that may speak; null: `stop` was set.
  std::unique_ptr<Connection> Accept(const Wake& stop);
  const std::string& path() const { return path_; }

 private:
  Listener(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  const std::string path_;
  const int fd_;
  dev_t device_ = 0;  // of the socket's file
  ino_t inode_ = 0;
};

}  // namespace kvr
