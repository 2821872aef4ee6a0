// SPDX-License-Identifier: Apache-2.0
//
// What host kernels may link to, with addresses; sdk/device/host/kvr_host_symbols.h lists it.
#pragma once

#include "absl/types/span.h"

namespace kvr::host {

struct KernelSymbol {
  const char* name;
  void* address;
};

absl::Span<const KernelSymbol> KernelSymbols();

}  // namespace kvr::host
