// SPDX-License-Identifier: Apache-2.0
//
// The binary cache: key → binary, on disk, shared by processes. The key names everything that went
// into the binary (jit/jit.h), so an entry is never stale and never needs a time or a path: the
// directory may be moved, copied or prebuilt.
//
// An entry is one file, <root>/v1/<2 digits>/<key>: written aside, fsynced, renamed, so a reader
// sees all of it or none. Its checksum is verified on every read; a short, corrupt or foreign file
// is a miss and is replaced by the next Put, and so is one that is a symbolic link, belongs to
// somebody else than root or this user, or that others may write: an entry is code. A directory
// that cannot be written, or a full disk, degrades to memory for the rest of the process, and says
// so once.
//
// Root: KVR_CACHE_DIR, else $XDG_CACHE_HOME/kvr, else ~/.cache/kvr; none: memory only.
// Threading: all functions may be called concurrently, by several processes too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/binary.h"

namespace kvr {

// Where warnings go that are no error of the call at hand. May be called from any thread.
using WarningSink = std::function<void(std::string_view)>;

std::string DefaultCacheRoot();  // empty: none can be named

class BinaryCache {
 public:
  // `root` empty: memory only. Touches no file until the first Put or Get.
  explicit BinaryCache(std::string root, WarningSink warn = nullptr);

  // Null: a miss. The binary returned has passed its checksum; two callers share one copy while
  // either holds it.
  BinaryPtr Get(const Fingerprint& key);

  // Keeps `binary` under binary->key. `label` is what List shows ("op/variant {CONFIG}").
  // Never fails for the caller: what cannot be written is kept in memory.
  void Put(BinaryPtr binary, std::string_view label);

  struct Info {
    Fingerprint key;
    std::string label, target, compiler;
    std::vector<std::string> entries;
    int64_t bytes = 0;       // of the binary
    int64_t file_bytes = 0;  // of the entry
    int64_t written = 0;     // seconds since the epoch
    bool valid = true;       // false: a damaged entry; only key, file_bytes and written are set
  };
  // Every entry on disk, newest first, checksums verified.
  std::vector<Info> List() const;

  struct Stats {
    int64_t memory_hits = 0, disk_hits = 0, misses = 0;
    int64_t corrupt = 0;  // of the misses: an entry was there but not usable
    int64_t written = 0, write_failures = 0;
  };
  Stats stats() const;

  const std::string& root() const { return root_; }
  bool on_disk() const { return !root_.empty() && !degraded_.load(std::memory_order_relaxed); }
  std::string PathOf(const Fingerprint& key) const;  // empty without a root

 private:
  struct KeyHash {
    size_t operator()(const Fingerprint& f) const {
      size_t h;
      __builtin_memcpy(&h, f.bytes.data(), sizeof h);
      return h;
    }
  };
  void Degrade(std::string_view why);

  const std::string root_;
  const WarningSink warn_;
  std::atomic<bool> degraded_{false};
  mutable std::mutex mutex_;
  std::unordered_map<Fingerprint, std::weak_ptr<const Binary>, KeyHash> live_;
  std::unordered_map<Fingerprint, BinaryPtr, KeyHash> memory_;  // what is not on disk
  Stats stats_;
};

// The entry's bytes, and back. Null: not a whole, undamaged entry (of `key`, if given).
std::string EncodeEntry(const Binary& binary, std::string_view label);
std::shared_ptr<Binary> DecodeEntry(std::string entry, const Fingerprint* key,
                                    std::string* label = nullptr);

}  // namespace kvr
