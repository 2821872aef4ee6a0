// SPDX-License-Identifier: Apache-2.0
#include "jit/clang/clang.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/CrashRecoveryContext.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/fingerprint.h"
#include "core/status.h"
#include "jit/clang/annotations.h"
#include "jit/clang/backend.h"
#include "jit/clang/checks.h"
#include "jit/clang/entries.h"
#include "jit/clang/frontend.h"
#include "jit/clang/module_id.h"
#include "jit/clang/places.h"
#include "jit/clang/shared_memory.h"
#include "jit/diagnostics.h"
#include "sdk/device/host/kvr_host_abi.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTarget = "host";

// Where the compiler sees the files; nothing of this exists on a disk.
constexpr char kUnitDir[] = "/kvr/unit/";
constexpr char kRuntimeDir[] = "/kvr/host/";
constexpr char kMainPath[] = "/kvr/host/kvr_main.cc";

constexpr unsigned kStackBytes = 64 << 20;  // for deep templates

std::vector<std::string> LanguageOptions() {
  return {"-std=c++20",
          "-O2",
          "-disable-llvm-passes",  // backend.h has the pipeline
          "-ffp-contract=fast",    // as NVRTC
          "-relaxed-aliasing",     // kernels read memory as other types
          "-fdeprecated-macro",
          "-nostdsysteminc",
          "-nobuiltininc",
          "-mrelocation-model",
          "pic",
          "-pic-level",
          "2",
          "-mframe-pointer=none",
          "-Wno-keyword-macro",
          "-Wno-unknown-pragmas",
          "-ferror-limit",
          "20"};
}

absl::StatusOr<std::string> ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error(absl::StatusCode::kNotFound, absl::StrCat("cannot read ", path.string()),
                 "point KVR_SDK_DIR at KVR's device SDK");
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// kvr_host*.h, by name.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadRuntime(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("kvr_host", 0) == 0 && entry.path().extension() == ".h") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::vector<std::pair<std::string, std::string>> files;
  bool found = false;
  for (const std::string& name : names) {
    KVR_ASSIGN_OR_RETURN(std::string text, ReadText(dir / name));
    found |= name == "kvr_host.h";
    files.emplace_back(name, std::move(text));
  }
  if (!found) {
    return Error(absl::StatusCode::kNotFound, absl::StrCat("no kvr_host.h in ", dir.string()),
                 "point KVR_SDK_DIR at KVR's device SDK");
  }
  return files;
}

// For people: what an #include may name besides the bundle's own files.
std::string OfferedHeaders(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("kvr_host", 0) != 0) names.push_back(absl::StrCat("<", name, ">"));
  }
  std::sort(names.begin(), names.end());
  return absl::StrCat("the host device has ", absl::StrJoin(names, ", "),
                      ": leave 'host' out of `targets` and say why in `host_skip_reason` if the "
                      "kernel needs more");
}

class ClangCompiler : public Compiler {
 public:
  ClangCompiler(std::vector<std::pair<std::string, std::string>> runtime,
                std::vector<HeaderRoot> roots)
      : runtime_(std::move(runtime)),
        roots_(std::move(roots)),
        offered_(OfferedHeaders(roots_[0].directory)) {
    Hasher hasher;
    for (const auto& [name, text] : runtime_) hasher.Field(name, text);
    const clang_jit::HostCpu& cpu = clang_jit::TargetCpu();
    identity_ = absl::StrCat("clang ", clang_jit::ClangVersion(), " cpu ", cpu.id, " module ",
                             clang_jit::OwnBuildId(), " runtime ", hasher.Finish().Short());
  }

  const std::string& identity() const override { return identity_; }
  bool Supports(std::string_view target, std::string* reason) const override;
  std::vector<std::string> targets() const override { return {std::string(kTarget)}; }
  std::string Options(std::string_view) const override {
    return absl::StrJoin(LanguageOptions(), " ");
  }
  bool concurrent() const override { return false; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }
  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view target) override;

 private:
  absl::StatusOr<CompiledUnit> CompileHere(const Unit& unit) const;

  const std::vector<std::pair<std::string, std::string>> runtime_;
  const std::vector<HeaderRoot> roots_;  // the first has the standard headers
  const std::string offered_;
  std::string identity_;
};

bool ClangCompiler::Supports(std::string_view target, std::string* reason) const {
  std::string why;
  if (target != kTarget) {
    why = absl::StrCat("Clang compiles for host, not for ", std::string(target));
  } else if (!clang_jit::TargetCpu().missing.empty()) {
    why = absl::StrCat("host kernels need a CPU with ", clang_jit::TargetCpu().missing);
  }
  if (reason != nullptr) *reason = why;
  return why.empty();
}

// The runtime's header, the unit, and an entry per kernel, each on a line of its own.
std::string MainText(const Unit& unit) {
  std::string text = absl::StrCat(
      "#include \"kvr_host.h\"\n#if KVR_HOST_ABI != ", KVR_HOST_ABI,
      "\n#error the device SDK is of another release than this compiler: see KVR_SDK_DIR\n#endif\n"
      "#include <",
      std::string(kUnitFileName), ">\n#line 1 \"", clang_jit::kEntriesFile, "\"\n");
  for (size_t i = 0; i < unit.entries.size(); ++i) {
    absl::StrAppend(&text, "KVR_HOST_ENTRY_(", i, ", ", unit.entries[i], ")\n");
  }
  return text;
}

