// SPDX-License-Identifier: Apache-2.0
//
// Clang's half of the compiler: files in memory → an LLVM module, not optimised.
// Threading: one call at a time in a process.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/diagnostics.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace kvr::clang_jit {

struct SourceFile {
  std::string path;  // absolute, as -I and the diagnostics see it
  std::string_view content;
};

struct FrontendInput {
  std::vector<SourceFile> files;     // all there is; the disk is not read
  std::string main_path;             // one of them
  std::vector<std::string> options;  // of clang -cc1
};

struct FrontendOutput {
  std::unique_ptr<llvm::Module> module;  // null if there were errors; instructions know their lines
  std::vector<Diagnostic> diagnostics;   // name files by their path, or as #line says
};
// Assembly outside functions is an error; within them checks.h finds it.
FrontendOutput CompileToIr(const FrontendInput& input, llvm::LLVMContext* context);

std::string ClangVersion();  // "19.1.7"

}  // namespace kvr::clang_jit
