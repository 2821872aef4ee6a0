// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/backend.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/fingerprint.h"
#include "core/status.h"
#include "jit/clang/checks.h"
#include "jit/clang/instrument.h"

namespace kvr::clang_jit {
namespace {

HostCpu DetectCpu() {
  HostCpu cpu;
  cpu.name = llvm::sys::getHostCPUName().str();
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  for (const auto& feature : features) {
    cpu.features.push_back((feature.second ? "+" : "-") + feature.first().str());
  }
  std::sort(cpu.features.begin(), cpu.features.end());
  cpu.id = absl::StrCat(cpu.name, "/", FingerprintOf(absl::StrJoin(cpu.features, ",")).Short());
  for (const char* needed : {"avx2", "fma", "f16c"}) {
    if (!features.lookup(needed))
      absl::StrAppend(&cpu.missing, cpu.missing.empty() ? "" : ", ", needed);
  }
  return cpu;
}

void NoteLargeFrame(const llvm::DiagnosticInfo* info, void* message) {
  const auto* frame = llvm::dyn_cast<llvm::DiagnosticInfoStackSize>(info);
  if (frame == nullptr) return;
  *static_cast<std::string*>(message) = absl::StrCat(
      "the stack frame of ", llvm::demangle(frame->getFunction().getName().str()), " is ",
      frame->getStackSize(), " bytes, at most ", kMaxFrameBytes, " are possible on host");
}

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine() {
  static const bool initialised = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    return true;
  }();
  (void)initialised;
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTargetTriple, error);
  if (target == nullptr) {
    return Error(absl::StatusCode::kInternal, error,
                 "build the host module with LLVM's x86 target");
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      kTargetTriple, TargetCpu().name, absl::StrJoin(TargetCpu().features, ","), options,
      llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

struct InstrumentPass : llvm::PassInfoMixin<InstrumentPass> {
  const std::vector<std::string>* entries;
  const Places* places;

  llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager&) {
    Instrument(&module, *entries, *places);
    return llvm::PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }
};

void Optimise(llvm::Module* module, llvm::TargetMachine* machine, InstrumentPass instrument) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = true;
  tuning.SLPVectorization = true;
  llvm::PassBuilder builder(machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  functions.registerPass([&] {
    return llvm::TargetLibraryAnalysis(llvm::TargetLibraryInfoImpl(llvm::Triple(kTargetTriple)));
  });
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.registerOptimizerEarlyEPCallback(
      [&](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
        passes.addPass(InstrumentPass(instrument));
      });
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(*module, modules);
}

}  // namespace

const HostCpu& TargetCpu() {
  static const HostCpu cpu = DetectCpu();
  return cpu;
}

absl::StatusOr<std::string> EmitObject(llvm::Module* module,
                                       const std::vector<std::string>& entries,
                                       const Places& places, std::vector<Diagnostic>* undefined) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine, MakeTargetMachine());
  module->setTargetTriple(kTargetTriple);
  module->setDataLayout(machine->createDataLayout());
  std::string large_frame;
  module->getContext().setDiagnosticHandlerCallBack(&NoteLargeFrame, &large_frame);
  for (llvm::Function& function : *module) {
    if (!function.isDeclaration()) {
      function.addFnAttr("warn-stack-size", absl::StrCat(kMaxFrameBytes));
    }
  }
  llvm::Constant* cpu = llvm::ConstantDataArray::getString(module->getContext(), TargetCpu().id);
  new llvm::GlobalVariable(*module, cpu->getType(), /*isConstant=*/true,
                           llvm::GlobalValue::ExternalLinkage, cpu, kCpuSymbol);
  InstrumentPass instrument;
  instrument.entries = &entries;
  instrument.places = &places;
  Optimise(module, machine.get(), instrument);
  *undefined = FindUndefined(*module, places);
  if (!undefined->empty()) {
    return Error(absl::StatusCode::kInvalidArgument, undefined->front().message, "define it");
  }
  llvm::StripDebugInfo(*module);  // the lines have served

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager emit;
  if (machine->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return Error(absl::StatusCode::kInternal, "LLVM cannot emit object files",
                 "build the host module with LLVM's x86 target");
  }
  emit.run(*module);
  module->getContext().setDiagnosticHandlerCallBack(nullptr, nullptr);
  if (!large_frame.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, large_frame,
                 "keep large arrays in shared memory");
  }
  std::string bytes(object.data(), object.size());
  KVR_RETURN_IF_ERROR(CheckObjectSymbols(bytes));
  return bytes;
}

}  // namespace kvr::clang_jit
