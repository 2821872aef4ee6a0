// SPDX-License-Identifier: Apache-2.0
#include "api/live_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
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

constexpr absl::Duration kLockTimeout = absl::Seconds(2);
constexpr int kBacklog = 16;
constexpr timeval kConnectTimeout = {5, 0};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

absl::Status Failed(std::string_view what, const std::string& path, int error) {
  return Error(absl::StatusCode::kUnavailable, StrCat(what, " ", path, ": ", std::strerror(error)),
               "give another path, in a directory that you may write");
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Error(absl::StatusCode::kInvalidArgument,
                 path.empty() ? "the socket's path is empty" : "the socket's path has a NUL in it",
                 "give the path of a socket, as in kvr.sock");
  }
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("the socket's path has ", path.size(), " bytes: ", path),
                 StrCat("give one of at most ", sizeof(address.sun_path) - 1,
                        ", which is all that the system takes; a relative path, say"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status NoDescriptor(int error) {
  return Error(absl::StatusCode::kResourceExhausted,
               StrCat("no socket can be made: ", std::strerror(error)),
               "raise the limit on open files (ulimit -n)");
}

absl::StatusOr<PeerCredentials> CredentialsOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("the peer's credentials cannot be read: ", std::strerror(errno)),
                 "use a UNIX socket of this machine");
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

// A refused connection is a stale socket: its file is there and nobody listens.
int ConnectTo(const sockaddr_un& address, int fd) {
  int result;
  do {
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

// Two programs that start at once must not replace each other's socket. The directory's own lock
// leaves no file behind; who holds it too long is passed by.
void LockDirectory(const Descriptor& directory) {
  const absl::Time deadline = absl::Now() + kLockTimeout;
  while (directory.get() >= 0 && flock(directory.get(), LOCK_EX | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
}

// Nothing at `path`, after a stale socket of one's own was removed; else why not.
absl::Status MakeRoom(const std::string& path, const sockaddr_un& address) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Failed("cannot make the socket", path, errno);
  }
  constexpr std::string_view kOther = "give another path, or remove what is there";
  if (!S_ISSOCK(found.st_mode)) {
    return Error(absl::StatusCode::kAlreadyExists, StrCat(path, " exists and is no socket"),
                 kOther);
  }
  if (found.st_uid != geteuid()) {
    return Error(absl::StatusCode::kAlreadyExists,
                 StrCat(path, " is a socket of user ", found.st_uid), kOther);
  }
  const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe.get() < 0) return NoDescriptor(errno);
  const int refused = ConnectTo(address, probe.get());
  if (refused != ECONNREFUSED && refused != ENOENT) {
    const absl::StatusOr<PeerCredentials> owner = CredentialsOf(probe.get());
    return Error(
        absl::StatusCode::kAlreadyExists,
        StrCat("a program ",
               refused == 0 && owner.ok() ? StrCat("(pid ", owner->pid, ") ") : std::string(),
               "listens on ", path, " already"),
        "give each program a socket of its own, or end that one");
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Failed("cannot replace the stale socket", path, errno);
  }
  return absl::OkStatus();
}

// For poll: rounded up, so that it does not return just before the deadline again and again.
int Milliseconds(absl::Duration left) {
  const absl::Duration wait = std::clamp(left, absl::ZeroDuration(), absl::Hours(1));
  return static_cast<int>(absl::ToInt64Milliseconds(wait) + (wait > absl::ZeroDuration() ? 1 : 0));
}

enum class Ready { kYes, kTimeout, kStopped, kBroken };

Ready WaitFor(int fd, short events, absl::Time deadline, const Wake* stop) {
  while (true) {
    pollfd polled[2] = {{fd, events, 0}, {stop == nullptr ? -1 : stop->fd(), POLLIN, 0}};
    const absl::Duration left = deadline - absl::Now();
    const int count = poll(polled, 2, Milliseconds(left));
    if (count < 0 && errno != EINTR) return Ready::kBroken;
    if (count > 0 && polled[1].revents != 0) return Ready::kStopped;
    if (count > 0) return Ready::kYes;
    if (absl::Now() >= deadline) return Ready::kTimeout;
  }
}

}  // namespace

