// SPDX-License-Identifier: Apache-2.0
#include "plugins/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "llvm/Support/ConvertUTF.h"

namespace kvr::bundle {
namespace {

using absl::StatusCode;

// Who may have written what we are about to run.
bool TrustedOwner(uid_t owner) {
  if (owner == 0 || owner == geteuid()) return true;
  struct stat self;
  return stat("/proc/self/exe", &self) == 0 && owner == self.st_uid;
}

absl::Status CheckTrust(std::string_view path, const struct stat& info) {
  const std::string_view kind = S_ISDIR(info.st_mode) ? "directory" : "file";
  if (!TrustedOwner(info.st_uid)) {
    return Error(StatusCode::kPermissionDenied,
                 StrCat(kind, " '", path, "' belongs to user ", info.st_uid,
                        ", who could change what runs here"),
                 "make it belong to you, to root or to the owner of the kvr executable (chown)");
  }
  // A group that has its owner's number is that user's private group: umask 002 writes such files.
  const bool group = (info.st_mode & S_IWGRP) != 0 && info.st_gid != info.st_uid;
  if ((info.st_mode & S_IWOTH) != 0 || group) {
    return Error(StatusCode::kPermissionDenied,
                 StrCat(kind, " '", path, "' is writable by ",
                        (info.st_mode & S_IWOTH) != 0 ? "others" : "its group"),
                 StrCat("chmod go-w '", path, "'"));
  }
  return absl::OkStatus();
}

absl::Status SystemError(int error, std::string_view what, std::string_view fix) {
  const StatusCode code = error == ENOENT || error == ENOTDIR ? StatusCode::kNotFound
                          : error == EACCES                   ? StatusCode::kPermissionDenied
                                                              : StatusCode::kUnavailable;
  return Error(code, StrCat(what, ": ", std::strerror(error)), fix);
}

// realpath(3) as a string; empty with errno set.
std::string RealPath(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return "";
  std::string result = resolved;
  std::free(resolved);
  return result;
}

absl::Status CheckDirectory(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return SystemError(errno, StrCat("'", path, "'"), "give a directory that can be read");
  }
  if (!S_ISDIR(info.st_mode)) {
    return Error(StatusCode::kInvalidArgument, StrCat("'", path, "' is not a directory"),
                 "give a directory that holds a variant.toml");
  }
  return CheckTrust(path, info);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status TooLarge(std::string_view name, int64_t limit) {
  return Error(
      StatusCode::kResourceExhausted,
      StrCat("'", name, "' is larger than ",
             limit >= (1 << 20) ? StrCat(limit >> 20, " MiB") : StrCat(limit >> 10, " KiB")),
      "split it, or leave out what no kernel needs");
}

absl::StatusOr<std::string> ReadAll(int fd, std::string_view path, int64_t expected,
                                    int64_t limit) {
  std::string content(static_cast<size_t>(expected) + 1, '\0');  // one more, to see the end
  for (size_t size = 0;;) {
    if (size == content.size()) content.resize(size + 65536);
    const ssize_t got = read(fd, content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return SystemError(errno, StrCat("'", path, "' cannot be read"),
                         "check the disk and the file");
    }
    size += static_cast<size_t>(got);
    if (static_cast<int64_t>(size) > limit) return TooLarge(path, limit);
    if (got == 0) {
      content.resize(size);
      return content;
    }
  }
}

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error), end;
  for (; !error && it != end && names.size() < 1000; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status Missing(std::string_view name, int error, const std::vector<std::string>& files) {
  std::string fix = "add the file, or take its name out of the manifest";
  const std::vector<std::string_view> names(files.begin(), files.end());
  if (const std::string_view near = Nearest(name, names); !near.empty() && near != name) {
    fix = StrCat("did you mean '", near, "'?");
  }
  return SystemError(error, StrCat("file '", name, "' of the bundle cannot be opened"), fix);
}

}  // namespace

absl::Status CheckFileName(std::string_view name) {
  auto refuse = [&](std::string_view why) {
    return Error(StatusCode::kInvalidArgument, StrCat("file name ", Quoted(name), " ", why),
                 "name a file of this bundle by its relative path, as in \"split.cu\"");
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > 200) return refuse("is longer than 200 bytes");
  if (name.front() == '/') return refuse("is an absolute path");
  for (char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("._-/").find(c) == std::string_view::npos) {
      return refuse("has a character other than letters, digits, '.', '_', '-' and '/'");
    }
  }
  for (std::string_view part : Split(name, '/')) {
    if (part == "..") return refuse("leaves the bundle through '..'");
    if (part.empty() || part == ".") return refuse("has an empty or '.' component");
  }
  if (name.starts_with("kvr/")) return refuse("is in 'kvr/', which the SDK's headers own");
  return absl::OkStatus();
}

