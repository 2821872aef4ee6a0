// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/places.h"

#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/DebugLoc.h>
#include <llvm/IR/Function.h>

#include "absl/strings/str_cat.h"

namespace kvr::clang_jit {

namespace {

const llvm::DIScope& ScopeOf(const llvm::DebugLoc& location) {
  return *llvm::cast<llvm::DIScope>(location.getScope());
}

}  // namespace

std::string Places::FileOf(const llvm::DIScope& scope) const {
  const llvm::DIFile* file = scope.getFile();
  if (file == nullptr) return "";
  const std::string name = file->getFilename().str();
  if (name.rfind(directory_, 0) == 0) return name.substr(directory_.size());
  // Clang keeps the part that it shares with the working directory apart.
  const std::string whole = absl::StrCat(file->getDirectory().str(), "/", name);
  return whole.rfind(directory_, 0) == 0 ? whole.substr(directory_.size()) : name;
}

void Places::Set(const llvm::DebugLoc& location, Diagnostic* diagnostic) const {
  if (!location) return;
  llvm::DebugLoc chosen = location;
  for (llvm::DebugLoc frame = location; frame; frame = frame.getInlinedAt()) {
    if (own_.count(FileOf(ScopeOf(frame))) == 0) continue;
    chosen = frame;
    break;
  }
  diagnostic->file = FileOf(ScopeOf(chosen));
  diagnostic->line = static_cast<int>(chosen.getLine());
  diagnostic->column = static_cast<int>(chosen.getCol());
}

void Places::Set(const llvm::Function& function, Diagnostic* diagnostic) const {
  const llvm::DISubprogram* definition = function.getSubprogram();
  if (definition == nullptr) return;
  diagnostic->file = FileOf(*definition);
  diagnostic->line = static_cast<int>(definition->getLine());
}

std::string Places::Text(const llvm::DebugLoc& location) const {
  Diagnostic place;
  Set(location, &place);
  if (place.line == 0 || own_.count(place.file) == 0) return "";
  return absl::StrCat(place.file, ":", place.line);
}

}  // namespace kvr::clang_jit
