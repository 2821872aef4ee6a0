// SPDX-License-Identifier: Apache-2.0
//
// Names of a unit's entry points. Clang's module calls the i-th kvr_entry_<i> and its parameter
// table kvr_entry_<i>_params (sdk/device/host/kvr_host_entry.h); in the object they carry the
// kernel's own mangled name, as on every other target, and that name + "_params".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jit/clang/annotations.h"
#include "jit/clang/places.h"
#include "jit/diagnostics.h"

namespace llvm {
class Module;
}

namespace kvr::clang_jit {

// What #line calls the generated entries, one a line.
inline constexpr char kEntriesFile[] = "kvr_entries";

// The symbols of entries 0..count-1; entries that name one kernel share its symbol. Errors: an
// entry that is declared only, then `*refused` says so at the entry's line; a function that is not
// __global__, then at its own.
absl::StatusOr<std::vector<std::string>> NameEntries(llvm::Module* module, size_t count,
                                                     const Annotations& words, const Places& places,
                                                     std::vector<Diagnostic>* refused);

}  // namespace kvr::clang_jit
