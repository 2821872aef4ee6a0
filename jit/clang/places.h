// SPDX-License-Identifier: Apache-2.0
//
// From an instruction to the author's line. What a header of KVR or of the toolkit does on behalf
// of a kernel belongs to the line that called it.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "jit/diagnostics.h"

namespace llvm {
class DebugLoc;
class DIScope;
class Function;
}  // namespace llvm

namespace kvr::clang_jit {

class Places {
 public:
  // `directory`: where the front end saw the unit's files; `own`: the bundle's, by their names.
  Places(std::string_view directory, std::set<std::string> own)
      : directory_(directory), own_(std::move(own)) {}

  // Sets file, line and column: the innermost frame, inlined ones included, in one of the bundle's
  // files, else the innermost of all. Nothing is set where the compiler has lost the place.
  void Set(const llvm::DebugLoc& location, Diagnostic* diagnostic) const;

  // Sets file and line to those of the function's name.
  void Set(const llvm::Function& function, Diagnostic* diagnostic) const;

  // "split.cu:12"; empty if no frame is in the bundle's files.
  std::string Text(const llvm::DebugLoc& location) const;

 private:
  std::string FileOf(const llvm::DIScope& scope) const;

  const std::string directory_;
  const std::set<std::string> own_;
};

}  // namespace kvr::clang_jit