// From the compiler's paths to the unit's names; from a generated entry to where the kernel is.
void BringHome(const Unit& unit, Diagnostic* diagnostic) {
  if (diagnostic->file.rfind(kUnitDir, 0) == 0) {
    diagnostic->file = diagnostic->file.substr(sizeof kUnitDir - 1);
  } else if (diagnostic->file == clang_jit::kEntriesFile) {
    const size_t entry = static_cast<size_t>(diagnostic->line) - 1;
    if (entry >= unit.entries.size()) return;
    diagnostic->message = absl::StrCat(unit.entries[entry], ": ", diagnostic->message);
    if (entry < unit.entry_sites.size()) {
      diagnostic->file = unit.entry_sites[entry].file;
      diagnostic->line = unit.entry_sites[entry].line;
      diagnostic->column = unit.entry_sites[entry].column;
    }
  }
}

absl::StatusOr<CompiledUnit> ClangCompiler::CompileHere(const Unit& unit) const {
  const std::string main_text = MainText(unit);
  clang_jit::FrontendInput input;
  for (const auto& [name, text] : runtime_) input.files.push_back({kRuntimeDir + name, text});
  for (const UnitHeader& header : unit.headers) {
    input.files.push_back({kUnitDir + header.name, *header.content});
  }
  input.files.push_back({absl::StrCat(kUnitDir, std::string(kUnitFileName)), unit.text});
  input.files.push_back({kMainPath, main_text});
  input.main_path = kMainPath;
  input.options = LanguageOptions();
  const clang_jit::HostCpu& cpu = clang_jit::TargetCpu();
  for (const char* option : {"-triple", clang_jit::kTargetTriple, "-x", "c++", "-I", kUnitDir,
                             "-internal-isystem", kRuntimeDir, "-target-cpu"}) {
    input.options.push_back(option);
  }
  input.options.push_back(cpu.name);
  for (const std::string& feature : cpu.features) {
    input.options.push_back("-target-feature");
    input.options.push_back(feature);
  }

  llvm::LLVMContext context;
  clang_jit::FrontendOutput front = clang_jit::CompileToIr(input, &context);
  std::string log;
  for (Diagnostic& diagnostic : front.diagnostics) {
    BringHome(unit, &diagnostic);
    absl::StrAppend(&log, RenderDiagnostic(unit, diagnostic), "\n");
  }
  if (front.module == nullptr) return CompileError(unit, front.diagnostics, log, offered_);
  const auto fail = [&](std::vector<Diagnostic> diagnostics) {
    for (Diagnostic& diagnostic : diagnostics) BringHome(unit, &diagnostic);
    return CompileError(unit, diagnostics, log, offered_);
  };
  std::set<std::string> own;
  for (const BundleFile& file : unit.files) own.insert(file.name);
  const clang_jit::Places places(kUnitDir, std::move(own));
  std::vector<Diagnostic> refused = clang_jit::FindRefused(*front.module, places);
  if (!refused.empty()) return fail(std::move(refused));

  const clang_jit::Annotations words = clang_jit::TakeAnnotations(front.module.get());
  const absl::StatusOr<std::vector<std::string>> symbols =
      clang_jit::NameEntries(front.module.get(), unit.entries.size(), words, places, &refused);
  if (!refused.empty()) return fail(std::move(refused));
  KVR_RETURN_IF_ERROR(symbols.status());
  absl::StatusOr<std::vector<clang_jit::EntryResources>> resources =
      clang_jit::PlaceSharedMemory(front.module.get(), *symbols, words);
  if (!resources.ok()) return WithContext(unit.name, resources.status());
  absl::StatusOr<std::string> object =
      clang_jit::EmitObject(front.module.get(), *symbols, places, &refused);
  if (!refused.empty()) return fail(std::move(refused));
  if (!object.ok()) return WithContext(unit.name, object.status());

  CompiledUnit compiled;
  compiled.bytes = *std::move(object);
  compiled.log = std::move(log);
  for (size_t i = 0; i < unit.entries.size(); ++i) {
    BinaryKernel kernel;
    kernel.entry = unit.entries[i];
    kernel.symbol = (*symbols)[i];
    kernel.resources.smem_static = (*resources)[i].smem_static;
    if ((*resources)[i].max_threads > 0) kernel.resources.max_threads = (*resources)[i].max_threads;
    compiled.kernels.push_back(std::move(kernel));
  }
  return compiled;
}

absl::StatusOr<CompiledUnit> ClangCompiler::Compile(const Unit& unit, std::string_view target) {
  std::string reason;
  if (!Supports(target, &reason)) {
    return Error(absl::StatusCode::kUnimplemented, reason, "compile for host");
  }
  absl::StatusOr<CompiledUnit> result = absl::InternalError("not run");
  static std::mutex one_at_a_time;  // also of several ClangCompilers
  std::lock_guard lock(one_at_a_time);
  llvm::CrashRecoveryContext::Enable();
  llvm::CrashRecoveryContext guard;
  const bool survived = guard.RunSafelyOnThread([&] { result = CompileHere(unit); }, kStackBytes);
  llvm::CrashRecoveryContext::Disable();
  if (!survived) {
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat(unit.name, ": the compiler crashed on this unit"),
                 "simplify the kernel, or leave out 'host' from the variant's targets");
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> MakeClangCompiler(std::string_view sdk_dir) {
  const fs::path sdk = fs::path(std::string(sdk_dir));
  KVR_ASSIGN_OR_RETURN(auto runtime, ReadRuntime(sdk / "host"));
  std::vector<HeaderRoot> roots(2);
  roots[0].directory = (sdk / "host" / "include").string();
  roots[1].directory = sdk.string();
  return std::make_unique<ClangCompiler>(std::move(runtime), std::move(roots));
}

}  // namespace kvr
