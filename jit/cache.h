// SPDX-License-Identifier: Apache-2.0
//
// The binary cache: key → binary, on disk, shared by processes. The key names everything that went
// into the binary (jit/jit.h), so an entry is never stale and never needs a time or a path: a
// directory may be moved, copied or prebuilt (docs/formats.md has its layout).
//
// Looked for in this order: what this process holds; the read-only layers, as listed; the user's
// directory. Layers are never written, quarantined into or trimmed. An entry's checksum is verified
// on every read. What is short, corrupt or foreign, a directory or a link in an entry's place, or a
// file that somebody else could have written (an entry is code: jit/cache_files.h) is a miss: moved
// into the user's quarantine, counted, said once, and compiled anew. A directory that cannot be
// written, or a full disk, degrades to memory for the rest of the process, and says so once.
//
// The user's directory is kept within its size: the first Put of a process, unless another did so
// within the hour, and each sixteenth of the size that it writes, removes what was used longest
// ago until a sixteenth is free, sparing what was used in the last minute.
//
// Threading: all functions may be called concurrently, by several processes too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "jit/cache_layer.h"
#include "jit/cache_lock.h"
#include "jit/cache_store.h"

namespace kvr {

// Where warnings go that are no error of the call at hand. May be called from any thread.
using WarningSink = std::function<void(std::string_view)>;

struct CacheOptions {
  std::string root;                             // empty: memory only
  std::vector<std::string> layers;              // read-only, searched in this order, before root
  int64_t max_bytes = int64_t{2} << 30;         // of the entries under root; 0: no limit
  std::chrono::milliseconds lock_wait{120000};  // for another process to compile the same key
  WarningSink warn;
  CacheFiles* files = nullptr;  // null: the system's
};

// KVR_CACHE_DIR, else $XDG_CACHE_HOME/kvr, else ~/.cache/kvr; empty: none can be named.
std::string DefaultCacheRoot();
// `root`, or the default one if it is empty; KVR_CACHE_LAYERS (colon separated), then
// <prefix>/share/kvr/cache where it exists; KVR_CACHE_MAX_BYTES.
CacheOptions DefaultCacheOptions(std::string root, WarningSink warn);

class BinaryCache {
 public:
  // Touches no file until the first Put or Get.
  explicit BinaryCache(CacheOptions options);
  explicit BinaryCache(std::string root, WarningSink warn = nullptr);

  // Null: a miss. The binary returned has passed its checksum; two callers share one copy while
  // either holds it.
  BinaryPtr Get(const Fingerprint& key);

  // For a key that Get missed: to be held while compiling it, so that one process does. Waits for
  // another one's compile, `lock_wait` once, then not again; *published is what that one left, or
  // null: compile. Null where there is no lock to be had; that is said once and changes nothing.
  std::unique_ptr<KeyLock> Claim(const Fingerprint& key, BinaryPtr* published);

  // Keeps `binary` under binary->key. `label` is what List shows ("op/variant {CONFIG}").
  // Never fails for the caller: what cannot be written is kept in memory.
  void Put(BinaryPtr binary, std::string_view label);

  // The key under which a layer's manifest lists a binary of this source for `target`; where
  // several compilers made one, of the last by name. For a machine that has no compiler.
  std::optional<Fingerprint> FindSource(const Fingerprint& source, std::string_view target);
  bool ListsTarget(std::string_view target);  // does any manifest?

  struct Info {
    Fingerprint key, source;
    std::string layer;  // the directory it lies in
    std::string label, target, compiler;
    std::vector<std::string> entries;
    int64_t bytes = 0;              // of the binary
    int64_t file_bytes = 0;         // of the entry
    int64_t written = 0, used = 0;  // seconds since the epoch
    std::string damage;             // not empty: unusable; then only key, layer, sizes and times
    bool valid() const { return damage.empty(); }
  };
  // Every entry on disk, layers first, newest first; checksums verified, times left alone.
  std::vector<Info> List() const;

  struct Stats {
    int64_t memory_hits = 0, layer_hits = 0, disk_hits = 0, misses = 0;
    int64_t corrupt = 0;      // entries that were there but not usable
    int64_t quarantined = 0;  // ... of these, moved aside
    int64_t written = 0, write_failures = 0, trimmed = 0;
    int64_t lock_failures = 0;  // compiled without the lock
  };
  Stats stats() const;

  const std::string& root() const { return store_.root(); }
  const std::vector<EntryStore>& layers() const { return layers_; }
  const EntryStore& store() const { return store_; }  // the user's directory
  int64_t max_bytes() const { return options_.max_bytes; }
  bool on_disk() const { return !root().empty() && !degraded_.load(std::memory_order_relaxed); }
  std::string PathOf(const Fingerprint& key) const;  // in the user's directory; empty without one

 private:
  struct KeyHash {
    size_t operator()(const Fingerprint& f) const {
      size_t h;
      __builtin_memcpy(&h, f.bytes.data(), sizeof h);
      return h;
    }
  };
  BinaryPtr Held(const Fingerprint& key);  // under mutex_
  BinaryPtr ReadFrom(const EntryStore& store, const Fingerprint& key, bool writable);
  BinaryPtr FromDisk(const Fingerprint& key, bool* in_layer);
  BinaryPtr Keep(BinaryPtr binary);  // under mutex_
  void ForgetDead();                 // under mutex_
  void TrimIfDue(int64_t bytes);
  void ReadManifests();
  void WarnOnce(std::atomic<bool>* said, const std::string& message);

  const CacheOptions options_;
  CacheFiles& files_;
  const EntryStore store_;
  std::vector<EntryStore> layers_;
  std::atomic<bool> degraded_{false}, impatient_{false};
  std::atomic<bool> said_degraded_{false}, said_damage_{false}, said_lock_{false};
  std::once_flag layers_checked_, manifests_read_;
  std::map<std::string, std::map<Fingerprint, LayerBinary>, std::less<>> listed_;  // by source
  mutable std::mutex mutex_;
  std::unordered_map<Fingerprint, std::weak_ptr<const Binary>, KeyHash> live_;
  size_t live_limit_ = 64;  // entries of live_ at which dead ones are forgotten
  std::unordered_map<Fingerprint, BinaryPtr, KeyHash> memory_;  // what is not on disk
  int64_t untrimmed_ = -1;  // bytes written since this process trimmed; negative: not yet looked
  Stats stats_;
};

// The entry's bytes, and back. Null: not a whole, undamaged entry (of `key`, if given).
std::string EncodeEntry(const Binary& binary, std::string_view label);
std::shared_ptr<Binary> DecodeEntry(std::string entry, const Fingerprint* key,
                                    std::string* label = nullptr);

}  // namespace kvr
