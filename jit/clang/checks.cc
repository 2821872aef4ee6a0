// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/checks.h"

#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugLoc.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Object/ObjectFile.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace kvr::clang_jit {
namespace {

const std::set<std::string>& OfferedSymbols() {
  static const std::set<std::string> names = {
#define KVR_HOST_SYMBOL(name) #name,
#include "sdk/device/host/kvr_host_symbols.h"
#undef KVR_HOST_SYMBOL
  };
  return names;
}

// An instruction that uses `value`, through constants if need be.
const llvm::Instruction* FindUse(const llvm::Value& value) {
  for (const llvm::User* user : value.users()) {
    if (const auto* instruction = llvm::dyn_cast<llvm::Instruction>(user)) return instruction;
    if (const llvm::Instruction* found = FindUse(*user)) return found;
  }
  return nullptr;
}

}  // namespace

std::vector<Diagnostic> FindRefused(const llvm::Module& module, const Places& places) {
  std::vector<Diagnostic> refused;
  const auto refuse = [&](const llvm::Instruction& instruction, const char* message) {
    Diagnostic& diagnostic = refused.emplace_back();
    diagnostic.message = message;
    places.Set(instruction.getDebugLoc(), &diagnostic);
  };
  for (const llvm::Function& function : module) {
    for (const llvm::Instruction& instruction : llvm::instructions(function)) {
      if (const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction)) {
        const auto* assembly = llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand());
        if (assembly != nullptr && !assembly->getAsmString().empty()) {
          refuse(instruction, kAssemblyMessage);
        }
      } else if (const auto* local = llvm::dyn_cast<llvm::AllocaInst>(&instruction)) {
        if (!llvm::isa<llvm::ConstantInt>(local->getArraySize())) {
          refuse(instruction,
                 "local memory of variable size is not possible on host: give the array a constant "
                 "size, or use shared memory");
        }
      }
    }
  }
  return refused;
}

std::string UndefinedMessage(const llvm::GlobalValue& value) {
  return absl::StrCat(llvm::demangle(value.getName().str()),
                      " is declared, but defined nowhere in the unit, and the host device has no ",
                      llvm::isa<llvm::Function>(value) ? "function" : "variable",
                      " of that name: define it, or leave 'host' out of `targets` and say why in "
                      "`host_skip_reason`");
}

std::vector<Diagnostic> FindUndefined(const llvm::Module& module, const Places& places) {
  std::vector<Diagnostic> undefined;
  for (const llvm::GlobalValue& value : module.global_values()) {
    if (!value.isDeclaration() || OfferedSymbols().count(value.getName().str()) != 0) continue;
    const auto* function = llvm::dyn_cast<llvm::Function>(&value);
    if (function != nullptr && function->isIntrinsic()) continue;
    const llvm::Instruction* use = FindUse(value);
    if (use == nullptr) continue;
    Diagnostic& diagnostic = undefined.emplace_back();
    diagnostic.message = UndefinedMessage(value);
    places.Set(use->getDebugLoc(), &diagnostic);
  }
  return undefined;
}

absl::Status CheckObjectSymbols(const std::string& object) {
  const llvm::MemoryBufferRef bytes({object.data(), object.size()}, "object");
  llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>> file =
      llvm::object::ObjectFile::createObjectFile(bytes);
  if (!file) {
    return Error(absl::StatusCode::kInternal, llvm::toString(file.takeError()),
                 "report this as a fault of the host compiler");
  }
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    llvm::Expected<uint32_t> flags = symbol.getFlags();
    llvm::Expected<llvm::StringRef> name = symbol.getName();
    if (!flags || !name) {
      llvm::consumeError(flags.takeError());
      llvm::consumeError(name.takeError());
      continue;
    }
    // The linker itself provides the table of addresses.
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) == 0 || name->empty() ||
        *name == "_GLOBAL_OFFSET_TABLE_" || OfferedSymbols().count(name->str()) != 0) {
      continue;
    }
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("the code needs the function ", llvm::demangle(name->str()),
                              ", which the host device does not have"),
                 "use another type or operation, or leave 'host' out of the variant's targets");
  }
  return absl::OkStatus();
}

}  // namespace kvr::clang_jit
