// SPDX-License-Identifier: Apache-2.0
#include "tuner/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/fingerprint.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"
#include "plugins/discover.h"
#include "plugins/files.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;

constexpr int kPatience = 10;                                // times `rest`, until it parses
constexpr absl::Duration kBreath = absl::Milliseconds(100);  // between two looks, at most
// Without an event: changes that another host makes on a network file system give none.
constexpr absl::Duration kSlowLook = absl::Seconds(5);
constexpr int kMostFiles = 256;  // of a bundle
constexpr uint32_t kEvents = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM |
                             IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF;

bool IsTemporary(std::string_view name) {
  if (name.empty() || name.front() == '.' || name.front() == '#' || name.back() == '~') return true;
  for (const std::string_view end : {".tmp", ".swp", ".swx", ".swo", ".bak", ".part", ".orig"}) {
    if (name.ends_with(end)) return true;
  }
  // vim tries whether it may write a directory by a file of that name.
  return name == "4913" || name.find(".tmp.") != std::string_view::npos;
}

// The regular files of a place, symlinks out of it left out; of a bundle, those at any depth that
// plugins/files.h would read. A pipe, which would hold up whoever reads it, is none.
std::vector<std::string> FilesOf(const Watcher::Place& place) {
  std::vector<std::string> files;
  std::error_code error;
  if (place.kind != Watcher::Place::Kind::kBundle) {
    if (fs::is_regular_file(place.path, error)) files.push_back(place.path);
    return files;
  }
  const auto leads_out = [&](const fs::path& link) {
    std::error_code broken;
    return !fs::canonical(link, broken).string().starts_with(StrCat(place.path, "/"));
  };
  fs::recursive_directory_iterator it(place.path, error), end;
  for (; !error && it != end && files.size() < kMostFiles; it.increment(error)) {
    std::error_code ignored;
    if (IsTemporary(it->path().filename().string())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored) &&
               !(it->is_symlink(ignored) && leads_out(it->path()))) {
      files.push_back(it->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Changes whenever a file may have; empty: the place is not there.
std::string StateOf(const Watcher::Place& place) {
  std::string state;
  for (const std::string& file : FilesOf(place)) {
    struct stat info;
    if (stat(file.c_str(), &info) != 0) continue;
    StrAppend(&state, file, " ", info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
              info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
              info.st_ctim.tv_nsec, "\n");
  }
  return state;
}

Fingerprint ContentOf(const Watcher::Place& place) {
  Hasher hasher;
  std::string piece(1 << 20, '\0');  // whatever lies there, it does not fill the program's memory
  for (const std::string& file : FilesOf(place)) {
    std::ifstream in(file, std::ios::binary);
    hasher.Field("file", file);
    do {
      in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      hasher.Field("content", std::string_view(piece.data(), static_cast<size_t>(in.gcount())));
    } while (in);
  }
  return hasher.Finish();
}

absl::Status SystemError(std::string_view what) {
  return Error(absl::StatusCode::kUnavailable, StrCat(what, ": ", std::strerror(errno)),
               "raise fs.inotify.max_user_watches or max_user_instances (sysctl)");
}

}  // namespace

struct Watcher::State {
  struct Seen {
    Place place;
    std::string state;       // at the last look
    absl::Time since;        // it has been so
    std::string told_state;  // when its content was last compared
    Fingerprint told;        // the content that was told, or there when the watch began
  };

  absl::Duration rest;
  Changed changed;
  Parses parses;
  int events = -1, wake = -1;
  std::atomic<bool> stopping{false};

  std::mutex mutex;  // directories, files, seen
  std::set<std::string> directories;
  std::set<std::string> files;
  std::map<std::string, Seen> seen;  // by path
  std::thread thread;

  ~State() {
    stopping = true;
    if (wake >= 0) Wake();
    if (thread.joinable()) thread.join();
    if (events >= 0) close(events);
    if (wake >= 0) close(wake);
  }
  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof one);
  }
  // A directory that is there already costs nothing.
  bool Listen(const std::string& directory) const {
    return inotify_add_watch(events, directory.c_str(), kEvents | IN_ONLYDIR) >= 0;
  }
  void ListenBelow(const std::string& directory) const;
  std::vector<Place> Places(const std::string& directory) const;
  void Loop();
  absl::Time Look();
  void Begin(const Place& place);
};

// Two levels of bundles, and what lies in them.
void Watcher::State::ListenBelow(const std::string& directory) const {
  Listen(fs::path(directory).parent_path().string());
  Listen(directory);
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error), end;
  for (; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) continue;
    if (IsTemporary(it->path().filename().string()) || it.depth() > 4) {
      it.disable_recursion_pending();
    } else {
      Listen(it->path().string());
    }
  }
}

