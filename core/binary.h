// SPDX-License-Identifier: Apache-2.0
//
// A binary: one variant's unit compiled for one target: a cubin for an exact sm_NN, an object file
// for "host". Immutable and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/fingerprint.h"

namespace kvr {

struct KernelResources {
  int registers = 0;        // per thread
  int64_t smem_static = 0;  // bytes per block
  int64_t frame_bytes = 0;  // stack frame per thread
  int64_t spill_bytes = 0;  // spill stores + loads, from the assembler's verbose log; -1: unknown
  int max_threads = 1024;   // __launch_bounds__, else the target's limit
};

struct BinaryKernel {
  std::string entry;   // the name expression the manifest gives
  std::string symbol;  // its lowered (mangled) name
  KernelResources resources;
};

struct Binary {
  Fingerprint key;      // what went in: the cache key
  Fingerprint source;   // ... of it, what the variant and KVR's own headers say: no compiler, no
                        // toolkit (jit/jit.h)
  Fingerprint content;  // what came out
  std::string target;
  std::string compiler;  // identity
  std::string bytes;
  std::vector<BinaryKernel> kernels;  // in the order of the unit's entries

  const BinaryKernel* Find(std::string_view entry) const {
    for (const BinaryKernel& kernel : kernels)
      if (kernel.entry == entry) return &kernel;
    return nullptr;
  }
};

using BinaryPtr = std::shared_ptr<const Binary>;

}  // namespace kvr
