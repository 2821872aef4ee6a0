// SPDX-License-Identifier: Apache-2.0
#include "plugins/library.h"

#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/files.h"

namespace kvr {

absl::StatusOr<std::shared_ptr<const PluginLibrary>> PluginLibrary::Read(const std::string& path,
                                                                         CheckLoad check_load) {
  KVR_ASSIGN_OR_RETURN(const std::string content, bundle::ReadTrustedFile(path, kMaxLibraryBytes));
  absl::StatusOr<bundle::PluginSection> section = bundle::ReadPluginSection(content);
  if (!section.ok()) {
    return Error(section.status().code(), StrCat("'", path, "' ", What(section.status())),
                 Fix(section.status()));
  }
  std::shared_ptr<PluginLibrary> library(new PluginLibrary);
  library->path_ = path;
  library->fingerprint_ = FingerprintOf(content);
  library->section_ = *std::move(section);
  library->check_load_ = std::move(check_load);
  return library;
}

std::string PluginLibrary::Label() const {
  return StrCat("plugin '", section_.name, "' (", path_, ")");
}

absl::StatusOr<const PluginModule*> PluginLibrary::Load() const {
  std::call_once(once_, [this] {
    absl::StatusOr<std::unique_ptr<const PluginModule>> module = LoadNow();
    if (module.ok()) {
      module_ = *std::move(module);
    } else {
      status_ = module.status();
    }
  });
  if (!status_.ok()) return status_;
  return module_.get();
}

absl::StatusOr<std::unique_ptr<const PluginModule>> PluginLibrary::LoadNow() const {
  if (check_load_ != nullptr) KVR_RETURN_IF_ERROR(check_load_(path_));
  KVR_ASSIGN_OR_RETURN(const std::string content, bundle::ReadTrustedFile(path_, kMaxLibraryBytes));
  if (FingerprintOf(content) != fingerprint_) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("'", path_, "' has changed since it was scanned"),
                 "scan again: start kvr, or reload the plugins, anew");
  }
  absl::StatusOr<std::unique_ptr<const PluginModule>> module =
      PluginModule::Load(content, path_, section_.abi_minor);
  if (module.ok()) return module;
  return Error(module.status().code(), StrCat("'", path_, "' ", What(module.status())),
               Fix(module.status()));
}

absl::Status CheckPluginLoads(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const std::shared_ptr<const PluginLibrary> library,
                       PluginLibrary::Read(path, nullptr));
  return library->section().has_code ? library->Load().status() : absl::OkStatus();
}

}  // namespace kvr
