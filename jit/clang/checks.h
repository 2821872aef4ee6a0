// SPDX-License-Identifier: Apache-2.0
//
// What the front end accepts and the host must not, or cannot, run; each at the author's line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "jit/clang/places.h"
#include "jit/diagnostics.h"

namespace llvm {
class GlobalValue;
class Module;
}  // namespace llvm

namespace kvr::clang_jit {

// The assembler runs in this process and its directives read files (.incbin), so no text of a
// contributor reaches it. An empty one, `asm volatile("" ::: "memory")`, is a fence for the
// compiler and passes.
inline constexpr char kAssemblyMessage[] =
    "assembly cannot run on host: use the primitives of <kvr/device.cuh>, or leave 'host' out of "
    "`targets` and say why in `host_skip_reason`";

// Before optimising: assembly, and stack frames whose size is not constant.
std::vector<Diagnostic> FindRefused(const llvm::Module& module, const Places& places);

// After optimising: functions and variables that are used, defined nowhere and not among what the
// host device offers (sdk/device/host/kvr_host_symbols.h).
std::vector<Diagnostic> FindUndefined(const llvm::Module& module, const Places& places);

// "f(int) is declared, but ..."
std::string UndefinedMessage(const llvm::GlobalValue& value);

// The same for what the code generator itself added to the object.
absl::Status CheckObjectSymbols(const std::string& object);

}  // namespace kvr::clang_jit
