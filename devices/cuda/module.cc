// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/module.h"

#include <elf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/context.h"

namespace kvr::cuda {
namespace {

// The driver takes an image without its size and trusts what its header says, so a truncated cubin
// would make it read beyond the end: sizes are checked here first.
bool IsWholeCubin(std::string_view bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA ||
      header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      !fits(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) ||
      !fits(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize)) {
    return false;
  }
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && !fits(section.sh_offset, section.sh_size)) return false;
  }
  return true;
}

bool IsImage(std::string_view bytes) {
  if (bytes.substr(0, SELFMAG) == std::string_view(ELFMAG, SELFMAG)) return IsWholeCubin(bytes);
  return bytes.find(".version") != std::string_view::npos &&
         bytes.find('\0') == std::string_view::npos;  // PTX
}

class CudaModule : public Module {
 public:
  CudaModule(const Driver& driver, Context context, const DeviceInfo& info, ModuleHandle handle)
      : driver_(driver), context_(context), info_(info), handle_(handle) {}

  ~CudaModule() override {
    const ScopedBackgroundWork current(driver_, context_);
    if (current.ok()) driver_.ModuleUnload(handle_);
  }

  absl::StatusOr<Function> Get(std::string_view symbol, int64_t dynamic_smem) override {
    const ScopedBackgroundWork current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    const std::string name(symbol);
    FunctionHandle function = nullptr;
    if (const Result result = driver_.ModuleGetFunction(&function, handle_, name.c_str());
        result != kSuccess) {
      return ErrorFrom(driver_, result, "cuModuleGetFunction", name);
    }
    KVR_RETURN_IF_ERROR(LoadNow(function, name));
    if (info_.max_cluster_size > kPortableCluster) {
      if (const Result result =
              driver_.FuncSetAttribute(function, kFuncNonPortableClusterSizeAllowed, 1);
          result != kSuccess) {
        return ErrorFrom(driver_, result, "cuFuncSetAttribute", name);
      }
    }
    KVR_RETURN_IF_ERROR(RaiseSharedMemory(function, dynamic_smem, name));
    return Function{function};
  }

 private:
  static constexpr int kPortableCluster = 8;

  // With lazy loading, the driver's default, a function is loaded when it is first used, and that
  // may be a launch inside a capture, where loading is illegal. Before 12.4, which has a call for
  // it, asking for an attribute loads it.
  absl::Status LoadNow(FunctionHandle function, const std::string& name) {
    if (driver_.FuncLoad == nullptr) return Get(function, kFuncSharedSizeBytes, name).status();
    const Result result = driver_.FuncLoad(function);
    return result == kSuccess ? absl::OkStatus() : ErrorFrom(driver_, result, "cuFuncLoad", name);
  }

  absl::StatusOr<int> Get(FunctionHandle function, int attribute, const std::string& name) {
    int value = 0;
    const Result result = driver_.FuncGetAttribute(&value, attribute, function);
    if (result != kSuccess) return ErrorFrom(driver_, result, "cuFuncGetAttribute", name);
    return value;
  }

  // The limit is the function's and there is one per module: it is raised, never lowered, so that
  // two configs of one binary may ask for different sizes in any order. What fits beside the static
  // part is the driver's to say.
  absl::Status RaiseSharedMemory(FunctionHandle function, int64_t bytes, const std::string& name) {
    if (bytes < 0 || bytes > info_.smem_per_block) return TooMuchSharedMemory(bytes, name);
    const std::lock_guard lock(mutex_);
    KVR_ASSIGN_OR_RETURN(const int limit, Get(function, kFuncMaxDynamicSharedSizeBytes, name));
    if (bytes <= limit) return absl::OkStatus();
    const Result result =
        driver_.FuncSetAttribute(function, kFuncMaxDynamicSharedSizeBytes, static_cast<int>(bytes));
    if (result == kInvalidValue) return TooMuchSharedMemory(bytes, name);
    if (result == kSuccess) return absl::OkStatus();
    return ErrorFrom(driver_, result, "cuFuncSetAttribute", name);
  }

  absl::Status TooMuchSharedMemory(int64_t bytes, const std::string& name) const {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("kernel '", name, "' wants ", bytes, " bytes of dynamic shared memory"),
                 StrCat("static and dynamic shared memory of a block of ", info_.name,
                        " are at most ", info_.smem_per_block, " bytes"));
  }

  const Driver& driver_;
  const Context context_;
  const DeviceInfo& info_;
  const ModuleHandle handle_;
  std::mutex mutex_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> LoadModule(const Driver& driver, Context context,
                                                   const DeviceInfo& info, const Binary& binary) {
  if (!IsImage(binary.bytes)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("a binary of ", binary.bytes.size(), " bytes for ", binary.target,
                        " is no cubin, or not the whole of one"),
                 "compile it again");
  }
  const ScopedBackgroundWork current(driver, context);
  KVR_RETURN_IF_ERROR(current.status());
  // The log is written only when the driver compiles PTX or refuses an image.
  std::array<char, 2048> log{};
  std::array<int, 2> options = {kJitErrorLogBuffer, kJitErrorLogBufferSizeBytes};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(uintptr_t{log.size() - 1})};
  ModuleHandle handle = nullptr;
  const Result result = driver.ModuleLoadDataEx(&handle, binary.bytes.c_str(), options.size(),
                                                options.data(), values.data());
  if (result != kSuccess) {
    const absl::Status status = ErrorFrom(driver, result, "cuModuleLoadDataEx", binary.target);
    if (log[0] == '\0') return status;
    return Error(status.code(), StrCat(What(status), ": ", log.data()), Fix(status));
  }
  return std::make_unique<CudaModule>(driver, context, info, handle);
}

}  // namespace kvr::cuda
