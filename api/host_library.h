// SPDX-License-Identifier: Apache-2.0
//
// libkvr_host.so, found and loaded once a process: the file that KVR_HOST_MODULE names (then the
// only place), else <prefix>/lib/libkvr_host.so (core/install_layout.h). Never unloaded: what it
// made may live anywhere.
//
// Threading: all functions may be called concurrently. Errors: kNotFound where there is no such
// file, kFailedPrecondition where it is not a module of this build; each names the file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/device.h"
#include "jit/compiler.h"

namespace kvr {

absl::StatusOr<std::string> HostLibraryPath();  // loads nothing
absl::StatusOr<std::unique_ptr<Device>> OpenHostDevice();
absl::StatusOr<std::unique_ptr<Compiler>> MakeHostCompiler(const std::string& sdk_dir);

}  // namespace kvr
