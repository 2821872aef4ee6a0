// SPDX-License-Identifier: Apache-2.0
#include "devices/host/loaded_module.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "devices/host/cpu.h"

namespace kvr::host {

LoadedModule::~LoadedModule() {
  if (object_ != nullptr) wait_for_launches_();
}

absl::StatusOr<std::unique_ptr<LoadedModule>> LoadedModule::Create(
    ObjectLoader* loader, const Binary& binary, const DeviceInfo& info,
    std::function<void()> wait_for_launches) {
  if (binary.target != info.target) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("the binary is for ", binary.target, ", this device is ", info.target),
        absl::StrCat("compile for ", info.target));
  }
  if (binary.kernels.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "the binary lists no kernels",
                 "load what the compiler for host made");
  }
  std::vector<std::string> symbols = {kCpuSymbol, kSitesSymbol};
  for (const BinaryKernel& kernel : binary.kernels) {
    symbols.push_back(kernel.symbol);
    symbols.push_back(absl::StrCat(kernel.symbol, kParamsSuffix));
  }
  std::unique_ptr<LoadedModule> module(new LoadedModule(info, std::move(wait_for_launches)));
  std::vector<void*> addresses;
  KVR_ASSIGN_OR_RETURN(module->object_, loader->Load(binary.bytes, symbols, &addresses));
  if (const char* cpu = static_cast<const char*>(addresses[0]); cpu != CpuId()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("the binary is for the CPU ", cpu, ", this one is ", CpuId()),
                 "compile it on this machine");
  }
  for (size_t i = 0; i < binary.kernels.size(); ++i) {
    auto function = std::make_unique<HostFunction>();
    function->kernel = binary.kernels[i];
    function->entry = reinterpret_cast<EntryFunction>(addresses[2 * i + 2]);
    function->sites = static_cast<const char* const*>(addresses[1]);
    const auto* params = static_cast<const ParamTable*>(addresses[2 * i + 3]);
    function->param_bytes.assign(params->bytes, params->bytes + params->count);
    module->functions_.push_back(std::move(function));
  }
  return module;
}

absl::StatusOr<Function> LoadedModule::Get(std::string_view symbol, int64_t dynamic_smem) {
  for (auto& function : functions_) {
    if (function->kernel.symbol != symbol) continue;
    const int64_t total = function->kernel.resources.smem_static + dynamic_smem;
    if (dynamic_smem < 0 || total > info_.smem_per_block) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat(function->kernel.entry, " asks for ", total,
                                " bytes of shared memory, the device has ", info_.smem_per_block,
                                " a block"),
                   "use smaller tiles or fewer stages");
    }
    // Several callers may opt in; the largest counts.
    int64_t seen = function->dynamic_smem.load();
    while (seen < dynamic_smem &&
           !function->dynamic_smem.compare_exchange_weak(seen, dynamic_smem)) {
    }
    return Function{function.get()};
  }
  return Error(absl::StatusCode::kNotFound,
               absl::StrCat("the module has no kernel '", std::string(symbol), "'"),
               "ask for a symbol that the binary lists");
}

ParamBlock::ParamBlock(const HostFunction& function, void* const* params) {
  size_t total = 0;
  for (uint32_t bytes : function.param_bytes) total += RoundUp(bytes);
  storage_.resize(total / sizeof(Unit));
  pointers_.reserve(function.param_bytes.size());
  char* at = reinterpret_cast<char*>(storage_.data());
  for (size_t i = 0; i < function.param_bytes.size(); ++i) {
    std::memcpy(at, params[i], function.param_bytes[i]);
    pointers_.push_back(at);
    at += RoundUp(function.param_bytes[i]);
  }
}

}  // namespace kvr::host
