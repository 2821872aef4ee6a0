// SPDX-License-Identifier: Apache-2.0
//
// The composition root: finds what this machine has (variants, device headers, compilers, devices,
// a cache) and puts the houses together. Whatever is missing is explained, never fatal: a machine
// without CUDA runs on host, one without Clang compiles for GPUs only.
//
//   KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, Platform::Open({}));
//   KVR_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, platform->OpenDevice("auto"));
//
// Threading: Open from one thread; then everything is callable from any. Ownership: the platform
// owns catalog, compilers and cache and outlives its devices. The host module stays loaded for the
// life of the process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/device.h"
#include "jit/cache.h"
#include "jit/jit.h"
#include "registry/catalog.h"

namespace kvr {

struct PlatformOptions {
  std::vector<std::string> plugin_roots;  // after the built-in variants and KVR_PLUGIN_PATH
  std::string cache_dir;                  // empty: KVR_CACHE_DIR, XDG_CACHE_HOME/kvr, ~/.cache/kvr
  std::vector<std::string> cache_layers;  // read-only, before those of KVR_CACHE_LAYERS
  bool compilers = true;                  // false: boot from the cache alone
  // Asked, with its path, before code of a plugin is loaded that is not a built-in one. Who runs
  // what nobody has vouched for gives TryPlugin (tuner/worker/try_plugin.h); null: it is loaded.
  std::function<absl::Status(const std::string& path)> check_plugin;
  WarningSink warn;  // null: a line on standard error
};

// One thing that KVR looked for: `kvr doctor` prints them all.
struct Component {
  enum class State { kReady, kMissing, kBroken };
  std::string name;  // "nvrtc", "cuda driver", "host module", "variants", ...
  State state = State::kReady;
  std::string found;        // what and where: "NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)"
  std::string explanation;  // when not ready: what is wrong and what would make it right
  std::string detail;       // a compiler's whole identity, for reports
};
std::string_view StateName(Component::State state);  // "ready", "missing", "broken"

class Platform {
 public:
  // Fails only when the built-in operations contradict themselves.
  static absl::StatusOr<std::unique_ptr<Platform>> Open(const PlatformOptions& options);
  ~Platform();

  const Catalog& catalog() const;
  Jit& jit() const;  // the first call loads the compilers
  BinaryCache& cache() const;
  const std::vector<Component>& components() const;
  const std::string& sdk_dir() const;  // device headers: <sdk_dir>/kvr/device.cuh

  // "cuda", "cuda:N", "host", "null", or "auto": cuda where a device answers, else host, else an
  // error that explains both. Not cached: every call opens one.
  absl::StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view name) const;
  // The names that OpenDevice would take here, best first: "cuda:0", ..., "host", "null".
  std::vector<std::string> DeviceNames() const;
  // What `kvr compile` takes without --target: the targets that a compiler here supports.
  std::vector<std::string> CompilableTargets() const;

 private:
  struct Impl;
  explicit Platform(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
