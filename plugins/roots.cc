// SPDX-License-Identifier: Apache-2.0
#include "plugins/roots.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/strings.h"

namespace kvr {

std::string BuiltinVariantsDirectory() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed = executable.parent_path().parent_path() / "share/kvr/variants";
    if (fs::is_directory(installed, error)) return installed.string();
  }
  return KVR_VARIANTS_SOURCE_DIR;
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
