// SPDX-License-Identifier: Apache-2.0
#include "jit/cache_store.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/strings.h"
#include "jit/cache.h"

namespace kvr {
namespace {

constexpr std::string_view kQuarantine = "/quarantine";

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

std::string EntryStore::PathOf(const Fingerprint& key) const {
  const std::string hex = key.Hex();
  return StrCat(root_, kCacheLayout, "/", std::string_view(hex).substr(0, 2), "/", hex);
}

CacheEntry EntryStore::Read(const Fingerprint& key, bool use) const {
  CacheEntry entry;
  const std::string path = PathOf(key);
  WholeFile whole = ReadWhole(files_, path, kMaxEntryBytes, !use);
  entry.info = whole.info;
  if (!whole.damage.empty()) {
    if (whole.error != 0 && lstat(path.c_str(), &entry.info) != 0) entry.error = errno;
    entry.damage = std::move(whole.damage);
    return entry;
  }
  entry.error = whole.error;
  if (entry.error != 0) return entry;
  const size_t size = whole.content.size();
  entry.binary = DecodeEntry(std::move(whole.content), &key, &entry.label);
  if (entry.binary == nullptr) {
    entry.damage = size == 0 ? "is empty" : "is no whole, undamaged entry of this key";
    return entry;
  }
  const int64_t used = std::max(whole.info.st_atim.tv_sec, whole.info.st_mtim.tv_sec);
  // Where it is not ours to set, it stays old.
  if (use && time(nullptr) - used > kDaySeconds) files_.MarkUsed(path.c_str());
  return entry;
}

int EntryStore::Write(const Fingerprint& key, std::string_view entry) const {
  return WriteAtomically(files_, PathOf(key), entry);
}

bool EntryStore::Quarantine(const Fingerprint& key, const CacheEntry& damaged) const {
  const std::string path = PathOf(key), directory = StrCat(root_, kQuarantine);
  if (MakeDirectories(files_, directory) != 0) return false;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);  // names sort by time
  const std::string aside = StrCat(directory, "/", now.tv_sec, ".",
                                   absl::Dec(now.tv_nsec, absl::kZeroPad9), ".", key.Hex());
  // Another process may have put a good entry there since; then that one must stay.
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !SameFile(info, damaged.info)) return false;
  if (files_.Rename(path.c_str(), aside.c_str()) != 0) return false;
  const std::vector<std::string> names = NamesIn(directory);  // oldest first, by name
  for (size_t i = 0; i + kQuarantined < names.size(); ++i) {
    std::error_code ignored;  // may be a directory
    std::filesystem::remove_all(StrCat(directory, "/", names[i]), ignored);
  }
  return true;
}

std::vector<std::string> EntryStore::Quarantined() const {
  return NamesIn(StrCat(root_, kQuarantine));
}

}  // namespace kvr
