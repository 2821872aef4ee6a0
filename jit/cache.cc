// SPDX-License-Identifier: Apache-2.0
#include "jit/cache.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "core/install_layout.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "jit/cache_layer.h"

namespace kvr {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

std::string DefaultCacheRoot() {
  if (std::string root = Environment("KVR_CACHE_DIR"); !root.empty()) return root;
  if (std::string base = Environment("XDG_CACHE_HOME"); !base.empty()) return base + "/kvr";
  if (std::string home = Environment("HOME"); !home.empty()) return home + "/.cache/kvr";
  return "";
}

CacheOptions DefaultCacheOptions(std::string root, WarningSink warn) {
  CacheOptions options;
  options.root = root.empty() ? DefaultCacheRoot() : std::move(root);
  options.warn = std::move(warn);
  const std::string layers = Environment("KVR_CACHE_LAYERS");
  for (const std::string_view layer : Split(layers, ':')) {
    if (!layer.empty()) options.layers.emplace_back(layer);
  }
  if (std::string installed = InstallPath("share/kvr/cache"); IsDirectory(installed)) {
    options.layers.push_back(std::move(installed));
  }
  if (const std::string text = Environment("KVR_CACHE_MAX_BYTES"); !text.empty()) {
    const absl::StatusOr<int64_t> bytes = ParseInteger(text, /*negative=*/false);
    if (bytes.ok()) {
      options.max_bytes = *bytes;
    } else if (options.warn != nullptr) {
      options.warn(StrCat("KVR_CACHE_MAX_BYTES is ", Quoted(text),
                          ", no number of bytes: ", options.max_bytes, " it is"));
    }
  }
  return options;
}

BinaryCache::BinaryCache(CacheOptions options)
    : options_(std::move(options)),
      files_(options_.files == nullptr ? CacheFiles::System() : *options_.files),
      store_(options_.root, files_) {
  for (const std::string& layer : options_.layers) layers_.emplace_back(layer, files_);
}

BinaryCache::BinaryCache(std::string root, WarningSink warn)
    : BinaryCache([&] {
        CacheOptions options;
        options.root = std::move(root);
        options.warn = std::move(warn);
        return options;
      }()) {}

std::string BinaryCache::PathOf(const Fingerprint& key) const {
  return root().empty() ? "" : store_.PathOf(key);
}

void BinaryCache::WarnOnce(std::atomic<bool>* said, const std::string& message) {
  if (!said->exchange(true) && options_.warn != nullptr) options_.warn(message);
}

BinaryPtr BinaryCache::Held(const Fingerprint& key) {
  if (auto it = memory_.find(key); it != memory_.end()) return it->second;
  const auto live = live_.find(key);
  if (live == live_.end()) return nullptr;
  BinaryPtr held = live->second.lock();
  if (held == nullptr) live_.erase(live);
  return held;
}

// As many steps as entries were made since: a process that builds on and on holds what lives.
void BinaryCache::ForgetDead() {
  if (live_.size() < live_limit_) return;
  std::erase_if(live_, [](const auto& entry) { return entry.second.expired(); });
  live_limit_ = std::max<size_t>(64, 2 * live_.size());
}

BinaryPtr BinaryCache::Keep(BinaryPtr binary) {
  ForgetDead();
  std::weak_ptr<const Binary>& live = live_[binary->key];
  if (BinaryPtr other = live.lock()) return other;  // another thread read it meanwhile
  live = binary;
  return binary;
}

BinaryPtr BinaryCache::ReadFrom(const EntryStore& store, const Fingerprint& key, bool writable) {
  CacheEntry entry = store.Read(key, /*use=*/writable);
  if (entry.binary != nullptr) return std::move(entry.binary);
  if (entry.damage.empty() && (entry.error == ENOENT || entry.error == ENOTDIR)) return nullptr;
  const bool damaged = !entry.damage.empty();
  const bool moved = damaged && writable && store.Quarantine(key, entry);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.corrupt;
    stats_.quarantined += moved;
  }
  WarnOnce(&said_damage_,
           StrCat("the cache entry ", store.PathOf(key), " ",
                  damaged ? entry.damage : StrCat("cannot be read: ", strerror(entry.error)),
                  moved ? ": moved to quarantine/ there" : "",
                  "; compiling anew. `kvr cache verify` ", "checks all of them"));
  return nullptr;
}

BinaryPtr BinaryCache::FromDisk(const Fingerprint& key, bool* in_layer) {
  *in_layer = true;
  for (const EntryStore& layer : layers_) {
    if (BinaryPtr binary = ReadFrom(layer, key, /*writable=*/false)) return binary;
  }
  *in_layer = false;
  // A degraded cache still reads: a full or read-only disk serves what it has.
  return root().empty() ? nullptr : ReadFrom(store_, key, /*writable=*/true);
}

BinaryPtr BinaryCache::Get(const Fingerprint& key) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (BinaryPtr held = Held(key)) {
      ++stats_.memory_hits;
      return held;
    }
  }
  bool in_layer = false;
  BinaryPtr binary = FromDisk(key, &in_layer);
  if (binary == nullptr) {
    std::call_once(layers_checked_, [this] {
      for (const EntryStore& layer : layers_) {
        if (IsDirectory(layer.root()) || options_.warn == nullptr) continue;
        options_.warn(StrCat("the cache layer ", layer.root(), " is no directory: going without"));
      }
    });
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (binary == nullptr) {
    ++stats_.misses;
    return nullptr;
  }
  ++(in_layer ? stats_.layer_hits : stats_.disk_hits);
  return Keep(std::move(binary));
}