std::vector<Watcher::Place> Watcher::State::Places(const std::string& directory) const {
  std::vector<Rejection> ignored;
  std::vector<Place> places;
  for (bundle::Found& found : bundle::FindPlugins({&directory, 1}, &ignored)) {
    // Symlinks are resolved: what they name elsewhere is not this directory's.
    if (!found.path.starts_with(StrCat(directory, "/")) && found.path != directory) continue;
    places.push_back(
        {found.is_library ? Place::Kind::kLibrary : Place::Kind::kBundle, std::move(found.path)});
  }
  return places;
}

// What is there when a watch begins is known.
void Watcher::State::Begin(const Place& place) {
  Seen& known = seen[place.path];
  known.place = place;
  known.state = known.told_state = StateOf(place);
  known.since = absl::Now();
  known.told = ContentOf(place);
}

// Looks at all of it; gives the time of the next look that is due without an event.
absl::Time Watcher::State::Look() {
  std::vector<Place> tell;
  absl::Time next = absl::Now() + kSlowLook;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const std::string& directory : directories) {
      ListenBelow(directory);
      for (Place& place : Places(directory)) {
        Seen& known = seen[place.path];
        known.place = std::move(place);
      }
    }
    for (const std::string& file : files) Listen(fs::path(file).parent_path().string());

    const absl::Time now = absl::Now();
    for (auto& [path, known] : seen) {
      std::string state = StateOf(known.place);
      if (state != known.state) {
        known.state = std::move(state);
        known.since = absl::Now();  // `now` may be long ago, and the change after it
      }
      if (known.state.empty() || known.state == known.told_state) continue;
      const absl::Duration rested = now - known.since;
      if (rested < rest) {
        next = std::min(next, known.since + rest);
        continue;
      }
      const Fingerprint content = ContentOf(known.place);
      if (content != known.told && rested < kPatience * rest && !parses(known.place)) {
        next = std::min(next, now + rest);
        continue;
      }
      known.told_state = known.state;
      if (std::exchange(known.told, content) != content) tell.push_back(known.place);
    }
  }
  for (const Place& place : tell) {
    if (!stopping) changed(place);
  }
  return next;
}

void Watcher::State::Loop() {
  absl::Time next = absl::Now() + kSlowLook;
  while (!stopping) {
    pollfd waits[] = {{events, POLLIN, 0}, {wake, POLLIN, 0}};
    const int64_t left = absl::ToInt64Milliseconds(next - absl::Now()) + 1;
    if (poll(waits, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000))) < 0 &&
        errno != EINTR) {
      return;
    }
    if (stopping) return;
    if (waits[0].revents != 0)
      absl::SleepFor(std::min(kBreath, rest / 4));  // what comes together is one look
    alignas(inotify_event) char buffer[16384];
    while (read(events, buffer, sizeof buffer) > 0) {
    }
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake, &count, sizeof count);
    next = Look();
  }
}

Watcher::Watcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Watcher::~Watcher() = default;

absl::StatusOr<std::unique_ptr<Watcher>> Watcher::Create(absl::Duration rest, Changed changed,
                                                         Parses parses) {
  auto state = std::make_unique<State>();
  state->rest = rest;
  state->changed = std::move(changed);
  state->parses = std::move(parses);
  state->events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (state->events < 0) return SystemError("files cannot be watched");
  state->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state->wake < 0) return SystemError("files cannot be watched");
  State* const running = state.get();
  KVR_ASSIGN_OR_RETURN(state->thread, StartThread([running] { running->Loop(); }));
  return std::unique_ptr<Watcher>(new Watcher(std::move(state)));
}

absl::Status Watcher::AddDirectory(const std::string& directory) {
  KVR_ASSIGN_OR_RETURN(const bundle::BundleDirectory checked,
                       bundle::BundleDirectory::Open(directory));
  const std::string& path = checked.path();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->Listen(path)) return SystemError(StrCat("'", path, "' cannot be watched"));
  if (state_->directories.insert(path).second) {
    for (const Place& place : state_->Places(path)) state_->Begin(place);
  }
  state_->Wake();
  return absl::OkStatus();
}

absl::Status Watcher::AddFile(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const std::string directory = absolute.parent_path().string();
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (error || !state_->Listen(directory)) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat("'", directory, "' cannot be watched: ", std::strerror(errno)),
                 "name a file in a directory that exists");
  }
  if (state_->files.insert(absolute.string()).second) {
    state_->Begin({Place::Kind::kFile, absolute.string()});
  }
  state_->Wake();
  return absl::OkStatus();
}

}  // namespace kvr
