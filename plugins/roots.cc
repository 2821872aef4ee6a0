// SPDX-License-Identifier: Apache-2.0
#include "plugins/roots.h"

#include <cstdlib>

#include "core/install_layout.h"
#include "core/strings.h"

namespace kvr {

std::string BuiltinVariantsDirectory() {
  constexpr Part kVariants = {"the built-in variants", nullptr, "share/kvr/variants", "", ""};
  const absl::StatusOr<std::string> found = FindPart(kVariants);
  return found.ok() ? *found : InstallPath(kVariants.relative);
}

std::vector<std::string> SplitPluginPath(std::string_view path) {
  std::vector<std::string> roots;
  for (std::string_view root : Split(path, ':')) {
    if (!root.empty()) roots.emplace_back(root);
  }
  return roots;
}

std::vector<std::string> BundleRoots(absl::Span<const std::string> extra) {
  std::vector<std::string> roots = {BuiltinVariantsDirectory()};
  if (const char* path = std::getenv("KVR_PLUGIN_PATH")) {
    for (std::string& root : SplitPluginPath(path)) roots.push_back(std::move(root));
  }
  roots.insert(roots.end(), extra.begin(), extra.end());
  return roots;
}

}  // namespace kvr
