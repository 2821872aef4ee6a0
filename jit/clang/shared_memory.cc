// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/shared_memory.h"

#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/ReplaceConstant.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace kvr::clang_jit {
namespace {

// What CUDA allows without opting in, and static memory cannot opt in.
constexpr int64_t kMaxStatic = 48 << 10;

// Offsets in kvr_host_lane.
constexpr int64_t kStaticBase = 0, kDynamicBase = 8;

using FunctionSet = std::set<llvm::Function*>;

// Functions and shared variables that `value` names, through constant expressions.
void Collect(llvm::Value* value, FunctionSet* functions, std::set<llvm::GlobalVariable*>* shared) {
  if (auto* function = llvm::dyn_cast<llvm::Function>(value)) {
    functions->insert(function);
  } else if (auto* variable = llvm::dyn_cast<llvm::GlobalVariable>(value)) {
    if (variable->isThreadLocal()) shared->insert(variable);
  } else if (auto* expression = llvm::dyn_cast<llvm::ConstantExpr>(value)) {
    for (llvm::Use& operand : expression->operands()) Collect(operand, functions, shared);
  }
}

struct Reach {
  FunctionSet functions;
  std::set<llvm::GlobalVariable*> shared;
};

// Everything that `entry` may run: what a function names counts as called.
Reach ReachOf(llvm::Function* entry) {
  Reach reach;
  std::vector<llvm::Function*> todo = {entry};
  reach.functions.insert(entry);
  while (!todo.empty()) {
    llvm::Function* function = todo.back();
    todo.pop_back();
    FunctionSet named;
    for (llvm::BasicBlock& block : *function) {
      for (llvm::Instruction& instruction : block) {
        for (llvm::Use& operand : instruction.operands()) {
          Collect(operand, &named, &reach.shared);
        }
      }
    }
    for (llvm::Function* callee : named) {
      if (reach.functions.insert(callee).second) todo.push_back(callee);
    }
  }
  return reach;
}

// Variables that one kernel reaches must not overlap; those of different kernels may.
class Layout {
 public:
  explicit Layout(const llvm::DataLayout& data) : data_(data) {}

  void Place(llvm::GlobalVariable* variable, const std::vector<Reach>& reaches) {
    const int64_t size =
        static_cast<int64_t>(data_.getTypeAllocSize(variable->getValueType()).getFixedValue());
    const int64_t align = static_cast<int64_t>(
        variable->getAlign().value_or(data_.getABITypeAlign(variable->getValueType())).value());
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const auto& [other, place] : places_) {
      const bool meet = std::any_of(reaches.begin(), reaches.end(), [&](const Reach& reach) {
        return reach.shared.count(variable) != 0 && reach.shared.count(other) != 0;
      });
      if (meet) taken.push_back(place);
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + size <= begin) break;
      offset = std::max(offset, (end + align - 1) / align * align);
    }
    places_[variable] = {offset, offset + size};
  }

  int64_t offset(llvm::GlobalVariable* variable) const { return places_.at(variable).first; }
  int64_t end(llvm::GlobalVariable* variable) const { return places_.at(variable).second; }

 private:
  const llvm::DataLayout& data_;
  std::map<llvm::GlobalVariable*, std::pair<int64_t, int64_t>> places_;
};

// The bases that a function's shared variables count from, loaded at its entry.
class Bases {
 public:
  explicit Bases(llvm::Module* module) : module_(module) {
    llvm::LLVMContext& context = module->getContext();
    pointer_ = llvm::PointerType::getUnqual(context);
    self_ = module->getOrInsertFunction("kvr_host_self", pointer_);
    auto* function = llvm::cast<llvm::Function>(self_.getCallee());
    function->setDoesNotAccessMemory();
    function->setDoesNotThrow();
    function->setWillReturn();
    function->addFnAttr(llvm::Attribute::Speculatable);
  }

  llvm::Value* Get(llvm::Function* function, int64_t which) {
    llvm::Value*& base = bases_[{function, which}];
    if (base != nullptr) return base;
    llvm::IRBuilder<> builder(&*function->getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    llvm::Value* lane = builder.CreateCall(self_);
    llvm::Value* address =
        builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), lane, static_cast<uint64_t>(which));
    llvm::LoadInst* load = builder.CreateAlignedLoad(pointer_, address, llvm::Align(8));
    llvm::LLVMContext& context = module_->getContext();
    auto* none = llvm::MDNode::get(context, {});
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, none);
    load->setMetadata(llvm::LLVMContext::MD_nonnull, none);
    load->setMetadata(
        llvm::LLVMContext::MD_align,
        llvm::MDNode::get(context, llvm::ConstantAsMetadata::get(builder.getInt64(1024))));
    return base = load;
  }

  // A lane's structure never changes while the lane runs: its loads may be kept across calls.
  void MarkInvariantLoads() {
    for (llvm::User* user : self_.getCallee()->users()) MarkLoads(user);
  }

 private:
  void MarkLoads(llvm::User* pointer) {
    for (llvm::User* user : pointer->users()) {
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(user)) {
        load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                          llvm::MDNode::get(module_->getContext(), {}));
      } else if (llvm::isa<llvm::GetElementPtrInst>(user)) {
        MarkLoads(user);
      }
    }
  }

  llvm::Module* module_;
  llvm::PointerType* pointer_;
  llvm::FunctionCallee self_;
  std::map<std::pair<llvm::Function*, int64_t>, llvm::Value*> bases_;
};

