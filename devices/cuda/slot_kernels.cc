// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/slot_kernels.h"

#include <algorithm>
#include <string_view>

#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/launch.h"
#include "devices/cuda/module.h"

namespace kvr::cuda {
namespace {

// griddepcontrol.wait: on a programmatic edge, a kernel that ends without waiting would let what
// follows it start before what precedes it is done. Where there is no such edge it does nothing.
constexpr std::string_view kBeforeHopper = ".version 7.0\n.target sm_80\n";
constexpr std::string_view kHopper = ".version 7.8\n.target sm_90\n";
constexpr std::string_view kWait = "griddepcontrol.wait;";

constexpr std::string_view kNothingHead = R"(
.address_size 64

.visible .entry kvr_nothing()
{
  )";

// kvr_clear(void* data, uint64_t bytes): 16 bytes a store, then the tail byte by byte. Blocks count
// along x alone; along y and z they clear the same memory again.
constexpr std::string_view kClearHead = R"(
  ret;
}

.visible .entry kvr_clear(.param .u64 pdata, .param .u64 pbytes)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b32 %zero;
  .reg .b64 %data, %bytes, %i, %step, %vectors, %tail, %at;
  )";

constexpr std::string_view kClearBody = R"(
  ld.param.u64 %data, [pdata];
  ld.param.u64 %bytes, [pbytes];
  mov.u32 %zero, 0;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r0, %r1;
  cvt.u64.u32 %at, %r2;
  add.u64 %i, %i, %at;
  mul.wide.u32 %step, %r3, %r1;
  shr.u64 %vectors, %bytes, 4;
  and.b64 %tail, %bytes, 15;
  setp.ge.u64 %p, %i, %tail;
  @%p bra VECTORS;
  sub.u64 %at, %bytes, %tail;
  add.u64 %at, %at, %i;
  add.u64 %at, %at, %data;
  st.global.u8 [%at], %zero;
VECTORS:
  setp.ge.u64 %p, %i, %vectors;
  @%p bra DONE;
  shl.b64 %at, %i, 4;
  add.u64 %at, %at, %data;
  st.global.v4.u32 [%at], {%zero, %zero, %zero, %zero};
  add.u64 %i, %i, %step;
  bra VECTORS;
DONE:
  ret;
}
)";

constexpr uint32_t kClearThreads = 256;
// Enough stores in flight to fill the memory's bandwidth, and few enough that all blocks are
// resident at once, as a node that was recorded as a cooperative launch needs.
constexpr uint32_t kClearBlocksPerSm = 4;

std::string Ptx(bool hopper) {
  const std::string_view wait = hopper ? kWait : "";
  return StrCat(hopper ? kHopper : kBeforeHopper, kNothingHead, wait, kClearHead, wait, kClearBody);
}

absl::Status Incomplete(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("a slot's work: ", what),
               "a kernel needs function, launch and params; clearing needs bytes >= 0 and memory "
               "aligned to 256");
}

absl::Status CheckClear(const NodeWork& work) {
  if (work.bytes < 0) return Incomplete(StrCat("clear ", work.bytes, " bytes"));
  if (work.data == nullptr && work.bytes > 0) return Incomplete("clear memory at null");
  if (reinterpret_cast<uintptr_t>(work.data) % kWorkspaceAlign != 0) {
    return Incomplete("clear memory that is not aligned to 256");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SlotKernels::Load() {
  if (loaded_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  if (module_ != nullptr) return absl::OkStatus();
  Binary binary;
  binary.target = info_.target;
  // Clusters and programmatic launches came with the same architecture.
  binary.bytes = Ptx(info_.max_cluster_size > 1);
  KVR_ASSIGN_OR_RETURN(auto module, LoadModule(driver_, context_, info_, binary));
  KVR_ASSIGN_OR_RETURN(nothing_, module->Get("kvr_nothing", 0));
  KVR_ASSIGN_OR_RETURN(clear_, module->Get("kvr_clear", 0));
  module_ = std::move(module);
  loaded_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status SlotKernels::As(const NodeWork& work, const Dim3& cluster, SlotLaunch* slot) const {
  if (work.kind == NodeWork::Kind::kKernel) {
    if (work.function.handle == nullptr) return Incomplete("a kernel without a function");
    if (work.launch == nullptr) return Incomplete("a kernel without a launch");
    slot->function = static_cast<FunctionHandle>(work.function.handle);
    slot->launch = work.launch;
    slot->params = work.params;
    return CheckLimits(info_, *work.launch);
  }
  slot->own.grid = cluster;
  slot->own.cluster = cluster;
  slot->launch = &slot->own;
  slot->params = slot->own_params;
  slot->function = static_cast<FunctionHandle>(nothing_.handle);
  if (work.kind == NodeWork::Kind::kNothing) return absl::OkStatus();
  KVR_RETURN_IF_ERROR(CheckClear(work));
  if (work.bytes == 0) return absl::OkStatus();
  const int64_t needed = (work.bytes / 16 + kClearThreads) / kClearThreads;
  const int64_t most = std::max<int64_t>(
      int64_t{kClearBlocksPerSm} * info_.sms / (int64_t{cluster.y} * cluster.z), 1);
  const auto clusters = static_cast<uint32_t>(std::min(needed, most) / cluster.x);
  slot->own.grid.x = std::max(clusters, 1u) * cluster.x;
  slot->own.block.x = kClearThreads;
  slot->data = reinterpret_cast<uintptr_t>(work.data);
  slot->bytes = static_cast<uint64_t>(work.bytes);
  slot->function = static_cast<FunctionHandle>(clear_.handle);
  return absl::OkStatus();
}

}  // namespace kvr::cuda
