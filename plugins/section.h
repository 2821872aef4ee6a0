// SPDX-License-Identifier: Apache-2.0
//
// What a compiled plugin says about itself before anything of it is loaded: the records of its
// section .kvr_plugin (sdk/kvr_plugin.h, "The section") and whether it exports code.
//
// Threading: pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvr::bundle {

inline constexpr int kMaxPluginFiles = 4096;

struct PluginSection {
  std::string name, version;  // of the plugin
  uint32_t abi_minor = 0;     // major is KVR_ABI_MAJOR
  bool has_code = false;      // exports kvr_plugin_v1
  // By name, which CheckFileName has accepted. At least one is a variant.toml or definition.json.
  std::map<std::string, std::string, std::less<>> files;
};

// `library` is the whole file: a shared library for x86-64. Errors complete "'libx.so' ...".
absl::StatusOr<PluginSection> ReadPluginSection(std::string_view library);

}  // namespace kvr::bundle
