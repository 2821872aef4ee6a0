// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvr::host {

// Name and features of the CPU this process runs on: "znver4/1b93e5b8adaa". Objects for the host
// device carry the text of the CPU that they were compiled for under kCpuSymbol (a C string; both
// agreed with jit/clang/backend.h), since another's instructions may not exist here.
const std::string& CpuId();

inline constexpr char kCpuSymbol[] = "kvr_host_cpu";

}  // namespace kvr::host
