// SPDX-License-Identifier: Apache-2.0
//
// Names of a unit's entry points. Clang's module calls the i-th kvr_entry_<i> and its parameter
// table kvr_entry_<i>_params (sdk/device/host/kvr_host_entry.h); in the object they carry the
// kernel's own mangled name, as on every other target, and that name + "_params".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace llvm {
class Module;
}

namespace kvr::clang_jit {

// The symbols of entries 0..count-1; entries that name one kernel share its symbol.
absl::StatusOr<std::vector<std::string>> NameEntries(llvm::Module* module, size_t count);

}  // namespace kvr::clang_jit