std::unique_ptr<KeyLock> BinaryCache::Claim(const Fingerprint& key, BinaryPtr* published) {
  *published = nullptr;
  if (!on_disk()) return nullptr;
  const std::chrono::milliseconds wait =
      impatient_ ? std::chrono::milliseconds(0) : options_.lock_wait;
  auto lock = std::make_unique<KeyLock>(files_, StrCat(root(), kCacheLayout), key, wait);
  const bool held = lock->outcome() == KeyLock::Outcome::kHeld;
  if (!held) {
    const bool timed_out = lock->outcome() == KeyLock::Outcome::kTimedOut;
    if (timed_out) impatient_ = true;
    WarnOnce(&said_lock_,
             StrCat("the lock ", root(), kCacheLayout, "/lock ",
                    timed_out ? StrCat("is held by another process for longer than ",
                                       options_.lock_wait.count() / 1000.0, " s")
                              : StrCat("cannot be had (", strerror(lock->error()), ")"),
                    ": compiling without it, perhaps what another process compiles too"));
  }
  // Whoever had the lock has published before giving it back.
  BinaryPtr binary = ReadFrom(store_, key, /*writable=*/true);
  std::lock_guard<std::mutex> state(mutex_);
  stats_.lock_failures += !held;
  if (binary != nullptr) {
    ++stats_.disk_hits;
    *published = Keep(std::move(binary));
  }
  return held ? std::move(lock) : nullptr;
}

void BinaryCache::Put(BinaryPtr binary, std::string_view label) {
  int error = 0;
  int64_t bytes = 0;
  const bool try_disk = on_disk();
  if (try_disk) {
    const std::string entry = EncodeEntry(*binary, label);
    bytes = static_cast<int64_t>(entry.size());
    error = store_.Write(binary->key, entry);
  }
  const bool kept = try_disk && error == 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (kept) {
      ++stats_.written;
      ForgetDead();
      live_[binary->key] = binary;
    } else {
      memory_[binary->key] = binary;
      stats_.write_failures += try_disk;
    }
  }
  if (kept) TrimIfDue(bytes);
  if (error == 0) return;
  degraded_ = true;
  WarnOnce(&said_degraded_,
           StrCat("the binary cache at ", root(), " cannot be written (", strerror(error),
                  "): keeping binaries in memory; set KVR_CACHE_DIR to a directory with space that "
                  "you may write"));
}

void BinaryCache::TrimIfDue(int64_t bytes) {
  if (options_.max_bytes == 0) return;
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    first = untrimmed_ < 0;
    untrimmed_ = first ? bytes : untrimmed_ + bytes;
    if (!first && untrimmed_ < options_.max_bytes / 16) return;
    untrimmed_ = 0;  // whoever comes next need not
  }
  if (first && store_.TrimmedLately()) return;
  // As much is free then as this process writes until its next turn.
  const Removed removed =
      store_.Trim({.max_bytes = options_.max_bytes - options_.max_bytes / 16, .spare_seconds = 60});
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.trimmed += static_cast<int64_t>(removed.entries.size());
}

void BinaryCache::ReadManifests() {
  std::vector<const EntryStore*> stores;
  for (const EntryStore& layer : layers_) stores.push_back(&layer);
  if (!root().empty()) stores.push_back(&store_);
  for (const EntryStore* store : stores) {
    absl::StatusOr<LayerManifest> manifest = ReadManifest(store->root(), files_);
    if (!manifest.ok()) {
      if (!absl::IsNotFound(manifest.status()) && options_.warn != nullptr) {
        options_.warn(What(manifest.status()));
      }
      continue;
    }
    for (LayerBinary& binary : manifest->binaries) {
      LayerBinary& listed = listed_[binary.target][binary.source];
      if (listed.compiler.empty() || listed.compiler < binary.compiler) listed = std::move(binary);
    }
  }
}

std::optional<Fingerprint> BinaryCache::FindSource(const Fingerprint& source,
                                                   std::string_view target) {
  std::call_once(manifests_read_, [this] { ReadManifests(); });
  const auto for_target = listed_.find(target);
  if (for_target == listed_.end()) return std::nullopt;
  const auto found = for_target->second.find(source);
  if (found == for_target->second.end()) return std::nullopt;
  return found->second.key;
}

bool BinaryCache::ListsTarget(std::string_view target) {
  std::call_once(manifests_read_, [this] { ReadManifests(); });
  return listed_.contains(target);
}

std::vector<BinaryCache::Info> BinaryCache::List() const {
  std::vector<Info> list;
  const auto add = [&](const EntryStore& store) {
    const size_t begin = list.size();
    for (const EntryFile& file : store.Files()) {
      CacheEntry entry = store.Read(file.key, /*use=*/false);
      if (entry.binary == nullptr && entry.error == ENOENT) continue;  // gone meanwhile
      Info& info = list.emplace_back();
      info.key = file.key;
      info.layer = store.root();
      info.file_bytes = file.bytes;
      info.written = file.written;
      info.used = file.used;
      if (entry.binary == nullptr) {
        info.damage = !entry.damage.empty() ? entry.damage
                                            : StrCat("cannot be read: ", strerror(entry.error));
        continue;
      }
      const Binary& binary = *entry.binary;
      info.label = std::move(entry.label);
      info.source = binary.source;
      info.target = binary.target;
      info.compiler = binary.compiler;
      info.bytes = static_cast<int64_t>(binary.bytes.size());
      for (const BinaryKernel& kernel : binary.kernels) info.entries.push_back(kernel.entry);
    }
    std::sort(list.begin() + static_cast<std::ptrdiff_t>(begin), list.end(),
              [](const Info& a, const Info& b) {
                return a.written != b.written ? a.written > b.written : a.key < b.key;
              });
  };
  for (const EntryStore& layer : layers_) add(layer);
  if (!root().empty()) add(store_);
  return list;
}

BinaryCache::Stats BinaryCache::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

}  // namespace kvr
