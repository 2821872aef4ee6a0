// SPDX-License-Identifier: Apache-2.0
#include "jit/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/strings.h"

namespace kvr {
namespace {

constexpr std::string_view kLayout = "/v1";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// mkdir -p; 0 or errno.
int MakeDirectories(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT) return errno;
  size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return errno;
  if (int error = MakeDirectories(path.substr(0, slash)); error != 0) return error;
  return mkdir(path.c_str(), 0777) == 0 || errno == EEXIST ? 0 : errno;
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// An entry is code that will run here: it must be ours or root's, and nobody else's to write.
bool Trusted(const struct stat& s) {
  return S_ISREG(s.st_mode) && (s.st_uid == geteuid() || s.st_uid == 0) &&
         (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The file whole, or nothing. One open, one fstat, one read in the usual case.
std::optional<std::string> ReadWhole(const std::string& path) {
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat s;
  if (file.get() < 0 || fstat(file.get(), &s) != 0 || !Trusted(s)) return std::nullopt;
  std::string content(static_cast<size_t>(s.st_size), '\0');
  for (size_t got = 0; got < content.size();) {
    ssize_t n = read(file.get(), content.data() + got, content.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) {  // shorter than it was a moment ago: damaged, the checksum will say so
      content.resize(got);
      break;
    }
    got += static_cast<size_t>(n);
  }
  return content;
}

// Written aside, fsynced, renamed. 0 or errno; nothing is left behind on failure.
int WriteAtomically(const std::string& directory, const std::string& path,
                    std::string_view content) {
  static std::atomic<uint64_t> counter{0};
  if (int error = MakeDirectories(directory); error != 0) return error;
  std::string aside =
      path + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1)) + ".tmp";
  int error = 0;
  {
    File file(open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file.get() < 0) return errno;
    while (!content.empty() && error == 0) {
      ssize_t n = write(file.get(), content.data(), content.size());
      if (n >= 0) {
        content.remove_prefix(static_cast<size_t>(n));
      } else if (errno != EINTR) {
        error = errno;
      }
    }
    if (error == 0 && fsync(file.get()) != 0) error = errno;
  }
  if (error == 0 && rename(aside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(aside.c_str());
  return error;
}

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> names;
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) return names;
  while (dirent* entry = readdir(handle))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  closedir(handle);
  return names;
}

}  // namespace

std::string DefaultCacheRoot() {
  if (std::string root = Environment("KVR_CACHE_DIR"); !root.empty()) return root;
  if (std::string base = Environment("XDG_CACHE_HOME"); !base.empty()) return base + "/kvr";
  if (std::string home = Environment("HOME"); !home.empty()) return home + "/.cache/kvr";
  return "";
}

BinaryCache::BinaryCache(std::string root, WarningSink warn)
    : root_(std::move(root)), warn_(std::move(warn)) {}

std::string BinaryCache::PathOf(const Fingerprint& key) const {
  if (root_.empty()) return "";
  const std::string hex = key.Hex();
  return StrCat(root_, kLayout, "/", std::string_view(hex).substr(0, 2), "/", hex);
}

BinaryPtr BinaryCache::Get(const Fingerprint& key) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    BinaryPtr held;
    if (auto it = memory_.find(key); it != memory_.end()) {
      held = it->second;
    } else if (auto live = live_.find(key); live != live_.end()) {
      held = live->second.lock();
      if (held == nullptr) live_.erase(live);
    }
    if (held != nullptr) {
      ++stats_.memory_hits;
      return held;
    }
  }
  // A degraded cache still reads: a full or read-only disk serves what it has.
  std::optional<std::string> entry;
  if (!root_.empty()) entry = ReadWhole(PathOf(key));
  const bool present = entry.has_value();
  BinaryPtr binary;
  if (present) binary = DecodeEntry(*std::move(entry), &key, nullptr);
  std::lock_guard<std::mutex> lock(mutex_);
  if (binary == nullptr) {
    ++stats_.misses;
    stats_.corrupt += present;
    return nullptr;
  }
  ++stats_.disk_hits;
  std::weak_ptr<const Binary>& live = live_[key];
  if (BinaryPtr other = live.lock()) return other;  // another thread read it meanwhile
  live = binary;
  return binary;
}

void BinaryCache::Put(BinaryPtr binary, std::string_view label) {
  int error = 0;
  const bool try_disk = on_disk();
  if (try_disk) {
    std::string path = PathOf(binary->key);
    error = WriteAtomically(path.substr(0, path.rfind('/')), path, EncodeEntry(*binary, label));
  }
  const bool kept = try_disk && error == 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (kept) {
      ++stats_.written;
      live_[binary->key] = binary;
    } else {
      memory_[binary->key] = binary;
      stats_.write_failures += try_disk;
    }
  }
  if (error != 0) Degrade(strerror(error));
}

void BinaryCache::Degrade(std::string_view why) {
  if (degraded_.exchange(true) || warn_ == nullptr) return;
  std::string message = "the binary cache at " + root_ + " cannot be written (";
  message += why;
  message +=
      "): keeping binaries in memory; set KVR_CACHE_DIR to a directory with space that "
      "you may write";
  warn_(message);
}

std::vector<BinaryCache::Info> BinaryCache::List() const {
  std::vector<Info> entries;
  if (root_.empty()) return entries;
  std::string top = root_;
  top += kLayout;
  for (const std::string& shard : Names(top)) {
    for (const std::string& name : Names(top + "/" + shard)) {
      absl::StatusOr<Fingerprint> key = Fingerprint::FromHex(name);
      if (!key.ok()) continue;  // being written, or not ours
      std::string path = top + "/" + shard + "/" + name;
      struct stat s;
      std::optional<std::string> content = ReadWhole(path);
      if (!content || stat(path.c_str(), &s) != 0) continue;  // gone meanwhile
      Info info;
      info.key = *key;
      info.file_bytes = static_cast<int64_t>(content->size());
      info.written = s.st_mtim.tv_sec;
      std::shared_ptr<Binary> binary = DecodeEntry(*std::move(content), &*key, &info.label);
      info.valid = binary != nullptr;
      if (binary != nullptr) {
        info.target = binary->target;
        info.compiler = binary->compiler;
        info.bytes = static_cast<int64_t>(binary->bytes.size());
        for (const BinaryKernel& kernel : binary->kernels) info.entries.push_back(kernel.entry);
      }
      entries.push_back(std::move(info));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Info& a, const Info& b) {
    return a.written != b.written ? a.written > b.written : a.key < b.key;
  });
  return entries;
}

BinaryCache::Stats BinaryCache::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

}  // namespace kvr
