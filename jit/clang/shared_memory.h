// SPDX-License-Identifier: Apache-2.0
//
// Gives __shared__ variables their place. In the module that Clang makes they are thread-local
// variables (sdk/device/host/kvr_host_cuda.h); here each use of one becomes an offset from the
// base that the running lane names: kvr_host_lane::static_smem for a variable with a definition,
// dynamic_smem for an `extern` one. So blocks of one process run at once without thread-local
// storage, and a kernel's static size is exact.
//
// Run before any optimisation: afterwards the variables would already have been folded as if one
// thread wrote them. Every function but the entries becomes internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jit/clang/annotations.h"

namespace llvm {
class Module;
}

namespace kvr::clang_jit {

struct EntryResources {
  int64_t smem_static = 0;  // of the variables that the kernel can reach
  int max_threads = 0;      // __launch_bounds__; 0: none
};

// `entries`: the names of the functions that the runtime calls. Errors name the variable.
absl::StatusOr<std::vector<EntryResources>> PlaceSharedMemory(
    llvm::Module* module, const std::vector<std::string>& entries, const Annotations& words);

}  // namespace kvr::clang_jit
