// SPDX-License-Identifier: Apache-2.0
//
// One cache directory: entries by key, the quarantine, and what keeps it within its size.
//
//   <root>/v2/<2 digits>/<key>   an entry (jit/entry.cc), named by 64 hex digits
//   <root>/v2/lock               jit/cache_lock.h
//   <root>/v2/trimmed            when the directory was last kept within its size
//   <root>/quarantine/           entries that were damaged; the newest kQuarantined of them
//   <root>/manifest.json         an exported layer's contents (jit/cache_layer.h)
//
// An entry is written aside, flushed and renamed, so a reader sees all of it or none; its checksum
// is verified at every read. When it was last used is its access time, which the cache sets itself
// at most once a day: a hit costs no write, and a file system mounted noatime does as well.
//
// Threading: all functions may be called concurrently, by several processes too. Never throws.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/binary.h"
#include "jit/cache_files.h"

namespace kvr {

inline constexpr std::string_view kCacheLayout = "/v2";
inline constexpr int64_t kMaxEntryBytes = int64_t{1} << 30;
inline constexpr size_t kQuarantined = 32;
inline constexpr int64_t kDaySeconds = 86400;

struct CacheEntry {
  std::shared_ptr<Binary> binary;  // null: a miss
  std::string label;               // as Write was given it
  std::string damage;              // of a miss: what is wrong with what lies there
  int error = 0;                   // of a miss: errno; 0 where `damage` says it all
  struct stat info = {};
};

struct EntryFile {
  Fingerprint key;
  std::string path;
  int64_t bytes = 0;
  int64_t written = 0, used = 0;  // seconds since the epoch
};

struct TrimPolicy {
  int64_t max_bytes = -1;       // of all entries; negative: any number
  int64_t unused_seconds = -1;  // remove what was not used for longer; negative: however long
  int64_t spare_seconds = 0;    // what was used this recently stays, whatever the size
  std::optional<std::vector<Fingerprint>> only;  // these entries alone are counted and removed
};

struct Removed {
  std::vector<EntryFile> entries;
  int64_t bytes = 0;    // of these
  int temporaries = 0;  // left by writers that died
};

class EntryStore {
 public:
  EntryStore(std::string root, CacheFiles& files) : root_(std::move(root)), files_(files) {}

  const std::string& root() const { return root_; }
  std::string PathOf(const Fingerprint& key) const;

  // `use`: note that the entry was used. False leaves its times as they are.
  CacheEntry Read(const Fingerprint& key, bool use) const;
  int Write(const Fingerprint& key, std::string_view entry) const;  // 0 or errno

  // Moves what Read called damaged aside. False: it could not be, or is no longer what was read.
  bool Quarantine(const Fingerprint& key, const CacheEntry& damaged) const;
  std::vector<std::string> Quarantined() const;  // names

  // Whatever is named by a key, longest unused first.
  std::vector<EntryFile> Files() const;

  // Removes entries longest unused first, as the policy says, and temporaries that nobody has
  // touched for an hour: their writers died. What is being published is never removed.
  Removed Trim(const TrimPolicy& policy) const;
  bool TrimmedLately() const;  // within an hour, by any process
  // All entries, such temporaries, and the quarantine. Leaves what the cache did not make.
  Removed Clear() const;
  bool Remove(const EntryFile& entry) const;

 private:
  template <typename Visit>
  void Walk(const Visit& visit) const;  // visit(path, name, info) of every name in a shard
  int64_t Now() const;                  // by the clock that stamps the files; marks v2/trimmed
  const std::string root_;
  CacheFiles& files_;
};

}  // namespace kvr
