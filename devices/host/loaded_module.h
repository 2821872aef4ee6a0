// SPDX-License-Identifier: Apache-2.0
//
// A binary in memory: its kernels with what a launch must know of them.
//
// Threading: Get may be called concurrently. The ObjectLoader must outlive the module. Destruction
// waits for the launches in flight, so never on a thread that runs them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "devices/host/block_runner.h"
#include "devices/host/object_loader.h"

namespace kvr::host {

// Beside each kernel's symbol the object has a table of its parameters' sizes (jit/clang puts it
// there); its symbol is the kernel's with this suffix.
inline constexpr char kParamsSuffix[] = "_params";
struct ParamTable {
  uint32_t count;
  uint32_t bytes[kMaxArgs];
};

// The object's table of lines, C strings.
inline constexpr char kSitesSymbol[] = "kvr_host_sites";

struct HostFunction {
  BinaryKernel kernel;
  EntryFunction entry = nullptr;
  const char* const* sites = nullptr;
  std::vector<uint32_t> param_bytes;
  std::atomic<int64_t> dynamic_smem{0};  // opted in
};

class LoadedModule : public Module {
 public:
  // `wait_for_launches` is called before the code is unmapped.
  static absl::StatusOr<std::unique_ptr<LoadedModule>> Create(
      ObjectLoader* loader, const Binary& binary, const DeviceInfo& info,
      std::function<void()> wait_for_launches);
  ~LoadedModule() override;
  absl::StatusOr<Function> Get(std::string_view symbol, int64_t dynamic_smem) override;

 private:
  LoadedModule(const DeviceInfo& info, std::function<void()> wait_for_launches)
      : info_(info), wait_for_launches_(std::move(wait_for_launches)) {}

  const DeviceInfo info_;
  const std::function<void()> wait_for_launches_;
  std::unique_ptr<LoadedObject> object_;
  std::vector<std::unique_ptr<HostFunction>> functions_;
};

// A copy of a launch's arguments that lives until the launch has run.
class ParamBlock {
 public:
  ParamBlock(const HostFunction& function, void* const* params);
  ParamBlock(const ParamBlock&) = delete;
  ParamBlock& operator=(const ParamBlock&) = delete;
  void* const* pointers() const { return pointers_.data(); }

 private:
  struct alignas(64) Unit {
    std::byte bytes[64];
  };
  static size_t RoundUp(size_t n) { return (n + sizeof(Unit) - 1) / sizeof(Unit) * sizeof(Unit); }

  std::vector<Unit> storage_;
  std::vector<void*> pointers_;
};

}  // namespace kvr::host
