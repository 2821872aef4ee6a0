// SPDX-License-Identifier: Apache-2.0
//
// LLVM's half of the compiler: a module → an object file for the CPU this process runs on.
// Threading: one call at a time per module; TargetCpu may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jit/clang/places.h"

namespace llvm {
class Module;
}

namespace kvr::clang_jit {

struct HostCpu {
  std::string name;                   // "znver4"
  std::vector<std::string> features;  // "+avx2", "-sse4a", ...; sorted
  std::string missing;                // what kernels need and this CPU lacks; empty: nothing
  std::string id;                     // names all of it: "znver4/1b93e5b8adaa"
};
const HostCpu& TargetCpu();

inline constexpr char kTargetTriple[] = "x86_64-unknown-linux-gnu";

// A stack frame above this is refused: see devices/host/fiber_stack.h.
inline constexpr int64_t kMaxFrameBytes = 64 << 10;

// The object says which CPU it is for: a C string under this symbol, HostCpu::id. The host device
// refuses objects of another (devices/host/loaded_module.cc).
inline constexpr char kCpuSymbol[] = "kvr_host_cpu";

// Optimises (-O2 with both vectorisers), instruments (instrument.h) and emits. A multiply and an
// add are fused only where the front end allowed it. Errors: too large a frame; something
// undefined, then `*undefined` says what and where.
absl::StatusOr<std::string> EmitObject(llvm::Module* module,
                                       const std::vector<std::string>& entries,
                                       const Places& places, std::vector<Diagnostic>* undefined);

}  // namespace kvr::clang_jit
