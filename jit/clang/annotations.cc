// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/annotations.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Module.h>

namespace kvr::clang_jit {

Annotations TakeAnnotations(llvm::Module* module) {
  Annotations words;
  llvm::GlobalVariable* annotations = module->getGlobalVariable("llvm.global.annotations");
  if (annotations == nullptr) return words;
  auto* list = llvm::dyn_cast<llvm::ConstantArray>(annotations->getInitializer());
  for (unsigned i = 0; list != nullptr && i < list->getNumOperands(); ++i) {
    auto* entry = llvm::cast<llvm::ConstantStruct>(list->getOperand(i));
    auto* function = llvm::dyn_cast<llvm::Function>(entry->getOperand(0)->stripPointerCasts());
    auto* name = llvm::dyn_cast<llvm::GlobalVariable>(entry->getOperand(1)->stripPointerCasts());
    if (function == nullptr || name == nullptr) continue;
    auto* text = llvm::dyn_cast<llvm::ConstantDataArray>(name->getInitializer());
    if (text == nullptr || !text->isCString()) continue;
    if (text->getAsCString() == "kvr_global") words[function].global = true;
    if (text->getAsCString() != "kvr_launch_bounds") continue;
    auto* arguments =
        llvm::dyn_cast<llvm::GlobalVariable>(entry->getOperand(4)->stripPointerCasts());
    if (arguments == nullptr) continue;
    auto* values = arguments->getInitializer();
    if (auto* first = llvm::dyn_cast_or_null<llvm::ConstantInt>(values->getAggregateElement(0u))) {
      words[function].max_threads = static_cast<int>(first->getSExtValue());
    }
  }
  annotations->eraseFromParent();
  return words;
}

}  // namespace kvr::clang_jit
