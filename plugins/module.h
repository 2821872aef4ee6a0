// SPDX-License-Identifier: Apache-2.0
//
// The code of a loaded library: what its kvr_plugin_v1 returned, checked.
//
// Threading: immutable. Ownership: holds the library loaded; what it hands out lives as long.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sdk/kvr_plugin.h"

namespace kvr {

// Copies of the library's structs in this kvr's size: fields that it did not know are null or 0.
// Names and functions are the library's.
struct PluginCode {
  std::vector<kvr_operation> operations;
  std::vector<kvr_variant> variants;
};

// Errors complete "'libx.so' ...". What is refused: another ABI version than `abi_minor` of this
// major, sizes that are too small, too large for what they hold or absurd, null entries, names that
// are null, illegal or stated twice, quality measures without their function or the reverse.
absl::StatusOr<PluginCode> CheckPlugin(const kvr_plugin* plugin, uint32_t abi_minor);

class PluginModule {
 public:
  // Loads `content`, which was read from `path`, and runs its constructors and kvr_plugin_v1.
  // Errors complete "'libx.so' ...".
  static absl::StatusOr<std::unique_ptr<const PluginModule>> Load(std::string_view content,
                                                                  const std::string& path,
                                                                  uint32_t abi_minor);
  ~PluginModule();  // unloads
  PluginModule(const PluginModule&) = delete;
  PluginModule& operator=(const PluginModule&) = delete;

  const PluginCode& code() const { return code_; }
  // Null: the library has no code for it.
  const kvr_operation* FindOperation(std::string_view name) const;
  const kvr_variant* FindVariant(std::string_view op, std::string_view name) const;

 private:
  struct Handle;
  explicit PluginModule(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
  PluginCode code_;
};

}  // namespace kvr
