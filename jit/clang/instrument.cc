// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/instrument.h"

#include <llvm/ADT/MapVector.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugLoc.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace kvr::clang_jit {
namespace {

// sdk/device/host/kvr_host_abi.h
constexpr uint64_t kSharedAt = 16, kSharedBytesAt = 24, kStackLimitAt = 32;
constexpr unsigned kWrite = 1, kConcurrent = 2;

constexpr unsigned kMostSites = 1 << 16;  // a record of an access has 16 bits for one

class SiteTable {
 public:
  unsigned Number(const std::string& text) {
    if (text.empty()) return 0;
    auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    if (texts_.size() == kMostSites) return 0;
    texts_.push_back(text);
    return numbers_[text] = static_cast<unsigned>(texts_.size() - 1);
  }

  void AddTo(llvm::Module* module) const {
    llvm::IRBuilder<> builder(module->getContext());
    std::vector<llvm::Constant*> pointers;
    for (const std::string& text : texts_) {
      pointers.push_back(builder.CreateGlobalString(text, "", 0, module));
    }
    auto* type = llvm::ArrayType::get(builder.getPtrTy(), pointers.size());
    new llvm::GlobalVariable(*module, type, /*isConstant=*/true, llvm::GlobalValue::ExternalLinkage,
                             llvm::ConstantArray::get(type, pointers), kSitesSymbol);
  }

 private:
  std::vector<std::string> texts_ = {""};
  std::map<std::string, unsigned> numbers_;
};

bool Calls(const llvm::Value* value, llvm::StringRef name) {
  const auto* call = llvm::dyn_cast<llvm::CallBase>(value);
  return call != nullptr && call->getCalledFunction() != nullptr &&
         call->getCalledFunction()->getName() == name;
}

enum class Memory { kOther, kShared, kUnknown };

class Instrumenter {
 public:
  Instrumenter(llvm::Module* module, const std::vector<std::string>& entries, const Places& places)
      : module_(module), entries_(entries.begin(), entries.end()), places_(places) {
    llvm::IRBuilder<> builder(module->getContext());
    llvm::Type *pointer = builder.getPtrTy(), *none = builder.getVoidTy();
    self_ = module->getOrInsertFunction("kvr_host_self", pointer);
    access_ = module->getOrInsertFunction("kvr_host_access", none, pointer, pointer,
                                          builder.getInt64Ty(), builder.getInt32Ty());
    order_ = module->getOrInsertFunction("kvr_host_order", none, pointer);
    yield_ = module->getOrInsertFunction("kvr_host_yield", none, pointer);
    overflow_ = module->getOrInsertFunction("kvr_host_stack_overflow", none, pointer);
    // It reads what is there, but changes nothing that the kernel can see.
    auto* access = llvm::cast<llvm::Function>(access_.getCallee());
    access->setMemoryEffects(llvm::MemoryEffects::readOnly() |
                             llvm::MemoryEffects::inaccessibleMemOnly());
    access->setDoesNotThrow();
    llvm::cast<llvm::Function>(order_.getCallee())->setDoesNotThrow();
  }

  void Run() {
    for (llvm::Function& function : *module_) {
      if (!function.isDeclaration()) InFunction(&function);
    }
    sites_.AddTo(module_);
  }

 private:
  // Values that a function's instructions share, made at its entry.
  struct Frame {
    llvm::Value* self = nullptr;
    llvm::Value* shared = nullptr;  // as integers
    llvm::Value* shared_bytes = nullptr;
  };

  struct Access {
    llvm::Instruction* instruction;  // announced before it
    llvm::Value* base;
    int64_t offset;
    llvm::Value* length;  // or null: `bytes`
    int64_t bytes;
    unsigned how;
  };

  struct Found {
    std::vector<Access> accesses;
    std::vector<llvm::Instruction*> ordering;  // atomic operations and fences
    std::vector<llvm::LoadInst*> polling;      // volatile: what they wait for must be able to come
  };

  void InFunction(llvm::Function* function) {
    std::vector<llvm::CallBase*> site_calls;
    bool calls = false;
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
      if (call == nullptr) continue;
      const llvm::Function* callee = call->getCalledFunction();
      calls |= callee == nullptr || !callee->isDeclaration();
      if (Calls(call, "kvr_host_site")) {
        site_calls.push_back(llvm::cast<llvm::CallBase>(&instruction));
      }
    }
    for (llvm::CallBase* call : site_calls) {
      call->replaceAllUsesWith(llvm::ConstantInt::get(call->getType(), SiteOf(*call)));
      call->eraseFromParent();
    }
    Frame frame;
    if (!function->hasFnAttribute(llvm::Attribute::DisableSanitizerInstrumentation)) {
      Found found;
      for (llvm::BasicBlock& block : *function) FindAccesses(block, &found);
      for (const Access& access : found.accesses) Announce(access, &frame);
      for (llvm::Instruction* instruction : found.ordering) {
        llvm::IRBuilder<> builder(instruction->getNextNode());
        builder.CreateCall(order_, {Self(function, &frame)});
      }
      for (llvm::LoadInst* load : found.polling) {
        llvm::IRBuilder<> builder(load);
        builder.CreateCall(yield_, {Self(function, &frame)});
      }
    }
    if (calls && entries_.count(function->getName().str()) == 0) CheckStack(function, &frame);
  }

