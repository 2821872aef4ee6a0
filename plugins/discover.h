// SPDX-License-Identifier: Apache-2.0
//
// Finding plugins below roots. Threading: reads the file system only.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plugins/scan.h"

namespace kvr::bundle {

struct Found {
  std::string path;  // without symlinks
  bool is_library = false;
};

// Directories that hold a variant.toml, and libraries (*.so in a root, or a root that is a file),
// each once, in scanning order. What could not be looked into, and a root that holds none, goes to
// `rejections`. Names that begin with '.' are passed over.
std::vector<Found> FindPlugins(absl::Span<const std::string> roots,
                               std::vector<Rejection>* rejections);

}  // namespace kvr::bundle
