// SPDX-License-Identifier: Apache-2.0
//
// The cache directory within its size: what is removed, and what never is.
#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/strings.h"
#include "jit/cache_store.h"

namespace kvr {
namespace {

constexpr int64_t kHourSeconds = 3600;
constexpr std::string_view kStamp = "/trimmed";

bool IsTemporary(std::string_view name) {
  return name.size() > kAsideSuffix.size() &&
         name.substr(name.size() - kAsideSuffix.size()) == kAsideSuffix;
}

// An entry's name, in the shard of its first two digits.
absl::StatusOr<Fingerprint> KeyOf(const std::string& path, std::string_view name) {
  const size_t shard = path.size() - name.size() - 3;
  if (name.substr(0, 2) != std::string_view(path).substr(shard, 2)) {
    return absl::NotFoundError("in another shard than its own");
  }
  return Fingerprint::FromHex(name);
}

EntryFile Described(const Fingerprint& key, const std::string& path, const struct stat& info) {
  return {key, path, info.st_size, info.st_mtim.tv_sec,
          std::max(info.st_atim.tv_sec, info.st_mtim.tv_sec)};
}

void SortByUse(std::vector<EntryFile>* entries) {
  std::sort(entries->begin(), entries->end(), [](const EntryFile& a, const EntryFile& b) {
    return a.used != b.used ? a.used < b.used : a.key < b.key;
  });
}

}  // namespace

template <typename Visit>
void EntryStore::Walk(const Visit& visit) const {
  const std::string top = StrCat(root_, kCacheLayout);
  for (const std::string& digits : NamesIn(top)) {
    if (digits.size() != 2) continue;
    const std::string shard = StrCat(top, "/", digits);
    for (const std::string& name : NamesIn(shard)) {
      const std::string path = StrCat(shard, "/", name);
      struct stat info;
      if (lstat(path.c_str(), &info) == 0) visit(path, name, info);
    }
  }
}

std::vector<EntryFile> EntryStore::Files() const {
  std::vector<EntryFile> found;
  Walk([&](const std::string& path, const std::string& name, const struct stat& info) {
    const absl::StatusOr<Fingerprint> key = KeyOf(path, name);
    if (key.ok()) found.push_back(Described(*key, path, info));
  });
  SortByUse(&found);
  return found;
}

bool EntryStore::Remove(const EntryFile& entry) const {
  return files_.Unlink(entry.path.c_str()) == 0;
}

bool EntryStore::TrimmedLately() const {
  struct stat info;
  return stat(StrCat(root_, kCacheLayout, kStamp).c_str(), &info) == 0 &&
         time(nullptr) - info.st_mtim.tv_sec < kHourSeconds;
}

// A network file system's clock need not be ours.
int64_t EntryStore::Now() const {
  const std::string stamp = StrCat(root_, kCacheLayout, kStamp);
  const File file(files_.Open(stamp.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  struct stat info;
  const bool told =
      file.get() >= 0 && futimens(file.get(), nullptr) == 0 && fstat(file.get(), &info) == 0;
  return told ? info.st_mtim.tv_sec : time(nullptr);
}

Removed EntryStore::Trim(const TrimPolicy& policy) const {
  const int64_t now = Now();
  Removed removed;
  std::set<Fingerprint> only;
  if (policy.only) only.insert(policy.only->begin(), policy.only->end());
  std::vector<EntryFile> entries;
  int64_t total = 0;
  Walk([&](const std::string& path, const std::string& name, const struct stat& info) {
    if (const absl::StatusOr<Fingerprint> key = KeyOf(path, name); key.ok()) {
      if (policy.only && !only.contains(*key)) return;
      entries.push_back(Described(*key, path, info));
      total += info.st_size;
    } else if (IsTemporary(name) && info.st_mtim.tv_sec < now - kHourSeconds) {
      removed.temporaries += files_.Unlink(path.c_str()) == 0;
    }
  });
  SortByUse(&entries);
  for (EntryFile& entry : entries) {
    const bool spared = policy.spare_seconds > 0 && entry.used > now - policy.spare_seconds;
    const bool over = policy.max_bytes >= 0 && total > policy.max_bytes;
    const bool old = policy.unused_seconds >= 0 && entry.used < now - policy.unused_seconds;
    if (spared || (!over && !old)) break;  // those that follow were used later
    if (!Remove(entry)) continue;
    total -= entry.bytes;
    removed.bytes += entry.bytes;
    removed.entries.push_back(std::move(entry));
  }
  return removed;
}

Removed EntryStore::Clear() const {
  Removed removed = Trim({});
  for (EntryFile& entry : Files()) {
    std::error_code error;  // may be a directory
    if (!Remove(entry) && std::filesystem::remove_all(entry.path, error) == 0) continue;
    removed.bytes += entry.bytes;
    removed.entries.push_back(std::move(entry));
  }
  std::error_code ignored;
  std::filesystem::remove_all(StrCat(root_, "/quarantine"), ignored);
  return removed;
}

}  // namespace kvr
