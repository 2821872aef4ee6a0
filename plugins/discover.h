// SPDX-License-Identifier: Apache-2.0
//
// Finding bundles below roots. Threading: reads the file system only.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plugins/scan.h"

namespace kvr::bundle {

// Directories that hold a variant.toml, without symlinks, each once, in scanning order. What could
// not be looked into, and a root that holds none, goes to `rejections`. Names that begin with '.'
// are passed over.
std::vector<std::string> FindBundles(absl::Span<const std::string> roots,
                                     std::vector<Rejection>* rejections);

}  // namespace kvr::bundle
