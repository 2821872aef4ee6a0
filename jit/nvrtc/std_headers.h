// SPDX-License-Identifier: Apache-2.0
//
// The standard headers that kernels commonly include and that NVRTC does not have, as small
// stand-ins: <cstdint>, <type_traits>, <limits>, ... (jit/nvrtc/std/README.md says why).
#pragma once

#include <map>
#include <string>

namespace kvr {

std::map<std::string, std::string> NvrtcStandardHeaders();  // name → content

}  // namespace kvr
