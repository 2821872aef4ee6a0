// SPDX-License-Identifier: Apache-2.0
//
// Where the parts of KVR lie around the running executable:
//
//   bin              kvr, kvr-worker         share/kvr/sdk/device  device headers
//   lib              libkvr_host.so          share/kvr/profiles    devices
//   lib/kvr/plugins  compiled plugins        .venv                 NVIDIA's wheels, if any
//
// under <prefix>, the parent of the executable's directory, so an install works from any path and
// moves freely. A build tree is laid out the same way, with links to the sources for what is not
// built (cmake/kvr_install.cmake), so no binary holds the path it was built at.
//
// The only file of core that asks the system anything. Threading: pure functions of the environment
// and the file system.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvr {

// Absolute, symbolic links resolved. Empty where /proc is not mounted.
std::string ExecutablePath();

// <prefix>/<relative>, whether or not it exists; "" gives <prefix>. Empty where the executable is
// unknown.
std::string InstallPath(std::string_view relative);

// Something that an install has in one place, and that the environment may place elsewhere.
struct Part {
  const char* what;      // in errors: "KVR's device headers"
  const char* variable;  // names the part, and is then the only place looked at; null: none does
  const char* relative;  // to the prefix
  const char* probe;     // a file in it by which it is known; "": the part itself must exist
  const char* fix;       // what to do when it is nowhere
};

// Its path, links resolved. kNotFound says what was looked for, where, and the part's fix.
absl::StatusOr<std::string> FindPart(const Part& part);

}  // namespace kvr
