// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc/nvrtc.h"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <sstream>

#include "core/fingerprint.h"
#include "core/status.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/library.h"
#include "jit/nvrtc/log.h"
#include "jit/nvrtc/std_headers.h"
#include "jit/sdk.h"

namespace kvr {
namespace {

// Options that shape the output; part of every key. Unannotated functions and constants are device
// code: a kernel author's `constexpr int f(int)` is otherwise an error under NVRTC alone.
constexpr std::string_view kOptions[] = {"--std=c++20", "--device-as-default-execution-space"};

// Else NVRTC looks in the working directory for quoted includes that the unit does not hold. A
// release that does not know it is not worked with: its binaries could depend on files no key has.
constexpr std::string_view kNoSourceInclude = "--no-source-include";

// NVRTC's own cache off. Releases that do not know it have none.
constexpr std::string_view kOptionalOptions[] = {"--no-cache"};

// Makes the assembler's log say what each kernel spills.
constexpr std::string_view kVerbose = "--ptxas-options=-v";

constexpr std::string_view kTargets[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90a",
                                         "sm_100a", "sm_103a", "sm_120a", "sm_121a"};

// "sm_90a" → 90; 0: not of that form.
int SmOf(std::string_view target) {
  if (target.substr(0, 3) != "sm_") return 0;
  std::string_view digits = target.substr(3);
  if (!digits.empty() && digits.back() == 'a') digits.remove_suffix(1);
  if (digits.empty() || digits.size() > 3) return 0;
  int sm = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return 0;
    sm = sm * 10 + (c - '0');
  }
  return sm;
}

// A build id, or a hash of the file where it has none.
std::string ContentId(const std::string& path) {
  if (std::string id = BuildId(path); !id.empty()) return id;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return "blake3-" + FingerprintOf(content.str()).Hex();
}

// For people: what an #include may name besides the bundle's own files.
std::string OfferedHeaders() {
  std::string names;
  for (const auto& [name, content] : NvrtcStandardHeaders())
    names += (names.empty() ? "<" : ", <") + name + ">";
  return "on a GPU there are " + names + ", and the CUDA toolkit's";
}

class Program {
 public:
  Program(const NvrtcLibrary& library, const Unit& unit) : library_(library) {
    std::vector<const char*> contents, names;
    for (const UnitHeader& header : unit.headers) {
      contents.push_back(header.content->c_str());
      names.push_back(header.name.c_str());
    }
    const std::string name(kUnitFileName);
    result_ =
        library_.create_program(&program_, unit.text.c_str(), name.c_str(),
                                static_cast<int>(contents.size()), contents.data(), names.data());
    for (const std::string& entry : unit.entries)
      if (result_ == kNvrtcSuccess) {
        result_ = library_.add_name_expression(program_, entry.c_str());
      }
  }
  ~Program() {
    if (program_ != nullptr) library_.destroy_program(&program_);
  }
  Program(const Program&) = delete;

  NvrtcResult Compile(const std::vector<std::string>& options) {
    if (result_ != kNvrtcSuccess) return result_;
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return library_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
  }
  std::string Log() const {
    size_t size = 0;
    if (program_ == nullptr || library_.get_log_size(program_, &size) != kNvrtcSuccess) return "";
    std::string log(size, '\0');
    if (size > 0) library_.get_log(program_, log.data());
    while (!log.empty() && log.back() == '\0') log.pop_back();
    return log;
  }
  std::string Cubin() const {
    size_t size = 0;
    if (library_.get_cubin_size(program_, &size) != kNvrtcSuccess) return "";
    std::string cubin(size, '\0');
    if (size > 0 && library_.get_cubin(program_, cubin.data()) != kNvrtcSuccess) return "";
    return cubin;
  }
  std::string Lowered(const std::string& entry) const {
    const char* lowered = nullptr;
    if (library_.get_lowered_name(program_, entry.c_str(), &lowered) != kNvrtcSuccess) return "";
    return lowered == nullptr ? "" : lowered;
  }

 private:
  const NvrtcLibrary& library_;
  NvrtcProgram program_ = nullptr;
  NvrtcResult result_ = kNvrtcSuccess;
};

class NvrtcCompiler : public Compiler {
 public:
  NvrtcCompiler(NvrtcLibrary library, std::string identity, std::vector<int> archs,
                std::vector<HeaderRoot> roots)
      : library_(library),
        identity_(std::move(identity)),
        archs_(std::move(archs)),
        roots_(std::move(roots)),
        optional_options_(std::begin(kOptionalOptions), std::end(kOptionalOptions)) {}

