// SPDX-License-Identifier: Apache-2.0
//
// What the device SDK's words for functions leave in a module: `__global__` and `__launch_bounds__`
// are annotations there (sdk/device/host/kvr_host_cuda.h).
#pragma once

#include <map>

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace kvr::clang_jit {

struct FunctionWords {
  bool global = false;
  int max_threads = 0;  // the first argument of __launch_bounds__; 0: has none
};

using Annotations = std::map<const llvm::Function*, FunctionWords>;

// Of the functions that have any. Takes them out of the module: no object needs them.
Annotations TakeAnnotations(llvm::Module* module);

}  // namespace kvr::clang_jit
