// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/frontend.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/ASTContext.h>
#include <clang/AST/Decl.h>
#include <clang/AST/DeclCXX.h>
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

#include "jit/clang/checks.h"

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

// The first piece of assembly outside any function.
const clang::Decl* FindFileScopeAssembly(const clang::DeclContext& context) {
  for (const clang::Decl* declaration : context.decls()) {
    if (llvm::isa<clang::FileScopeAsmDecl>(declaration)) return declaration;
    if (!llvm::isa<clang::NamespaceDecl, clang::LinkageSpecDecl>(declaration)) continue;
    const auto* inner = llvm::cast<clang::DeclContext>(declaration);
    if (const clang::Decl* found = FindFileScopeAssembly(*inner)) return found;
  }
  return nullptr;
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
    if (output_.module == nullptr || output_.module->getModuleInlineAsm().empty()) return;
    output_.module = nullptr;
    Diagnostic& diagnostic = output_.diagnostics.emplace_back();
    diagnostic.message = kAssemblyMessage;
    clang::CompilerInstance& compiler = getCompilerInstance();
    const clang::Decl* found =
        FindFileScopeAssembly(*compiler.getASTContext().getTranslationUnitDecl());
    if (found != nullptr) {
      SetPlace(compiler.getSourceManager(), found->getLocation(), &diagnostic);
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
  // Lines for checks.h and instrument.h; the object gets none of them.
  compiler.getCodeGenOpts().setDebugInfo(llvm::codegenoptions::LocTrackingOnly);
  compiler.createFileManager(files);
  IrAction action(context);
  if (!compiler.ExecuteAction(action) || compiler.getDiagnostics().hasErrorOccurred()) {
    return output;
  }
  FrontendOutput made = action.Take();
  output.module = std::move(made.module);
  output.diagnostics.insert(output.diagnostics.end(), made.diagnostics.begin(),
                            made.diagnostics.end());
  return output;
}

std::string ClangVersion() { return CLANG_VERSION_STRING; }

}  // namespace kvr::clang_jit