  const std::string& identity() const override { return identity_; }
  bool concurrent() const override { return true; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }

  bool Supports(std::string_view target, std::string* reason) const override {
    const int sm = SmOf(target);
    std::string why;
    if (sm == 0) {
      why = "NVRTC compiles sm_ targets only";
    } else if (std::find(archs_.begin(), archs_.end(), sm) == archs_.end()) {
      why = identity_.substr(0, identity_.find(" build-id")) + " does not know sm_" +
            std::to_string(sm);
    } else if (sm >= 90 && target.back() != 'a') {
      // A plain sm_90 or sm_120 lacks wgmma, TMA, block scaling: stubs that trap at run time.
      why = "sm_" + std::to_string(sm) +
            " leaves out that architecture's own instructions: say sm_" + std::to_string(sm) + "a";
    } else if (sm < 90 && target.back() == 'a') {
      why = "there is no " + std::string(target);
    }
    if (reason != nullptr) *reason = why;
    return why.empty();
  }

  std::vector<std::string> targets() const override {
    std::vector<std::string> supported;
    for (std::string_view target : kTargets)
      if (Supports(target, nullptr)) supported.emplace_back(target);
    return supported;
  }

  std::string Options(std::string_view target) const override {
    std::string options = "--gpu-architecture=" + std::string(target);
    for (std::string_view option : kOptions) (options += ' ') += option;
    return options;
  }

  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view target) override;

 private:
  std::vector<std::string> AllOptions(std::string_view target, bool verbose) const;
  bool ForgetOption(std::string_view log);
  absl::Status Failure(const Unit& unit, std::string_view target, NvrtcResult result,
                       const std::string& log);
  absl::StatusOr<std::vector<BinaryKernel>> Kernels(const Program& program, const Unit& unit,
                                                    std::string_view cubin,
                                                    const NvrtcLog& log) const;

  const NvrtcLibrary library_;
  const std::string identity_;
  const std::vector<int> archs_;
  const std::vector<HeaderRoot> roots_;
  mutable std::mutex mutex_;
  std::vector<std::string> optional_options_;  // those this release has not refused
};

std::vector<std::string> NvrtcCompiler::AllOptions(std::string_view target, bool verbose) const {
  std::vector<std::string> options = {"--gpu-architecture=" + std::string(target)};
  options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
  options.emplace_back(kNoSourceInclude);
  if (verbose) options.emplace_back(kVerbose);
  std::lock_guard<std::mutex> lock(mutex_);
  options.insert(options.end(), optional_options_.begin(), optional_options_.end());
  return options;
}

// After "unrecognized option --no-cache found": is there one less to try?
bool NvrtcCompiler::ForgetOption(std::string_view log) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (std::string_view option : kOptionalOptions) {
    if (log.find(option) == log.npos) continue;
    // Another thread may have dropped it between our attempt and now: try again all the same.
    optional_options_.erase(std::remove(optional_options_.begin(), optional_options_.end(), option),
                            optional_options_.end());
    return true;
  }
  return false;
}

absl::Status NvrtcCompiler::Failure(const Unit& unit, std::string_view target, NvrtcResult result,
                                    const std::string& log) {
  if (result == kNvrtcOutOfMemory) {
    return Error(absl::StatusCode::kResourceExhausted, "NVRTC ran out of memory on " + unit.name,
                 "free memory, or compile fewer units at once");
  }
  if (result != kNvrtcCompilation) {
    return Error(absl::StatusCode::kInternal,
                 std::string("NVRTC failed: ") + library_.get_error_string(result) + " " + log,
                 "use another release of CUDA");
  }
  NvrtcLog parsed = ParseNvrtcLog(log, unit);
  bool said = std::any_of(parsed.diagnostics.begin(), parsed.diagnostics.end(),
                          [](const auto& d) { return d.severity == Diagnostic::Severity::kError; });
  if (!said) {
    // With -v the assembler's errors do not reach the log (13.0); without it they do.
    Program again(library_, unit);
    if (again.Compile(AllOptions(target, /*verbose=*/false)) == kNvrtcCompilation)
      parsed = ParseNvrtcLog(again.Log(), unit);
  }
  return CompileError(unit, parsed.diagnostics, parsed.rest, OfferedHeaders());
}

