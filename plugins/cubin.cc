// SPDX-License-Identifier: Apache-2.0
#include "plugins/cubin.h"

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/elf.h"

namespace kvr::bundle {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr int kAbiSince13 = 8;  // of CUDA 13: the architecture moved up a byte

}  // namespace

absl::Status CheckCubin(const CubinEntry& cubin, const std::vector<KernelEntry>& kernels) {
  const Text& name = cubin.file.name;
  const absl::StatusOr<ElfFile> elf = ReadElf(cubin.file.content);
  const auto refuse = [&](std::string_view what) {
    return Invalid(name.at, StrCat("'", name.value, "' ", what),
                   "give the cubin that a compiler made for this target (nvcc -cubin, ptxas)");
  };
  if (!elf.ok()) return refuse(What(elf.status()));
  if (elf->machine != kMachineCuda) return refuse("is no cubin");
  const uint32_t sm = (elf->abi_version >= kAbiSince13 ? elf->flags >> 8 : elf->flags) & 0xff;
  std::string stated = cubin.target.value.substr(3);  // "90a"
  if (stated.back() == 'a') stated.pop_back();
  if (StrCat(sm) != stated) return refuse(StrCat("is for sm_", sm, ", not ", cubin.target.value));
  for (const KernelEntry& kernel : kernels) {
    if (!kernel.entry || elf->Defines(kernel.entry->value)) continue;
    return Invalid(kernel.entry->at,
                   StrCat("kernel '", kernel.name.value, "': '", name.value, "' has no function ",
                          Quoted(kernel.entry->value)),
                   elf->functions.empty() ? std::string("give the cubin that defines it")
                                          : SuggestNames(kernel.entry->value, elf->functions));
  }
  return absl::OkStatus();
}

}  // namespace kvr::bundle
