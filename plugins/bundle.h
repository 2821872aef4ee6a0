// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plugins/scan.h"

namespace kvr {

inline Scan ScanBundles(absl::Span<const std::string> roots, absl::Span<const OpSpec* const> ops) {
  return ScanPlugins(roots, {.ops = ops});
}

}  // namespace kvr
