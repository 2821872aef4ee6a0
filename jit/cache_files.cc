// SPDX-License-Identifier: Apache-2.0
#include "jit/cache_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "core/strings.h"

namespace kvr {

CacheFiles& CacheFiles::System() {
  static CacheFiles files;
  return files;
}

int CacheFiles::Open(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }
ssize_t CacheFiles::Read(int fd, void* to, size_t size) { return read(fd, to, size); }
ssize_t CacheFiles::Write(int fd, const void* from, size_t size) { return write(fd, from, size); }
int CacheFiles::Sync(int fd) { return fsync(fd); }
int CacheFiles::Rename(const char* from, const char* to) { return rename(from, to); }
int CacheFiles::Unlink(const char* path) { return unlink(path); }
int CacheFiles::MakeDirectory(const char* path) { return mkdir(path, 0777); }
int CacheFiles::MarkUsed(const char* path) {
  const struct timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}
int CacheFiles::LockByte(int fd, int64_t offset) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock);
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

std::string Distrusted(const struct stat& file) {
  static const uid_t install_owner = [] {
    struct stat self;
    return stat("/proc/self/exe", &self) == 0 ? self.st_uid : 0;
  }();
  if (!S_ISREG(file.st_mode)) return S_ISDIR(file.st_mode) ? "is a directory" : "is no file";
  if (file.st_uid != 0 && file.st_uid != geteuid() && file.st_uid != install_owner) {
    return StrCat("belongs to user ", file.st_uid);
  }
  if ((file.st_mode & S_IWOTH) != 0) return "is writable by others";
  if ((file.st_mode & S_IWGRP) != 0) return "is writable by its group";
  return "";
}

WholeFile ReadWhole(CacheFiles& files, const std::string& path, int64_t max_bytes,
                    bool leave_times) {
  WholeFile whole;
  // O_NONBLOCK: a pipe in a file's place must not hang us.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = files.Open(path.c_str(), kFlags | (leave_times ? O_NOATIME : 0), 0);
  if (fd < 0 && errno == EPERM && leave_times) fd = files.Open(path.c_str(), kFlags, 0);
  File file(fd);
  if (file.get() < 0) {
    whole.error = errno;
    if (whole.error == ELOOP) whole.damage = "is a symbolic link";
    return whole;
  }
  if (fstat(file.get(), &whole.info) != 0) {
    whole.error = errno;
    return whole;
  }
  whole.damage = Distrusted(whole.info);
  if (whole.damage.empty() && whole.info.st_size > max_bytes) {
    whole.damage = StrCat("is larger than ", max_bytes, " bytes");
  }
  if (!whole.damage.empty()) return whole;
  std::string& content = whole.content;
  content.resize(static_cast<size_t>(whole.info.st_size));
  for (size_t got = 0; got < content.size();) {
    const ssize_t n = files.Read(file.get(), content.data() + got, content.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      whole.error = errno;
      content.clear();
      return whole;
    }
    if (n == 0) {  // shorter than it was a moment ago: its checksum will say so
      content.resize(got);
      break;
    }
    got += static_cast<size_t>(n);
  }
  return whole;
}

int MakeDirectories(CacheFiles& files, const std::string& path) {
  if (files.MakeDirectory(path.c_str()) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT) return errno;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return ENOENT;
  if (const int error = MakeDirectories(files, path.substr(0, slash)); error != 0) return error;
  return files.MakeDirectory(path.c_str()) == 0 || errno == EEXIST ? 0 : errno;
}

namespace {

// A name that no other thread, process or host takes.
std::string Aside(const std::string& path) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
    random = static_cast<uint64_t>(getpid());
  }
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(random));
  return StrCat(path, ".", text, kAsideSuffix);
}

int WriteOnce(CacheFiles& files, const std::string& path, std::string_view content) {
  if (const int error = MakeDirectories(files, path.substr(0, path.rfind('/'))); error != 0) {
    return error;
  }
  const std::string aside = Aside(path);
  int error = 0;
  {
    File file(files.Open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file.get() < 0) return errno;
    while (!content.empty() && error == 0) {
      const ssize_t n = files.Write(file.get(), content.data(), content.size());
      if (n > 0) {
        content.remove_prefix(static_cast<size_t>(n));
      } else if (n == 0 || errno != EINTR) {
        error = n == 0 ? ENOSPC : errno;
      }
    }
    if (error == 0 && files.Sync(file.get()) != 0) error = errno;
  }
  if (error == 0 && files.Rename(aside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) files.Unlink(aside.c_str());
  return error;
}

}  // namespace

int WriteAtomically(CacheFiles& files, const std::string& path, std::string_view content) {
  const int error = WriteOnce(files, path, content);
  const bool passing = error == ESTALE || error == EIO || error == ENOENT || error == EEXIST;
  return passing ? WriteOnce(files, path, content) : error;
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) return names;
  while (const dirent* entry = readdir(handle)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(handle);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kvr
