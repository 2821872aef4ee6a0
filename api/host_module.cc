// SPDX-License-Identifier: Apache-2.0
//
// The entry of libkvr_host.so, where the host device and its compiler meet: devices/ and jit/ do
// not know each other.
#include "devices/host_module.h"

#include <utility>

#include "devices/host/host_device.h"
#include "jit/clang/clang.h"

namespace {

kvr::Compiler* CreateCompiler(const char* sdk_dir, absl::Status* status) {
  auto compiler = kvr::MakeClangCompiler(sdk_dir);
  *status = compiler.status();
  return compiler.ok() ? std::move(compiler)->release() : nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int kvr_host_module_v1(kvr::HostModule* out) {
  out->abi = kvr::kHostModuleAbi;
  out->create_device = &kvr::host::OpenHost;
  out->create_compiler = &CreateCompiler;
  return 0;
}
