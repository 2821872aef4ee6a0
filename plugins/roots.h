// SPDX-License-Identifier: Apache-2.0
//
// Where plugins are looked for: the built-in ones, then KVR_PLUGIN_PATH, then what the caller
// names. Threading: pure functions of the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace kvr {

// <prefix>/lib/kvr/plugins (core/install_layout.h), whether or not it exists.
std::string BuiltinPluginsDirectory();

// "a:b" → {"a", "b"}; empty elements are left out.
std::vector<std::string> SplitPluginPath(std::string_view path);

// The built-in directory, those of KVR_PLUGIN_PATH, then `extra` (--plugins), in this order.
std::vector<std::string> PluginRoots(absl::Span<const std::string> extra);

}  // namespace kvr
