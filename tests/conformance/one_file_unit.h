// SPDX-License-Identifier: Apache-2.0
//
// A unit of one file, "kernel.cu", without a bundle around it: what the suites give to compilers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "jit/compiler.h"
#include "jit/unit.h"

namespace kvr {

// `entries` are name expressions; each is said to be defined at kernel.cu:1.
Unit OneFileUnit(const Compiler& compiler, const std::string& source,
                 const std::vector<std::string>& entries);

absl::StatusOr<Binary> CompileOneFile(Compiler& compiler, std::string_view target,
                                      const std::string& source,
                                      const std::vector<std::string>& entries);

}  // namespace kvr
