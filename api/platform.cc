// SPDX-License-Identifier: Apache-2.0
#include "api/platform.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "api/host_library.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/cuda.h"
#include "devices/null/null.h"
#include "devices/profiles.h"
#include "jit/cache_layer.h"
#include "jit/nvrtc/nvrtc.h"
#include "jit/sdk.h"
#include "plugins/roots.h"
#include "plugins/scan.h"

namespace kvr {
namespace {

using State = Component::State;

Component Ready(std::string name, std::string found) {
  return {std::move(name), State::kReady, std::move(found), "", ""};
}

// "what; fix", or what alone.
std::string Explain(const absl::Status& status) {
  const std::string_view fix = Fix(status);
  return fix.empty() ? std::string(What(status)) : StrCat(What(status), "; ", fix);
}

// Not found is a fact of the machine; anything else is a fault in what is there.
Component NotReady(std::string name, const absl::Status& status) {
  const bool missing =
      absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsUnimplemented(status);
  return {std::move(name), missing ? State::kMissing : State::kBroken, "", Explain(status), ""};
}

// Can `directory` be made, and a file in it? Tried, not asked: permissions are not the only reason.
bool CanWrite(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::string probe = directory + "/probe-XXXXXX";
  const int file = error ? -1 : mkstemp(probe.data());
  if (file < 0) return false;
  const bool written = write(file, "x", 1) == 1;
  close(file);
  unlink(probe.c_str());
  return written;
}

void SayOnStderr(std::string_view text) {
  std::fprintf(stderr, "kvr: %.*s\n", static_cast<int>(text.size()), text.data());
}

// A read-only layer of the cache, and what it is good for where it says so.
Component LayerComponent(const EntryStore& layer) {
  std::error_code error;
  if (!std::filesystem::is_directory(layer.root(), error)) {
    return {"cache layer", State::kMissing, layer.root(),
            StrCat(layer.root(), " is no directory; `kvr cache export` makes one"), ""};
  }
  const absl::StatusOr<LayerManifest> manifest = ReadManifest(layer.root());
  if (absl::IsNotFound(manifest.status())) return Ready("cache layer", layer.root());
  if (!manifest.ok()) return NotReady("cache layer", manifest.status());
  Component component =
      Ready("cache layer", StrCat(layer.root(), ": ", manifest->binaries.size(), " binaries for ",
                                  StrJoin(manifest->targets(), ", ")));
  component.detail = StrCat("made by ", StrJoin(manifest->compilers(), ", "));
  return component;
}

Component VariantsComponent(const Catalog& catalog, const std::vector<std::string>& roots) {
  size_t variants = 0;
  for (const auto& op : catalog.ops()) variants += op->variants.size();
  const std::string found = StrCat(
      variants, variants == 1 ? " variant of " : " variants of ", catalog.ops().size(),
      catalog.ops().size() == 1 ? " operation, from " : " operations, from ", StrJoin(roots, ", "));
  Component component = Ready("variants", found);
  for (const auto& op : catalog.ops()) {
    if (op->baseline == nullptr) {
      component.state = State::kMissing;
      component.explanation = StrCat(op->name(), " has no baseline: nothing can launch it");
    }
  }
  return component;
}

// The install's own plugins are as trusted as its executable; others are tried apart first.
std::function<absl::Status(const std::string&)> CheckStrangers(
    std::function<absl::Status(const std::string&)> check) {
  if (check == nullptr || BuiltinPluginsDirectory().empty()) return check;
  std::error_code error;
  const std::string own =
      std::filesystem::weakly_canonical(BuiltinPluginsDirectory(), error).string() + "/";
  return [check = std::move(check), own](const std::string& path) {
    return path.starts_with(own) ? absl::OkStatus() : check(path);
  };
}

}  // namespace

struct Platform::Impl {
  explicit Impl(Catalog filled) : catalog(std::move(filled)) {}

  PlatformOptions options;
  Catalog catalog;
  std::vector<std::string> roots;
  absl::StatusOr<std::string> sdk;
  std::string sdk_dir;
  std::unique_ptr<BinaryCache> cache;

  // Opened when first needed: `kvr list` and a boot from the cache load no compiler, no driver.
  std::once_flag jit_once, components_once;
  std::unique_ptr<Jit> jit;
  std::vector<Component> compiler_components;
  std::vector<Component> components;