Wake::Wake() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
Wake::~Wake() {
  if (fd_ >= 0) close(fd_);
}
void Wake::Set() {
  set_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

Connection::Connection(int fd, PeerCredentials peer) : fd_(fd), peer_(peer) {}
Connection::~Connection() { close(fd_); }

absl::StatusOr<std::unique_ptr<Connection>> Connection::Connect(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return NoDescriptor(errno);
  // A program that has stopped leaves the backlog full, and who connects would wait for good.
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectTimeout, sizeof(kConnectTimeout));
  if (const int error = ConnectTo(address, fd.get()); error != 0) {
    if (error == EAGAIN) {
      return Error(absl::StatusCode::kDeadlineExceeded,
                   StrCat("the program on ", path, " takes no connection"),
                   "see whether it hangs; it may also be stopped in a debugger");
    }
    const bool nobody = error == ECONNREFUSED;
    return Error(absl::StatusCode::kNotFound,
                 nobody ? StrCat("nobody listens on ", path)
                        : StrCat("cannot connect to ", path, ": ", std::strerror(error)),
                 nobody            ? "start the program again, or name the socket of one that runs"
                 : error == EACCES ? "ask as the user that the program runs as"
                                   : "name the socket that the serving program was given");
  }
  KVR_ASSIGN_OR_RETURN(const PeerCredentials peer, CredentialsOf(fd.get()));
  if (geteuid() != 0 && peer.uid != geteuid() && peer.uid != 0) {
    return Error(absl::StatusCode::kPermissionDenied, StrCat(path, " is served by user ", peer.uid),
                 "talk to programs of your own user");
  }
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  return std::make_unique<Connection>(fd.release(), peer);
}

Connection::Read Connection::ReadLine(std::string* line, size_t most, absl::Duration timeout,
                                      const Wake* stop) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos && end <= most) {
      line->assign(buffer_, 0, end);
      buffer_.erase(0, end + 1);
      searched_ = 0;
      return Read::kLine;
    }
    searched_ = buffer_.size();
    if (buffer_.size() > most) return Read::kTooLong;
    switch (WaitFor(fd_, POLLIN, deadline, stop)) {
      case Ready::kYes:
        break;
      case Ready::kTimeout:
        return Read::kTimeout;
      case Ready::kStopped:
        return Read::kStopped;
      case Ready::kBroken:
        return Read::kGone;
    }
    char chunk[16384];
    const ssize_t count = recv(fd_, chunk, sizeof(chunk), 0);
    if (count > 0) {
      buffer_.append(chunk, static_cast<size_t>(count));
    } else if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return Read::kGone;
    }
  }
}

bool Connection::Write(std::string_view line, absl::Duration timeout, const Wake* stop) {
  const absl::Time deadline = absl::Now() + timeout;
  std::string bytes(line);
  bytes.push_back('\n');
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (WaitFor(fd_, POLLOUT, deadline, stop) != Ready::kYes) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Connection::Idle(absl::Duration timeout, const Wake* stop) {
  if (buffer_.find('\n') != std::string::npos) return true;
  if (WaitFor(fd_, POLLIN | POLLRDHUP, absl::Now() + timeout, stop) != Ready::kYes) return true;
  char byte;
  const ssize_t count = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const Descriptor directory(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  LockDirectory(directory);
  KVR_RETURN_IF_ERROR(MakeRoom(path, address));

  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return NoDescriptor(errno);
  // Linux gives the file the socket's own mode, less the umask: it never has another one. umask()
  // itself is the whole process's and would change what other threads create.
  if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failed("cannot make the socket", path, errno);
  }
  std::unique_ptr<Listener> listener(new Listener(path, fd.release()));
  struct stat made {};
  if (lstat(path.c_str(), &made) != 0) return Failed("cannot read the socket", path, errno);
  listener->device_ = made.st_dev;
  listener->inode_ = made.st_ino;
  // Nobody can connect before this.
  if ((made.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("the file system gives ", path, " a mode that lets others in"),
                 "give a path on a local file system");
  }
  if (listen(listener->fd_, kBacklog) != 0) return Failed("cannot listen on", path, errno);
  return listener;
}

Listener::~Listener() {
  close(fd_);
  struct stat found {};
  if (inode_ != 0 && lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ &&
      found.st_ino == inode_) {
    unlink(path_.c_str());
  }
}

std::unique_ptr<Connection> Listener::Accept(const Wake& stop) {
  while (true) {
    switch (WaitFor(fd_, POLLIN, absl::InfiniteFuture(), &stop)) {
      case Ready::kStopped:
        return nullptr;
      case Ready::kBroken:
        absl::SleepFor(absl::Milliseconds(100));
        continue;
      case Ready::kYes:
      case Ready::kTimeout:
        break;
    }
    Descriptor peer(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (peer.get() < 0) {
      // Out of descriptors: the peer waits in the backlog, and poll would return at once.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        absl::SleepFor(absl::Milliseconds(100));
      }
      continue;
    }
    const absl::StatusOr<PeerCredentials> credentials = CredentialsOf(peer.get());
    if (!credentials.ok()) continue;
    if (credentials->uid != geteuid() && credentials->uid != 0) continue;
    return std::make_unique<Connection>(peer.release(), *credentials);
  }
}

}  // namespace kvr
