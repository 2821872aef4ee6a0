// SPDX-License-Identifier: Apache-2.0
//
// The one door into libkvr_host.so: the host device and the compiler for it (Clang's libraries,
// static, symbols hidden). The module is the only part of KVR that links Clang; whoever wants the
// host device loads it with dlopen and asks for `kvr_host_module_v1`. It must stay loaded while
// anything made by it lives: never unload it.
//
// Threading: the entry and both functions may be called from any thread. Module and caller must be
// built from one source tree (they share C++ types); `abi` refuses the rest.
//
//   HostModule module;
//   auto entry = reinterpret_cast<HostModuleEntry*>(dlsym(library, kHostModuleEntryName));
//   if (entry == nullptr || entry(&module) != 0 || module.abi != kHostModuleAbi) → refuse
//   std::unique_ptr<Device> device = *module.create_device();
//   std::unique_ptr<Compiler> compiler(module.create_compiler(sdk_dir, &status));
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device.h"
#include "devices/host_module_abi.h"  // generated: a hash of the headers that both share

namespace kvr {

class Compiler;  // jit/compiler.h

inline constexpr uint32_t kHostModuleAbi = KVR_HOST_MODULE_ABI;
inline constexpr char kHostModuleEntryName[] = "kvr_host_module_v1";

struct HostModule {
  uint32_t abi = 0;
  absl::StatusOr<std::unique_ptr<Device>> (*create_device)() = nullptr;
  // `sdk_dir`: the directory that holds host/kvr_host.h, sdk/device in the source tree. The caller
  // owns the result; null: `*status` says why.
  Compiler* (*create_compiler)(const char* sdk_dir, absl::Status* status) = nullptr;
};

using HostModuleEntry = int(HostModule*);

}  // namespace kvr
