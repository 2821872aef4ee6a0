// SPDX-License-Identifier: Apache-2.0
//
// Names of a unit's entry points. Clang's module calls the i-th kvr_entry_<i> and its parameter
// table kvr_entry_<i>_params (sdk/device/host/kvr_host_entry.h); in the object they carry the
// kernel's own mangled name, as on every other target, and that name + "_params".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jit/diagnostics.h"

namespace llvm {
class Module;
}

namespace kvr::clang_jit {

// What #line calls the generated entries, one a line.
inline constexpr char kEntriesFile[] = "kvr_entries";

// The symbols of entries 0..count-1; entries that name one kernel share its symbol. Errors: a
// kernel that is declared only, then `*undefined` says so at the entry's line.
absl::StatusOr<std::vector<std::string>> NameEntries(llvm::Module* module, size_t count,
                                                     std::vector<Diagnostic>* undefined);

}  // namespace kvr::clang_jit