  unsigned SiteOf(const llvm::Instruction& instruction) {
    return sites_.Number(places_.Text(instruction.getDebugLoc()));
  }

  llvm::Value* Self(llvm::Function* function, Frame* frame) {
    if (frame->self == nullptr) {
      llvm::IRBuilder<> builder(&*function->getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
      frame->self = builder.CreateCall(self_);
    }
    return frame->self;
  }

  // A member of the lane, loaded where its address is made.
  llvm::Value* LoadMember(llvm::IRBuilder<>& builder, llvm::Value* self, uint64_t offset) {
    llvm::Value* address = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), self, offset);
    llvm::LoadInst* load = builder.CreateAlignedLoad(builder.getInt64Ty(), address, llvm::Align(8));
    load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                      llvm::MDNode::get(module_->getContext(), {}));
    return load;
  }

  static bool MayMeet(const llvm::Instruction& instruction) {
    const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
    return call != nullptr && !llvm::isa<llvm::IntrinsicInst>(call) && !call->onlyReadsMemory();
  }

  // Plain accesses of one line to neighbouring addresses, with no call between them that could let
  // other threads run, become one: the members of a float4, an unrolled loop.
  void FindAccesses(llvm::BasicBlock& block, Found* found) {
    llvm::MapVector<std::pair<llvm::Value*, unsigned>, std::vector<Access>> plain;
    const auto close = [&] {
      for (auto& [key, pieces] : plain) Join(std::move(pieces), &found->accesses);
      plain.clear();
    };
    for (llvm::Instruction& instruction : block) {
      if (MayMeet(instruction)) close();
      if (!instruction.mayReadOrWriteMemory()) continue;
      Access access{&instruction, nullptr, 0, nullptr, 0, SiteOf(instruction) << 2};
      const auto add = [&](llvm::Value* address, llvm::Type* type, bool may_join) {
        const llvm::DataLayout& data = module_->getDataLayout();
        llvm::APInt offset(64, 0);
        access.base = address->stripAndAccumulateConstantOffsets(data, offset, true);
        access.offset = offset.getSExtValue();
        access.bytes = static_cast<int64_t>(data.getTypeStoreSize(type).getFixedValue());
        if (may_join) {
          plain[{access.base, access.how}].push_back(access);
        } else {
          access.how |= kConcurrent;
          found->accesses.push_back(access);
        }
      };
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction)) {
        add(load->getPointerOperand(), load->getType(), load->isSimple());
        const llvm::Value* object = llvm::getUnderlyingObject(access.base, 0);
        if (load->isVolatile() && !llvm::isa<llvm::AllocaInst>(object)) {
          found->polling.push_back(load);
        }
      } else if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction)) {
        access.how |= kWrite;
        add(store->getPointerOperand(), store->getValueOperand()->getType(), store->isSimple());
      } else if (auto* update = llvm::dyn_cast<llvm::AtomicRMWInst>(&instruction)) {
        access.how |= kWrite;
        add(update->getPointerOperand(), update->getType(), false);
      } else if (auto* exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&instruction)) {
        access.how |= kWrite;
        add(exchange->getPointerOperand(), exchange->getNewValOperand()->getType(), false);
      } else if (auto* memory = llvm::dyn_cast<llvm::MemIntrinsic>(&instruction)) {
        access.length = memory->getLength();
        if (auto* transfer = llvm::dyn_cast<llvm::MemTransferInst>(memory)) {
          access.base = transfer->getRawSource();
          found->accesses.push_back(access);
        }
        access.base = memory->getRawDest();
        access.how |= kWrite;
        found->accesses.push_back(access);
      }
      if (instruction.isAtomic()) found->ordering.push_back(&instruction);
    }
    close();
  }

  // Of one base and kind, in program order.
  static void Join(std::vector<Access> pieces, std::vector<Access>* accesses) {
    llvm::Instruction* first = pieces.front().instruction;
    std::sort(pieces.begin(), pieces.end(), [](const Access& x, const Access& y) {
      return std::pair(x.offset, x.bytes) < std::pair(y.offset, y.bytes);
    });
    for (size_t i = 0; i < pieces.size();) {
      Access joined = pieces[i];
      joined.instruction = first;
      int64_t end = joined.offset + joined.bytes;
      for (++i; i < pieces.size() && pieces[i].offset <= end; ++i) {
        end = std::max(end, pieces[i].offset + pieces[i].bytes);
      }
      joined.bytes = end - joined.offset;
      accesses->push_back(joined);
    }
  }

  void Announce(const Access& access, Frame* frame) {
    const Memory memory = Classify(access.base);
    if (memory == Memory::kOther) return;
    llvm::Value* self = Self(access.instruction->getFunction(), frame);
    llvm::IRBuilder<> builder(access.instruction);
    llvm::Value* address = access.base;
    if (access.offset != 0) {
      address =
          builder.CreatePtrAdd(address, builder.getInt64(static_cast<uint64_t>(access.offset)));
    }
    llvm::Value* bytes =
        access.length != nullptr
            ? builder.CreateZExtOrTrunc(access.length, builder.getInt64Ty())
            : llvm::cast<llvm::Value>(builder.getInt64(static_cast<uint64_t>(access.bytes)));
    if (memory == Memory::kUnknown) {
      if (frame->shared == nullptr) {
        llvm::IRBuilder<> entry(llvm::cast<llvm::Instruction>(self)->getNextNode());
        frame->shared = LoadMember(entry, self, kSharedAt);
        frame->shared_bytes = LoadMember(entry, self, kSharedBytesAt);
      }
      llvm::Value* offset =
          builder.CreateSub(builder.CreatePtrToInt(address, builder.getInt64Ty()), frame->shared);
      builder.SetInsertPoint(
          llvm::SplitBlockAndInsertIfThen(builder.CreateICmpULT(offset, frame->shared_bytes),
                                          access.instruction, /*Unreachable=*/false));
    }
    builder.CreateCall(access_, {self, address, bytes, builder.getInt32(access.how)});
  }

  Memory Classify(llvm::Value* address) const {
    llvm::SmallVector<const llvm::Value*, 4> objects;
    llvm::getUnderlyingObjects(address, objects, nullptr, /*MaxLookup=*/0);
    bool shared = false, other = false;
    for (const llvm::Value* object : objects) {
      switch (ClassifyObject(object)) {
        case Memory::kOther:
          other = true;
          break;
        case Memory::kShared:
          shared = true;
          break;
        case Memory::kUnknown:
          return Memory::kUnknown;
      }
    }
    if (shared && other) return Memory::kUnknown;
    return shared ? Memory::kShared : Memory::kOther;
  }

  Memory ClassifyObject(const llvm::Value* object) const {
    if (llvm::isa<llvm::AllocaInst, llvm::GlobalValue, llvm::UndefValue>(object) ||
        Calls(object, "kvr_host_self") || IsEntryArgument(object)) {
      return Memory::kOther;
    }
    const auto* load = llvm::dyn_cast<llvm::LoadInst>(object);
    if (load == nullptr) return Memory::kUnknown;
    const llvm::Value* from = llvm::getUnderlyingObject(load->getPointerOperand(), 0);
    if (Calls(from, "kvr_host_self")) return Memory::kShared;  // it has no other pointers
    // A launch's argument, or the table that points at it.
    if (IsEntryArgument(from)) return Memory::kOther;
    const auto* table = llvm::dyn_cast<llvm::LoadInst>(from);
    return table != nullptr &&
                   IsEntryArgument(llvm::getUnderlyingObject(table->getPointerOperand(), 0))
               ? Memory::kOther
               : Memory::kUnknown;
  }

  bool IsEntryArgument(const llvm::Value* value) const {
    const auto* argument = llvm::dyn_cast<llvm::Argument>(value);
    return argument != nullptr && entries_.count(argument->getParent()->getName().str()) != 0;
  }

  void CheckStack(llvm::Function* function, Frame* frame) {
    auto* self = llvm::cast<llvm::Instruction>(Self(function, frame));
    llvm::LLVMContext& context = module_->getContext();
    llvm::IRBuilder<> builder(self->getNextNode());
    auto* name = llvm::MetadataAsValue::get(
        context, llvm::MDNode::get(context, llvm::MDString::get(context, "rsp")));
    llvm::Value* stack =
        builder.CreateIntrinsic(llvm::Intrinsic::read_register, {builder.getInt64Ty()}, {name});
    llvm::Value* full = builder.CreateICmpULT(stack, LoadMember(builder, self, kStackLimitAt));
    builder.SetInsertPoint(
        llvm::SplitBlockAndInsertIfThen(full, &*builder.GetInsertPoint(), /*Unreachable=*/true,
                                        llvm::MDBuilder(context).createUnlikelyBranchWeights()));
    builder.CreateCall(overflow_, {self});
  }

  llvm::Module* module_;
  const std::set<std::string> entries_;
  const Places& places_;
  SiteTable sites_;
  llvm::FunctionCallee self_, access_, order_, yield_, overflow_;
};

}  // namespace

void Instrument(llvm::Module* module, const std::vector<std::string>& entries,
                const Places& places) {
  Instrumenter(module, entries, places).Run();
}

}  // namespace kvr::clang_jit
