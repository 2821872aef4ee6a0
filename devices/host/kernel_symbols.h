// SPDX-License-Identifier: Apache-2.0
//
// What host kernels may link to: the runtime's entry points (sdk/device/host/kvr_host_abi.h), the
// functions of libc and libm that kernels call or the compiler's code generator inserts.
#pragma once

#include "absl/types/span.h"

namespace kvr::host {

struct KernelSymbol {
  const char* name;
  void* address;
};

absl::Span<const KernelSymbol> KernelSymbols();

}  // namespace kvr::host