absl::Status CheckText(std::string_view content) {
  const auto* begin = reinterpret_cast<const llvm::UTF8*>(content.data());
  const llvm::UTF8* at = begin;
  const bool utf8 = llvm::isLegalUTF8String(&at, begin + content.size());
  const size_t nul = content.find('\0');
  if (utf8 && nul == std::string_view::npos) return absl::OkStatus();
  const size_t where = utf8 ? nul : std::min(nul, static_cast<size_t>(at - begin));
  const auto line = 1 + std::count(content.begin(), content.begin() + where, '\n');
  return Error(StatusCode::kInvalidArgument,
               StrCat("line ", line, where == nul ? " holds a NUL byte" : " is not UTF-8"),
               "save the file as UTF-8 text");
}

absl::StatusOr<std::string> ReadTrustedFile(const std::string& path, int64_t max_bytes) {
  // What is checked is the file that is read: opened once, no symlink, no waiting on a pipe.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info;
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
    return SystemError(errno, StrCat("'", path, "' cannot be opened"),
                       "give a file that exists and that you may read");
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(StatusCode::kInvalidArgument, StrCat("'", path, "' is not a regular file"),
                 "put a file there");
  }
  KVR_RETURN_IF_ERROR(CheckTrust(path, info));
  if (info.st_size > max_bytes) return TooLarge(path, max_bytes);
  return ReadAll(fd.get(), path, info.st_size, max_bytes);
}

std::string BundleFiles::FilePath(std::string_view name) const {
  return StrCat(path_, path_.ends_with(':') ? "" : "/", name);
}

absl::StatusOr<std::string> BundleFiles::ReadText(std::string_view name, int64_t max_bytes) const {
  KVR_ASSIGN_OR_RETURN(std::string content, Read(name, max_bytes));
  if (absl::Status text = CheckText(content); !text.ok()) {
    return WithContext(FilePath(name), text);
  }
  return content;
}

absl::StatusOr<BundleDirectory> BundleDirectory::Open(const std::string& path) {
  std::string resolved = RealPath(path);
  if (resolved.empty()) {
    return SystemError(errno, StrCat("'", path, "' cannot be opened"),
                       "give a directory that exists");
  }
  KVR_RETURN_IF_ERROR(CheckDirectory(resolved));
  return BundleDirectory(std::move(resolved));
}

absl::StatusOr<std::string> BundleDirectory::Read(std::string_view name, int64_t max_bytes) const {
  const std::string resolved = RealPath(FilePath(name));
  if (resolved.empty()) return Missing(name, errno, FilesIn(path()));
  if (!resolved.starts_with(StrCat(path(), "/"))) {
    return Error(StatusCode::kPermissionDenied,
                 StrCat("'", name, "' is a symlink out of the bundle, to '", resolved, "'"),
                 "copy the file into the bundle");
  }
  for (size_t slash = resolved.find('/', path().size() + 1); slash != std::string::npos;
       slash = resolved.find('/', slash + 1)) {
    KVR_RETURN_IF_ERROR(CheckDirectory(resolved.substr(0, slash)));
  }
  return ReadTrustedFile(resolved, max_bytes);
}

EmbeddedBundle::EmbeddedBundle(std::string_view library, std::string_view directory,
                               const Files& files)
    : BundleFiles(StrCat(library, ":", directory)), directory_(directory), files_(files) {}

absl::StatusOr<std::string> EmbeddedBundle::Read(std::string_view name, int64_t max_bytes) const {
  const std::string prefix = directory_.empty() ? "" : StrCat(directory_, "/");
  const auto found = files_.find(StrCat(prefix, name));
  if (found == files_.end()) {
    std::vector<std::string> others;
    for (const auto& [file, content] : files_) {
      if (file.starts_with(prefix)) others.push_back(file.substr(prefix.size()));
    }
    return Missing(name, ENOENT, others);
  }
  if (static_cast<int64_t>(found->second.size()) > max_bytes) return TooLarge(name, max_bytes);
  return found->second;
}

}  // namespace kvr::bundle
