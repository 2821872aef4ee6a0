// SPDX-License-Identifier: Apache-2.0
//
// What the cache asks of the file system, and what it trusts there. CacheFiles is the system
// itself, one function a system call; tests derive from it to make any of them fail as a full disk
// or a network file system does. Nothing else of the cache can be replaced.
//
// Threading: all functions may be called concurrently.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvr {

// As the system calls of these names: -1 and errno.
class CacheFiles {
 public:
  virtual ~CacheFiles() = default;
  static CacheFiles& System();

  virtual int Open(const char* path, int flags, mode_t mode);
  virtual ssize_t Read(int fd, void* to, size_t size);
  virtual ssize_t Write(int fd, const void* from, size_t size);
  virtual int Sync(int fd);
  virtual int Rename(const char* from, const char* to);
  virtual int Unlink(const char* path);
  virtual int MakeDirectory(const char* path);
  virtual int MarkUsed(const char* path);        // its access time is now
  virtual int LockByte(int fd, int64_t offset);  // an exclusive OFD lock, not waited for
};

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// What is wrong with running code from this file: not a regular file, somebody else's than root's,
// this user's or the kvr executable's owner's, writable by others or a group. Empty: nothing.
std::string Distrusted(const struct stat& file);

struct WholeFile {
  int error = 0;       // errno of what failed: ENOENT where there is no such file
  std::string damage;  // there is something, but it must not be read: why
  std::string content;
  struct stat info = {};  // of what was opened
};
// Never follows a link, never blocks; reads until the end, however little a read gives.
// `leave_times`: where it is ours to say, as if it had not been read.
WholeFile ReadWhole(CacheFiles& files, const std::string& path, int64_t max_bytes,
                    bool leave_times = false);

// mkdir -p; 0 or errno.
int MakeDirectories(CacheFiles& files, const std::string& path);

// Makes the directory, writes aside (<path>.<16 hex digits>.tmp), flushes to disk, renames: a
// reader sees the old file, or the new one whole. 0 or errno; leaves nothing behind on failure.
// What a network file system says in passing (ESTALE, EIO), or a directory removed meanwhile, is
// tried once more.
int WriteAtomically(CacheFiles& files, const std::string& path, std::string_view content);
inline constexpr std::string_view kAsideSuffix = ".tmp";

// Names in a directory but those that begin with a dot, sorted; none where it cannot be read.
std::vector<std::string> NamesIn(const std::string& directory);

}  // namespace kvr
