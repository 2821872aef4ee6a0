// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/entries.h"

#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Module.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "jit/clang/checks.h"

namespace kvr::clang_jit {

absl::StatusOr<std::vector<std::string>> NameEntries(llvm::Module* module, size_t count,
                                                     const Annotations& words, const Places& places,
                                                     std::vector<Diagnostic>* refused) {
  // Keeps alive what nothing else would; the entries are external anyway.
  if (llvm::GlobalVariable* used = module->getGlobalVariable("llvm.compiler.used")) {
    used->eraseFromParent();
  }
  std::vector<std::string> symbols;
  std::vector<llvm::Function*> kernels;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = absl::StrCat("kvr_entry_", i);
    llvm::Function* entry = module->getFunction(name);
    llvm::GlobalVariable* params = module->getGlobalVariable(name + "_params");
    llvm::GlobalVariable* marker = module->getGlobalVariable(name + "_kernel");
    llvm::Function* kernel = nullptr;
    if (marker != nullptr && marker->hasInitializer()) {
      kernel = llvm::dyn_cast<llvm::Function>(marker->getInitializer()->stripPointerCasts());
    }
    if (entry == nullptr || params == nullptr || kernel == nullptr) {
      return Error(absl::StatusCode::kInternal, absl::StrCat("the unit has no ", name),
                   "report this as a fault of the host compiler");
    }
    if (kernel->isDeclaration()) {
      Diagnostic& diagnostic = refused->emplace_back();
      diagnostic.file = kEntriesFile;
      diagnostic.line = static_cast<int>(i) + 1;
      diagnostic.message = UndefinedMessage(*kernel);
      return Error(absl::StatusCode::kInvalidArgument, diagnostic.message, "define it");
    }
    if (const auto word = words.find(kernel); word == words.end() || !word->second.global) {
      Diagnostic& diagnostic = refused->emplace_back();
      diagnostic.message = absl::StrCat(llvm::demangle(kernel->getName().str()),
                                        " is an entry, but no kernel: declare it __global__");
      places.Set(*kernel, &diagnostic);
      return Error(absl::StatusCode::kInvalidArgument, diagnostic.message, "declare it __global__");
    }
    marker->eraseFromParent();
    const auto same = std::find(kernels.begin(), kernels.end(), kernel) - kernels.begin();
    kernels.push_back(kernel);
    if (static_cast<size_t>(same) < i) {
      symbols.push_back(symbols[static_cast<size_t>(same)]);
      continue;
    }
    const std::string symbol = kernel->getName().str();
    kernel->setName("kvr_kernel");  // the module makes it unique
    entry->setName(symbol);
    params->setName(symbol + "_params");
    symbols.push_back(symbol);
  }
  return symbols;
}

}  // namespace kvr::clang_jit
