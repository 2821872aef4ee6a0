// SPDX-License-Identifier: Apache-2.0
//
// Counts this thread's calls of operator new. counting_new.cc replaces the global operators: link
// it into one test executable.
#pragma once

#include <cstdint>

namespace kvr {

int64_t AllocationsOfThisThread();

}  // namespace kvr