absl::Status VariableError(const llvm::GlobalVariable& variable, const std::string& what,
                           const std::string& fix) {
  return Error(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("shared variable ", llvm::demangle(variable.getName().str()), " ", what), fix);
}

// An `extern thread_local` variable is reached through a wrapper that would first run the definer's
// initialiser, if there were one. There is none.
void DropInitialisers(llvm::Module* module) {
  std::vector<llvm::Function*> initialisers;
  for (llvm::Function& function : *module) {
    if (function.isDeclaration() && function.getName().starts_with("_ZTH")) {
      initialisers.push_back(&function);
    }
  }
  for (llvm::Function* function : initialisers) {
    function->replaceAllUsesWith(llvm::ConstantPointerNull::get(function->getType()));
    function->eraseFromParent();
  }
}

absl::Status ReplaceUses(llvm::GlobalVariable* variable, int64_t which, int64_t offset,
                         Bases* bases) {
  llvm::convertUsersOfConstantsToInstructions({variable});
  std::map<llvm::Function*, llvm::Value*> addresses;
  std::vector<llvm::Use*> uses;
  for (llvm::Use& use : variable->uses()) uses.push_back(&use);
  for (llvm::Use* use : uses) {
    auto* instruction = llvm::dyn_cast<llvm::Instruction>(use->getUser());
    if (instruction == nullptr) {
      return VariableError(*variable, "is used in the initial value of another variable",
                           "take its address inside the kernel");
    }
    llvm::Function* function = instruction->getFunction();
    llvm::Value*& address = addresses[function];
    if (address == nullptr) {
      auto* base = llvm::cast<llvm::Instruction>(bases->Get(function, which));
      llvm::IRBuilder<> builder(base->getNextNode());
      address = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), base,
                                                   static_cast<uint64_t>(offset));
    }
    auto* intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(instruction);
    if (intrinsic != nullptr &&
        intrinsic->getIntrinsicID() == llvm::Intrinsic::threadlocal_address) {
      intrinsic->replaceAllUsesWith(address);
      intrinsic->eraseFromParent();
    } else {
      use->set(address);
    }
  }
  variable->removeDeadConstantUsers();
  variable->setComdat(nullptr);
  variable->eraseFromParent();
  return absl::OkStatus();
}

// Only the entries are seen from outside; the rest may be inlined, specialised and dropped.
void Internalise(llvm::Module* module, const std::vector<std::string>& entries) {
  std::set<std::string> kept(entries.begin(), entries.end());
  for (const std::string& entry : entries) kept.insert(entry + "_params");
  for (llvm::GlobalObject& object : module->global_objects()) {
    if (object.isDeclaration() || object.hasAppendingLinkage() ||
        kept.count(object.getName().str()) != 0) {
      continue;
    }
    object.setComdat(nullptr);
    object.setLinkage(llvm::GlobalValue::InternalLinkage);
    object.setVisibility(llvm::GlobalValue::DefaultVisibility);
  }
}

}  // namespace

absl::StatusOr<std::vector<EntryResources>> PlaceSharedMemory(
    llvm::Module* module, const std::vector<std::string>& entries, const Annotations& words) {
  if (module->getGlobalVariable("llvm.global_ctors") != nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "a variable at namespace scope needs code to initialise it",
                 "give __device__ and __constant__ variables constant initial values");
  }
  DropInitialisers(module);
  std::vector<Reach> reaches;
  std::vector<EntryResources> resources(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    llvm::Function* entry = module->getFunction(entries[i]);
    if (entry == nullptr) {
      return Error(absl::StatusCode::kInternal, absl::StrCat("no entry ", entries[i]),
                   "report this as a fault of the host compiler");
    }
    reaches.push_back(ReachOf(entry));
    for (llvm::Function* function : reaches.back().functions) {
      const auto word = words.find(function);
      if (word != words.end() && word->second.max_threads > 0) {
        resources[i].max_threads = word->second.max_threads;
      }
    }
  }

  Layout layout(module->getDataLayout());
  std::vector<llvm::GlobalVariable*> variables;
  for (llvm::GlobalVariable& variable : module->globals()) {
    if (!variable.isThreadLocal()) continue;
    variables.push_back(&variable);
    if (variable.isDeclaration()) continue;
    if (variable.getName().starts_with("_ZGV")) {  // the guard of one with a constructor
      return VariableError(variable, "has a constructor", "shared variables cannot have one");
    }
    llvm::Constant* initial = variable.getInitializer();
    if (!initial->isNullValue() && !llvm::isa<llvm::UndefValue>(initial)) {
      return VariableError(variable, "has an initial value", "assign it in the kernel");
    }
    layout.Place(&variable, reaches);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    for (llvm::GlobalVariable* variable : reaches[i].shared) {
      if (variable->isDeclaration()) continue;
      resources[i].smem_static = std::max(resources[i].smem_static, layout.end(variable));
    }
    if (resources[i].smem_static > kMaxStatic) {
      return Error(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("static shared memory is ", resources[i].smem_static,
                                " bytes, at most ", kMaxStatic, " are possible"),
                   "use dynamic shared memory: extern __shared__ and the manifest's smem");
    }
  }

  Bases bases(module);
  for (llvm::GlobalVariable* variable : variables) {
    const bool dynamic = variable->isDeclaration();
    KVR_RETURN_IF_ERROR(ReplaceUses(variable, dynamic ? kDynamicBase : kStaticBase,
                                    dynamic ? 0 : layout.offset(variable), &bases));
  }
  bases.MarkInvariantLoads();
  Internalise(module, entries);
  return resources;
}

}  // namespace kvr::clang_jit
