// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvr::clang_jit {

// The linker's build id of the library or executable that this function is in, in hexadecimal: it
// changes with every change of the compiler's own code. Empty if it was linked without one.
std::string OwnBuildId();

}  // namespace kvr::clang_jit
