// SPDX-License-Identifier: Apache-2.0
//
// The standard headers that kernels commonly include and that NVRTC does not have, as small
// stand-ins: <cstdint>, <cstddef>, <type_traits>, <limits>, ... CCCL's own (<cuda/std/...>) are
// there too for those who name them, but cost two hundred files where these cost one. Types agree
// with CCCL's (int64_t is long long), so both may meet in one unit.
#pragma once

#include <map>
#include <string>

namespace kvr {

std::map<std::string, std::string> NvrtcStandardHeaders();  // name → content

}  // namespace kvr
