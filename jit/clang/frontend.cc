// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/frontend.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/FileManager.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/ModuleBuilder.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendAction.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

namespace kvr::clang_jit {
namespace {

void SetPlace(const clang::SourceManager& sources, clang::SourceLocation location,
              Diagnostic* diagnostic) {
  if (location.isInvalid()) return;
  const clang::PresumedLoc at = sources.getPresumedLoc(sources.getExpansionLoc(location));
  if (at.isInvalid()) return;
  diagnostic->file = at.getFilename();
  diagnostic->line = static_cast<int>(at.getLine());
  diagnostic->column = static_cast<int>(at.getColumn());
}

// What Clang's code generator calls a location cookie is the location's raw encoding.
std::map<uint64_t, Diagnostic> FindAssembly(const llvm::Module& module,
                                            const clang::SourceManager& sources) {
  std::map<uint64_t, Diagnostic> places;
  for (const llvm::Function& function : module) {
    for (const llvm::Instruction& instruction : llvm::instructions(function)) {
      const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
      if (call == nullptr || !call->isInlineAsm()) continue;
      const llvm::MDNode* locations = call->getMetadata("srcloc");
      if (locations == nullptr || locations->getNumOperands() == 0) continue;
      const auto* cookie = llvm::mdconst::dyn_extract<llvm::ConstantInt>(locations->getOperand(0));
      if (cookie == nullptr) continue;
      const uint64_t raw = cookie->getZExtValue();
      SetPlace(sources,
               clang::SourceLocation::getFromRawEncoding(
                   static_cast<clang::SourceLocation::UIntTy>(raw)),
               &places[raw]);
    }
  }
  return places;
}

class Collector : public clang::DiagnosticConsumer {
 public:
  explicit Collector(std::vector<Diagnostic>* diagnostics) : diagnostics_(diagnostics) {}

  void HandleDiagnostic(clang::DiagnosticsEngine::Level level,
                        const clang::Diagnostic& info) override {
    clang::DiagnosticConsumer::HandleDiagnostic(level, info);  // counts
    Diagnostic diagnostic;
    switch (level) {
      case clang::DiagnosticsEngine::Error:
      case clang::DiagnosticsEngine::Fatal:
        diagnostic.severity = Diagnostic::Severity::kError;
        break;
      case clang::DiagnosticsEngine::Warning:
        diagnostic.severity = Diagnostic::Severity::kWarning;
        break;
      case clang::DiagnosticsEngine::Note:
        diagnostic.severity = Diagnostic::Severity::kNote;
        break;
      default:
        return;
    }
    llvm::SmallString<256> message;
    info.FormatDiagnostic(message);
    diagnostic.message = message.str().str();
    if (info.hasSourceManager()) SetPlace(info.getSourceManager(), info.getLocation(), &diagnostic);
    diagnostics_->push_back(std::move(diagnostic));
  }

 private:
  std::vector<Diagnostic>* diagnostics_;
};

// Parses and generates IR; nothing else of Clang's own pipeline (no optimiser, no back end).
class IrAction : public clang::ASTFrontendAction {
 public:
  explicit IrAction(llvm::LLVMContext* context) : context_(context) {}

  FrontendOutput Take() { return std::move(output_); }

 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler,
                                                        llvm::StringRef file) override {
    generator_ =
        clang::CreateLLVMCodeGen(compiler.getDiagnostics(), file, &compiler.getVirtualFileSystem(),
                                 compiler.getHeaderSearchOpts(), compiler.getPreprocessorOpts(),
                                 compiler.getCodeGenOpts(), *context_);
    return std::unique_ptr<clang::ASTConsumer>(generator_);
  }
  void EndSourceFileAction() override {
    output_.module.reset(generator_->ReleaseModule());
    if (output_.module != nullptr) {
      output_.assembly = FindAssembly(*output_.module, getCompilerInstance().getSourceManager());
    }
  }

 private:
  llvm::LLVMContext* context_;
  clang::CodeGenerator* generator_ = nullptr;  // owned by the compiler instance
  FrontendOutput output_;
};

}  // namespace

FrontendOutput CompileToIr(const FrontendInput& input, llvm::LLVMContext* context) {
  FrontendOutput output;
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  for (const SourceFile& file : input.files) {
    files->addFile(file.path, 0,
                   llvm::MemoryBuffer::getMemBufferCopy(
                       llvm::StringRef(file.content.data(), file.content.size()), file.path));
  }
  Collector collector(&output.diagnostics);
  clang::CompilerInstance compiler;
  compiler.createDiagnostics(&collector, /*ShouldOwnClient=*/false);
  compiler.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());

  std::vector<const char*> arguments;
  for (const std::string& option : input.options) arguments.push_back(option.c_str());
  arguments.push_back(input.main_path.c_str());
  if (!clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), arguments,
                                                 compiler.getDiagnostics())) {
    return output;
  }
  compiler.createFileManager(files);
  IrAction action(context);
  if (!compiler.ExecuteAction(action) || compiler.getDiagnostics().hasErrorOccurred()) {
    return output;
  }
  FrontendOutput made = action.Take();
  made.diagnostics = std::move(output.diagnostics);
  return made;
}

std::string ClangVersion() { return CLANG_VERSION_STRING; }

}  // namespace kvr::clang_jit
