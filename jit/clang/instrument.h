// SPDX-License-Identifier: Apache-2.0
//
// What the host device is told while a kernel runs, so that it can judge: each access that may be
// one to shared memory (kvr_host_access), each atomic operation and fence (kvr_host_order), each
// volatile load, which may poll for what another lane has to do (kvr_host_yield), the line of
// whatever asks for it (kvr_host_site), and that the stack is about to overflow.
//
// Run it once calls have been inlined and local variables promoted to registers, and before loops
// are vectorised: accesses are then few, and each has its own instruction. Those that cannot be to
// shared memory cost nothing: local and global variables, and what kernel parameters point at.
// Others are compared with its bounds first.
#pragma once

#include <string>
#include <vector>

#include "jit/clang/places.h"

namespace llvm {
class Module;
}

namespace kvr::clang_jit {

// The object's table of lines, an array of C strings; number 0 is none.
inline constexpr char kSitesSymbol[] = "kvr_host_sites";

// `entries`: the names of the functions that the runtime calls.
void Instrument(llvm::Module* module, const std::vector<std::string>& entries,
                const Places& places);

}  // namespace kvr::clang_jit