  void OpenCompilers();
  void Describe();
};

void Platform::Impl::OpenCompilers() {
  std::vector<std::unique_ptr<Compiler>> compilers;
  const auto take = [&](std::string name, absl::StatusOr<std::unique_ptr<Compiler>> compiler) {
    if (!compiler.ok()) {
      compiler_components.push_back(NotReady(std::move(name), compiler.status()));
      return;
    }
    const std::string& identity = (*compiler)->identity();  // name, version, then build ids
    Component component =
        Ready(std::move(name), identity.substr(0, identity.find(' ', identity.find(' ') + 1)));
    component.detail = identity;
    compiler_components.push_back(std::move(component));
    compilers.push_back(*std::move(compiler));
  };
  if (options.compilers) {
    take("nvrtc", MakeNvrtcCompiler({.sdk_dir = sdk_dir}));
    take("clang", MakeHostCompiler(sdk_dir));
  }
  jit = std::make_unique<Jit>(std::move(compilers), cache.get());
}

void Platform::Impl::Describe() {
  components.push_back(VariantsComponent(catalog, roots));
  for (const Rejection& rejection : catalog.rejections()) {
    components.push_back({"bundle", State::kBroken, rejection.path, Explain(rejection.status), ""});
  }
  components.push_back(sdk.ok() ? Ready("device headers", *sdk)
                                : NotReady("device headers", sdk.status()));
  components.insert(components.end(), compiler_components.begin(), compiler_components.end());

  const absl::StatusOr<int> gpus = CudaDeviceCount();
  components.push_back(gpus.ok()
                           ? Ready("cuda", StrCat(*gpus, *gpus == 1 ? " GPU" : " GPUs"))
                           : Component{"cuda", State::kMissing, "", Explain(gpus.status()), ""});
  const absl::StatusOr<std::string> host = HostLibraryPath();
  components.push_back(host.ok() ? Ready("host module", *host)
                                 : NotReady("host module", host.status()));

  for (const EntryStore& layer : cache->layers()) components.push_back(LayerComponent(layer));
  if (cache->on_disk() && CanWrite(cache->root())) {
    components.push_back(Ready("cache", cache->root()));
  } else {
    components.push_back({"cache", State::kMissing, "memory only",
                          cache->root().empty()
                              ? "no directory can be named; set KVR_CACHE_DIR"
                              : StrCat(cache->root(), " cannot be written; set KVR_CACHE_DIR"),
                          ""});
  }
  const absl::StatusOr<std::vector<std::string>> profiles = ListProfiles();
  components.push_back(profiles.ok() ? Ready("profiles", StrJoin(*profiles, ", "))
                                     : NotReady("profiles", profiles.status()));
}

std::string_view StateName(Component::State state) {
  switch (state) {
    case Component::State::kReady:
      return "ready";
    case Component::State::kMissing:
      return "missing";
    case Component::State::kBroken:
      return "broken";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Platform>> Platform::Open(const PlatformOptions& options) {
  const std::vector<std::string> roots = PluginRoots(options.plugin_roots);
  Scan scan = ScanPlugins(roots, {.check_load = CheckStrangers(options.check_plugin)});
  KVR_ASSIGN_OR_RETURN(Catalog catalog, Catalog::Create(std::move(scan.operations)));
  catalog.Add(std::move(scan));
  auto impl = std::make_unique<Impl>(std::move(catalog));
  impl->options = options;
  impl->roots = roots;
  impl->sdk = FindSdkDir();
  if (impl->sdk.ok()) impl->sdk_dir = *impl->sdk;
  CacheOptions cache =
      DefaultCacheOptions(options.cache_dir, options.warn != nullptr ? options.warn : SayOnStderr);
  cache.layers.insert(cache.layers.begin(), options.cache_layers.begin(),
                      options.cache_layers.end());
  impl->cache = std::make_unique<BinaryCache>(std::move(cache));
  return std::unique_ptr<Platform>(new Platform(std::move(impl)));
}

Platform::Platform(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Platform::~Platform() = default;

const Catalog& Platform::catalog() const { return impl_->catalog; }
BinaryCache& Platform::cache() const { return *impl_->cache; }
const std::string& Platform::sdk_dir() const { return impl_->sdk_dir; }

Jit& Platform::jit() const {
  std::call_once(impl_->jit_once, [this] { impl_->OpenCompilers(); });
  return *impl_->jit;
}

const std::vector<Component>& Platform::components() const {
  jit();
  std::call_once(impl_->components_once, [this] { impl_->Describe(); });
  return impl_->components;
}

absl::StatusOr<std::unique_ptr<Device>> Platform::OpenDevice(std::string_view name) const {
  if (name == "null") return OpenNull();
  if (name == "host") return OpenHostDevice();
  if (name == "cuda") return OpenCuda(0);
  if (name.substr(0, 5) == "cuda:") {
    const absl::StatusOr<int64_t> ordinal = ParseInteger(name.substr(5), /*negative=*/false);
    if (!ordinal.ok() || *ordinal > 1023) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("device ", Quoted(name), " has no GPU number"),
                   "number them from 0, as in cuda:1");
    }
    return OpenCuda(static_cast<int>(*ordinal));
  }
  if (name != "auto") {
    return UnknownName("device", name, {"auto", "cuda", "cuda:0", "host", "null"});
  }
  // A GPU that is there but does not open is an error, not a reason to go and be slow elsewhere.
  const absl::StatusOr<int> gpus = CudaDeviceCount();
  if (gpus.ok()) return OpenCuda(0);
  absl::StatusOr<std::unique_ptr<Device>> host = OpenHostDevice();
  if (host.ok()) return host;
  return Error(absl::StatusCode::kUnavailable,
               StrCat("no device: cuda: ", What(gpus.status()), "; host: ", What(host.status())),
               "`kvr doctor` says what is missing");
}

std::vector<std::string> Platform::DeviceNames() const {
  std::vector<std::string> names;
  const absl::StatusOr<int> gpus = CudaDeviceCount();
  for (int i = 0; gpus.ok() && i < *gpus; ++i) names.push_back(StrCat("cuda:", i));
  if (HostLibraryPath().ok()) names.push_back("host");
  names.push_back("null");
  return names;
}

std::vector<std::string> Platform::CompilableTargets() const {
  std::vector<std::string> targets;
  for (const std::string& target : jit().targets()) {
    const auto known = KnownTargets();
    if (std::find(known.begin(), known.end(), target) != known.end()) targets.push_back(target);
  }
  return targets;
}

}  // namespace kvr
