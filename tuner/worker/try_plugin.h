// SPDX-License-Identifier: Apache-2.0
//
// Loads a compiled plugin in a process of its own first, and calls each of its plan functions once:
// one whose constructors or plan functions crash, hang or end the process there, or that lies about
// its code, is refused by name and takes nobody with it. It has 20 seconds.
//
// Threading: callable from any thread; it waits for the other process.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace kvr {

absl::Status TryPlugin(const std::string& path);

}  // namespace kvr
