// SPDX-License-Identifier: Apache-2.0
#include "api/host_library.h"

#include <dlfcn.h>

#include <mutex>
#include <utility>

#include "core/install_layout.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/host_module.h"

namespace kvr {
namespace {

absl::StatusOr<HostModule> Load() {
  KVR_ASSIGN_OR_RETURN(const std::string path, HostLibraryPath());
  const auto refuse = [&](std::string_view why) {
    return Error(absl::StatusCode::kFailedPrecondition, StrCat(path, ": ", why),
                 "use the libkvr_host.so of this build; KVR_HOST_MODULE can name it");
  };
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return refuse(error == nullptr ? "cannot be loaded" : error);
  }
  auto* entry = reinterpret_cast<HostModuleEntry*>(dlsym(library, kHostModuleEntryName));
  HostModule module;
  if (entry == nullptr) return refuse("not a KVR host module");
  if (entry(&module) != 0 || module.create_device == nullptr || module.abi != kHostModuleAbi) {
    return refuse(StrCat("it was built from other headers (",
                         absl::Hex(module.abi, absl::kZeroPad8), ") than this KVR (",
                         absl::Hex(kHostModuleAbi, absl::kZeroPad8), ")"));
  }
  return module;
}

// Only success is kept: who mends KVR_HOST_MODULE and asks again gets another try.
absl::StatusOr<HostModule> Loaded() {
  static std::mutex mutex;
  static HostModule loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded.create_device == nullptr) {
    KVR_ASSIGN_OR_RETURN(loaded, Load());
  }
  return loaded;
}

}  // namespace

absl::StatusOr<std::string> HostLibraryPath() {
  return FindPart({"the host module", "KVR_HOST_MODULE", "lib/libkvr_host.so", "",
                   "unpack the kvr-host archive there, or build it with Clang 19's development "
                   "package, or let KVR_HOST_MODULE name it"});
}

absl::StatusOr<std::unique_ptr<Device>> OpenHostDevice() {
  const absl::StatusOr<HostModule> module = Loaded();
  if (!module.ok()) return WithContext("host device", module.status());
  return module->create_device();
}

absl::StatusOr<std::unique_ptr<Compiler>> MakeHostCompiler(const std::string& sdk_dir) {
  const absl::StatusOr<HostModule> module = Loaded();
  if (!module.ok()) return WithContext("host compiler", module.status());
  absl::Status status;
  std::unique_ptr<Compiler> compiler(module->create_compiler(sdk_dir.c_str(), &status));
  if (compiler == nullptr) return status;
  return compiler;
}

}  // namespace kvr
