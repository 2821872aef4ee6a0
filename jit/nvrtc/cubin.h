// SPDX-License-Identifier: Apache-2.0
//
// What a cubin says of itself: its exact architecture, each kernel's resources and parameters. A
// cubin is an ELF64 file; NVIDIA's attributes sit in .nv.info (a list of 4-byte records with
// payload). Read by hand: LLVM's Object library would pull half of LLVM into the serving binary for
// this.
//
// Threading: pure functions. Any input is safe: every offset is checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvr {

struct CubinKernel {
  int registers = 0;        // per thread
  int64_t frame_bytes = 0;  // stack frame per thread
  int64_t smem_static = 0;  // bytes per block, without what the architecture reserves
  int max_threads = 0;      // __launch_bounds__, or the block it requires; 0: none given
  std::vector<int64_t> parameter_bytes;  // in order; empty: none, or not said
};

struct CubinInfo {
  int sm = 0;                // 90
  std::string arch;          // "sm_90a" where the file names it; else empty
  bool accelerated = false;  // pre-13 files: the arch-specific flag ("a")
  int abi = 0;
  std::map<std::string, CubinKernel> kernels;  // by symbol
};

// kInvalidArgument: it is no cubin, and why.
absl::StatusOr<CubinInfo> ReadCubin(std::string_view cubin);

// "sm_90a". A file that does not tell the plain architecture from the specific one gives the plain.
std::string CubinTarget(const CubinInfo& info);

// Is what NVRTC made non-empty and really for `target` ("sm_90a", not merely 90)?
absl::Status CheckCubinTarget(std::string_view cubin, std::string_view target);

// GNU build id of the ELF file at `path`, hex; empty: it has none, or is no ELF file.
std::string BuildId(const std::string& path);

}  // namespace kvr
