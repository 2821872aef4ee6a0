// SPDX-License-Identifier: Apache-2.0
#include "plugins/roots.h"

#include <cstdlib>

#include "core/install_layout.h"
#include "core/strings.h"

namespace kvr {

std::string BuiltinPluginsDirectory() { return InstallPath("lib/kvr/plugins"); }

std::vector<std::string> SplitPluginPath(std::string_view path) {
  std::vector<std::string> roots;
  for (std::string_view root : Split(path, ':')) {
    if (!root.empty()) roots.emplace_back(root);
  }
  return roots;
}

std::vector<std::string> PluginRoots(absl::Span<const std::string> extra) {
  std::vector<std::string> roots = {BuiltinPluginsDirectory()};
  if (const char* path = std::getenv("KVR_PLUGIN_PATH")) {
    for (std::string& root : SplitPluginPath(path)) roots.push_back(std::move(root));
  }
  roots.insert(roots.end(), extra.begin(), extra.end());
  return roots;
}

}  // namespace kvr
