// SPDX-License-Identifier: Apache-2.0
//
// The compiler for the host device: Clang 19's libraries, in process, no executable and no system
// header. Units are compiled as C++20 behind sdk/device/host/kvr_host.h to x86-64 ELF objects for
// the CPU this process runs on.
//
//   unit → frontend.h (Clang: source to LLVM IR) → checks.h (what must not run here) →
//   shared_memory.h (__shared__ variables get their place) → backend.h (LLVM: optimise,
//   instrument.h, emit)
//
// A kernel's symbol is its mangled name; the function there takes the launch's argument pointers.
// Beside it lies <symbol>_params, the table of parameter sizes that devices/host/loaded_module.h
// reads (entries.h).
// Resources: smem_static and max_threads are exact, the others 0.
//
// Threading: Compile is not concurrent; it runs on a thread of its own with a deep stack, and while
// it runs, crashes of Clang or LLVM on that thread are caught and returned as kInternal.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "jit/compiler.h"

namespace kvr {

// `sdk_dir` holds host/kvr_host.h (read now) and the headers for contributors.
absl::StatusOr<std::unique_ptr<Compiler>> MakeClangCompiler(std::string_view sdk_dir);

}  // namespace kvr
