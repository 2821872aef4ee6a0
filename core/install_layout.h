// SPDX-License-Identifier: Apache-2.0
//
// Where the parts of KVR lie around the file that this code is linked into, an executable or a
// shared library:
//
//   bin              kvr, kvr-worker             share/kvr/sdk/device  device headers
//   lib              libkvr.so, libkvr_host.so   share/kvr/profiles    devices
//   lib/kvr/plugins  compiled plugins            .venv                 NVIDIA's wheels, if any
//
// under <prefix>, the parent of that file's directory, so an install works from any path and moves
// freely, and libkvr.so finds it in whatever process it is loaded into. A build tree is laid out
// the same way, with links to the sources for what is not built (cmake/kvr_install.cmake), so no
// binary holds the path it was built at.
//
// The only file of core that asks the system anything. Threading: pure functions of the environment
// and the file system.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvr {

// Absolute, symbolic links resolved: the executable, or the shared library that this code is in.
// Asked for once. Empty where /proc is not mounted, or where a library was loaded by a relative
// path and the process has changed its directory since.
const std::string& OwnPath();

// <prefix>/<relative>, whether or not it exists; "" gives <prefix>. Empty where OwnPath() is.
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
