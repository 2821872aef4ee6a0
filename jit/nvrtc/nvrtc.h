// SPDX-License-Identifier: Apache-2.0
//
// CUDA targets through NVRTC 12.x or 13.x, loaded at run time; nothing of CUDA is linked. Library
// and headers come from one release, looked for in this order:
//
//   1. KVR_CUDA_HOME    a toolkit, or a directory of NVIDIA's wheels; if set, it is the only place
//   2. CUDA_HOME        a toolkit
//   3. the wheels       ToolchainOptions::wheels, else WheelsDirectory()
//   4. /usr/local/cuda
//   5. the loader's own path (ldconfig), with the toolkit around the library found there
//
// KVR_NO_CUDA=1 hides all of it. The compiler emits cubin for the exact architecture and checks
// that what came out is one.
//
// Threading: Compile runs concurrently. The library is never unloaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jit/compiler.h"

namespace kvr {

struct ToolchainOptions {
  std::string sdk_dir;    // the directory that holds kvr/device.cuh; empty: jit/sdk.h
  std::string cuda_home;  // stands in for KVR_CUDA_HOME
  std::string wheels;     // stands in for WheelsDirectory()
};

// Where a toolchain lies. All paths absolute.
struct Toolchain {
  std::string origin;    // "CUDA_HOME", "/usr/local/cuda", ...
  std::string library;   // libnvrtc
  std::string builtins;  // libnvrtc-builtins, beside it
  std::vector<std::string> includes;
  int major = 0, minor = 0;  // of the headers (cuda.h)
};

// The site-packages directory where NVIDIA's wheels are looked for: KVR_WHEELS, else the one of the
// install's own virtual environment, <prefix>/.venv, if it has NVIDIA's wheels; else "".
std::string WheelsDirectory();

// kNotFound lists every place looked at and what was missing there.
absl::StatusOr<Toolchain> FindToolchain(const ToolchainOptions& options);

absl::StatusOr<std::unique_ptr<Compiler>> MakeNvrtcCompiler(const ToolchainOptions& options);

}  // namespace kvr