absl::StatusOr<std::vector<BinaryKernel>> NvrtcCompiler::Kernels(const Program& program,
                                                                 const Unit& unit,
                                                                 std::string_view cubin,
                                                                 const NvrtcLog& log) const {
  KVR_ASSIGN_OR_RETURN(CubinInfo info, ReadCubin(cubin));
  std::vector<BinaryKernel> kernels;
  for (const std::string& entry : unit.entries) {
    BinaryKernel kernel;
    kernel.entry = entry;
    kernel.symbol = program.Lowered(entry);
    auto found = info.kernels.find(kernel.symbol);
    if (kernel.symbol.empty() || found == info.kernels.end()) {
      return Error(absl::StatusCode::kInternal,
                   "the cubin of " + unit.name + " has no kernel for entry \"" + entry + "\"",
                   "check that the entry names a __global__ function");
    }
    KernelResources& resources = kernel.resources;
    resources.registers = found->second.registers;
    resources.smem_static = found->second.smem_static;
    resources.frame_bytes = found->second.frame_bytes;
    if (found->second.max_threads > 0) resources.max_threads = found->second.max_threads;
    if (auto verbose = log.kernels.find(kernel.symbol); verbose != log.kernels.end()) {
      resources.spill_bytes = verbose->second.spill_bytes;
      if (verbose->second.smem_static >= 0) resources.smem_static = verbose->second.smem_static;
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

absl::StatusOr<CompiledUnit> NvrtcCompiler::Compile(const Unit& unit, std::string_view target) {
  if (std::string reason; !Supports(target, &reason)) {
    return Error(absl::StatusCode::kUnimplemented, reason, "choose one of its targets");
  }
  while (true) {
    Program program(library_, unit);
    const NvrtcResult result = program.Compile(AllOptions(target, /*verbose=*/true));
    const std::string log = program.Log();
    if (result == kNvrtcInvalidOption && ForgetOption(log)) continue;
    if (result != kNvrtcSuccess) return Failure(unit, target, result, log);
    NvrtcLog parsed = ParseNvrtcLog(log, unit);
    CompiledUnit compiled;
    compiled.bytes = program.Cubin();
    KVR_RETURN_IF_ERROR(CheckCubinTarget(compiled.bytes, target));
    KVR_ASSIGN_OR_RETURN(compiled.kernels, Kernels(program, unit, compiled.bytes, parsed));
    compiled.log = std::move(parsed.rest);
    return compiled;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Compiler>> MakeNvrtcCompiler(const ToolchainOptions& options) {
  KVR_ASSIGN_OR_RETURN(Toolchain toolchain, FindToolchain(options));
  KVR_ASSIGN_OR_RETURN(std::string sdk, FindSdkDir(options.sdk_dir));
  KVR_ASSIGN_OR_RETURN(NvrtcLibrary library, LoadNvrtc(toolchain));
  int major = 0, minor = 0, count = 0;
  if (library.version(&major, &minor) != kNvrtcSuccess ||
      library.get_num_supported_archs(&count) != kNvrtcSuccess || count <= 0) {
    return Error(absl::StatusCode::kUnavailable, toolchain.library + " does not answer",
                 "repair that installation, or point KVR_CUDA_HOME at another");
  }
  if (major != toolchain.major || minor != toolchain.minor) {
    return Error(absl::StatusCode::kUnavailable,
                 toolchain.library + " says it is " + std::to_string(major) + "." +
                     std::to_string(minor) + ", its builtins and headers are " +
                     std::to_string(toolchain.major) + "." + std::to_string(toolchain.minor),
                 "install library, builtins and headers of one release");
  }
  std::vector<int> archs(static_cast<size_t>(count));
  library.get_supported_archs(archs.data());

  std::string identity = "nvrtc " + std::to_string(major) + "." + std::to_string(minor) +
                         " build-id " + ContentId(toolchain.library) + "/" +
                         ContentId(toolchain.builtins);
  std::vector<HeaderRoot> roots;
  roots.push_back({sdk, {}});
  roots.push_back({"", NvrtcStandardHeaders()});
  for (const std::string& include : toolchain.includes) roots.push_back({include, {}});
  return std::make_unique<NvrtcCompiler>(library, std::move(identity), std::move(archs),
                                         std::move(roots));
}

}  // namespace kvr
