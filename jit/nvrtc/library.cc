// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc/library.h"

#include <dlfcn.h>

#include "core/status.h"

namespace kvr {

absl::StatusOr<NvrtcLibrary> LoadNvrtc(const Toolchain& toolchain) {
  // NVRTC opens its builtins by bare name at the first compile and would take whatever the loader
  // finds; loaded first and by path, this one is what that name then means.
  void* builtins = dlopen(toolchain.builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* handle =
      builtins == nullptr ? nullptr : dlopen(toolchain.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return Error(absl::StatusCode::kUnavailable,
                 "cannot load " + toolchain.library + ": " + (reason != nullptr ? reason : "?"),
                 "repair that installation, or point KVR_CUDA_HOME at another");
  }
  NvrtcLibrary library;
  std::string missing;
  auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  bind(library.version, "nvrtcVersion");
  bind(library.get_num_supported_archs, "nvrtcGetNumSupportedArchs");
  bind(library.get_supported_archs, "nvrtcGetSupportedArchs");
  bind(library.create_program, "nvrtcCreateProgram");
  bind(library.destroy_program, "nvrtcDestroyProgram");
  bind(library.compile_program, "nvrtcCompileProgram");
  bind(library.get_cubin_size, "nvrtcGetCUBINSize");
  bind(library.get_cubin, "nvrtcGetCUBIN");
  bind(library.get_log_size, "nvrtcGetProgramLogSize");
  bind(library.get_log, "nvrtcGetProgramLog");
  bind(library.add_name_expression, "nvrtcAddNameExpression");
  bind(library.get_lowered_name, "nvrtcGetLoweredName");
  bind(library.get_error_string, "nvrtcGetErrorString");
  if (!missing.empty()) {
    return Error(absl::StatusCode::kUnavailable, toolchain.library + " has no " + missing,
                 "use CUDA 12.0 or newer");
  }
  return library;
}

}  // namespace kvr
