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
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

namespace kvr::clang_jit {
namespace {

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
    if (info.hasSourceManager() && info.getLocation().isValid()) {
      const clang::SourceManager& sources = info.getSourceManager();
      const clang::PresumedLoc at =
          sources.getPresumedLoc(sources.getExpansionLoc(info.getLocation()));
      if (at.isValid()) {
        diagnostic.file = at.getFilename();
        diagnostic.line = static_cast<int>(at.getLine());
        diagnostic.column = static_cast<int>(at.getColumn());
      }
    }
    diagnostics_->push_back(std::move(diagnostic));
  }

 private:
  std::vector<Diagnostic>* diagnostics_;
};

// Parses and generates IR; nothing else of Clang's own pipeline (no optimiser, no back end).
class IrAction : public clang::ASTFrontendAction {
 public:
  explicit IrAction(llvm::LLVMContext* context) : context_(context) {}

  std::unique_ptr<llvm::Module> Take() { return std::move(module_); }

 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler,
                                                        llvm::StringRef file) override {
    generator_ =
        clang::CreateLLVMCodeGen(compiler.getDiagnostics(), file, &compiler.getVirtualFileSystem(),
                                 compiler.getHeaderSearchOpts(), compiler.getPreprocessorOpts(),
                                 compiler.getCodeGenOpts(), *context_);
    return std::unique_ptr<clang::ASTConsumer>(generator_);
  }
  void EndSourceFileAction() override { module_.reset(generator_->ReleaseModule()); }

 private:
  llvm::LLVMContext* context_;
  clang::CodeGenerator* generator_ = nullptr;  // owned by the compiler instance
  std::unique_ptr<llvm::Module> module_;
};

}  // namespace

std::unique_ptr<llvm::Module> CompileToIr(const FrontendInput& input, llvm::LLVMContext* context,
                                          std::vector<Diagnostic>* diagnostics) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  for (const SourceFile& file : input.files) {
    files->addFile(file.path, 0,
                   llvm::MemoryBuffer::getMemBufferCopy(
                       llvm::StringRef(file.content.data(), file.content.size()), file.path));
  }
  Collector collector(diagnostics);
  clang::CompilerInstance compiler;
  compiler.createDiagnostics(&collector, /*ShouldOwnClient=*/false);
  compiler.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());

  std::vector<const char*> arguments;
  for (const std::string& option : input.options) arguments.push_back(option.c_str());
  arguments.push_back(input.main_path.c_str());
  if (!clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), arguments,
                                                 compiler.getDiagnostics())) {
    return nullptr;
  }
  compiler.createFileManager(files);
  IrAction action(context);
  if (!compiler.ExecuteAction(action) || compiler.getDiagnostics().hasErrorOccurred()) {
    return nullptr;
  }
  return action.Take();
}

std::string ClangVersion() { return CLANG_VERSION_STRING; }

}  // namespace kvr::clang_jit
