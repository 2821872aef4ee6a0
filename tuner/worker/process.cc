// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/status.h"

extern char** environ;

namespace kvr {
namespace {

constexpr size_t kStderrKept = 4096;
constexpr absl::Duration kExitGrace = absl::Seconds(2);      // after its stdout closed
constexpr absl::Duration kKillPatience = absl::Seconds(30);  // a driver may tear down slowly

absl::Status SystemError(const std::string& what, int error) {
  return Error(absl::StatusCode::kInternal, absl::StrCat(what, ": ", strerror(error)),
               "check the limits on processes and open files (ulimit -u, ulimit -n)");
}

void CloseIf(int fd) {
  if (fd >= 0) close(fd);
}

}  // namespace

std::string SignalText(int signal) {
  const char* name = sigabbrev_np(signal);
  const char* text = sigdescr_np(signal);
  return absl::StrCat("SIG", name == nullptr ? absl::StrCat(signal) : name, " (",
                      text == nullptr ? "unknown signal" : text, ")");
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(
    const std::string& executable, const std::vector<std::string>& arguments) {
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  auto close_all = absl::MakeCleanup([&] {
    for (int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) CloseIf(fd);
  });
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 || pipe2(out, O_CLOEXEC) != 0 ||
      pipe2(err, O_CLOEXEC) != 0) {
    return SystemError("cannot make the pipes of a worker", errno);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  posix_spawn_file_actions_adddup2(&actions, in[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> argv = {const_cast<char*>(executable.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, executable.c_str(), &actions, &attributes, argv.data(), environ);
  if (error != 0) return SystemError(absl::StrCat("cannot start ", executable), error);

  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->pid_ = pid;
  std::swap(child->in_, in[0]);
  std::swap(child->out_, out[0]);
  std::swap(child->err_, err[0]);
  fcntl(child->err_, F_SETFL, O_NONBLOCK);
  return child;
}

ChildProcess::~ChildProcess() {
  End();
  for (int fd : {in_, out_, err_}) CloseIf(fd);
}

bool ChildProcess::Send(std::string_view line) {
  std::string text(line);
  text.push_back('\n');
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = send(in_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void ChildProcess::DrainStderr() {
  char chunk[4096];
  for (;;) {
    const ssize_t n = read(err_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    stderr_.append(chunk, static_cast<size_t>(n));
    if (stderr_.size() > 2 * kStderrKept) stderr_.erase(0, stderr_.size() - kStderrKept);
  }
}

ChildProcess::Read ChildProcess::ReadLine(std::string* line, absl::Time deadline,
                                          const std::atomic<bool>* cancel) {
  bool stderr_open = true;
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      line->assign(buffer_, 0, end);
      buffer_.erase(0, end + 1);
      return Read::kLine;
    }
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return Read::kCancelled;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return Read::kTimeout;
    pollfd fds[2] = {{out_, POLLIN, 0}, {stderr_open ? err_ : -1, POLLIN, 0}};
    const auto wait = std::min(left, absl::Milliseconds(100));
    const int ready =
        poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(wait + absl::Milliseconds(1))));
    if (ready <= 0) continue;  // a slice passed, or EINTR
    if (fds[1].revents != 0) {
      DrainStderr();
      if ((fds[1].revents & POLLHUP) != 0) stderr_open = false;
    }
    if (fds[0].revents == 0) continue;
    char chunk[16384];
    const ssize_t n = read(out_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Read::kGone;
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

bool ChildProcess::Reap(bool block) {
  if (reaped_) return true;
  const absl::Time deadline = absl::Now() + (block ? kKillPatience : kExitGrace);
  do {
    const pid_t got = waitpid(pid_, &wait_status_, WNOHANG);
    if (got == pid_) return wait_status_known_ = reaped_ = true;
    // The application may ignore SIGCHLD or reap everything itself: then nobody can tell.
    if (got < 0 && errno == ECHILD) return reaped_ = true;
    absl::SleepFor(absl::Milliseconds(2));
  } while (absl::Now() < deadline);
  return false;
}

std::string ChildProcess::End() {
  if (!reaped_) {
    // If stdout has closed it is exiting by itself, and its own status says more than our signal.
    pollfd gone = {out_, POLLIN, 0};
    const bool exiting = poll(&gone, 1, 0) > 0 && (gone.revents & POLLHUP) != 0;
    if (!exiting || !Reap(/*block=*/false)) {
      killed_by_us_ = true;
      kill(-pid_, SIGKILL);
      Reap(/*block=*/true);
    } else {
      kill(-pid_, SIGKILL);  // whatever else lives in its group
    }
    DrainStderr();
  }
  if (!wait_status_known_) return "ended in an unknown way";
  if (WIFSIGNALED(wait_status_)) {
    return absl::StrCat("killed by ", SignalText(WTERMSIG(wait_status_)));
  }
  return absl::StrCat("exited with status ", WEXITSTATUS(wait_status_));
}

std::string ChildProcess::StderrTail() {
  DrainStderr();
  std::string tail = stderr_;
  if (tail.size() > kStderrKept) {
    tail.erase(0, tail.size() - kStderrKept);
    tail.erase(0, tail.find('\n') + 1);  // whole lines only; keeps all where there is none
  }
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return tail;
}

}  // namespace kvr
