// SPDX-License-Identifier: Apache-2.0
//
// Which house may include which, checked from the #include lines of a source tree:
//
//   cli, bench, examples -> api -> tuner -> registry -> (plugins, jit, devices) -> core -> sdk
//
// Calls go down only; houses of one level do not know each other. Nobody includes variants/ but
// an operation its own directory and variants/common, and tests/variants; variants include core and
// sdk. api/runtime.* and what it includes within api/ reach the registry and below, so that serving
// links no tuner.
// Tests may include every house, and nobody includes tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kvr {

struct Violation {
  std::string file;  // relative to the root
  int line = 0;
  std::string included;  // as written
  std::string why;

  std::string Text() const;  // "core/a.h:3: includes "jit/b.h": ..."
};

struct ArrowReport {
  int files = 0;
  std::vector<Violation> violations;  // by file and line
};

ArrowReport CheckArrows(const std::filesystem::path& root);

}  // namespace kvr
