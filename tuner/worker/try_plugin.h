// SPDX-License-Identifier: Apache-2.0
//
// Loads a compiled plugin in a process of its own first: one whose constructors crash, hang or end
// the process, or that lies about its code, is refused by name and takes nobody with it.
//
// Threading: callable from any thread; it waits for the other process.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace kvr {

absl::Status TryPlugin(const std::string& path);

}  // namespace kvr
