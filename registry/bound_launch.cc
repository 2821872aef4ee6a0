// SPDX-License-Identifier: Apache-2.0
#include "registry/bound_launch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher_impl.h"

namespace kvr {

struct BoundLaunch::State {
  Dispatcher::Impl* dispatcher = nullptr;
  Device* device = nullptr;
  int op = 0;
  const OpSpec* spec = nullptr;
  AxisVector axes{};
  int tensor_count = 0;
  std::array<TensorView, kMaxTensors> tensors;
  std::array<std::array<std::byte, 8>, kMaxTensors> scalars{};
  Workspace own;

  // As of `version`:
  uint64_t version = 0;
  PreparedPtr prepared;
  PlanView plan;
  absl::InlinedVector<KernelLaunch, kMaxKernels> kernels;
  std::array<int64_t, kMaxRegions> region_offset{}, region_bytes{};
  std::array<TensorMapLaunch, kMaxTensorMaps> map_plans;
  std::optional<MissReason> missed;
  bool clears = false;
  std::shared_ptr<const KeyPolicy> names;  // of keys
  BucketedKey key;
  std::shared_ptr<const Streams> streams;
  std::array<void*, kMaxRegions> regions{};
  std::array<TensorMap, kMaxTensorMaps> maps;
  std::array<std::array<void*, kMaxArgs>, kMaxKernels> params{};

  absl::Span<const TensorView> views() const {
    return {tensors.data(), static_cast<size_t>(tensor_count)};
  }
  absl::Status Rebind(Stream stream);
  absl::Status EncodeMaps();
  void SetScalar(int index, const void* value);
};

// All of them or none.
absl::Status BoundLaunch::State::EncodeMaps() {
  const size_t count = prepared->variant().plan.tensor_maps.size();
  if (count == 0 || kernels.empty()) return absl::OkStatus();
  std::array<TensorMap, kMaxTensorMaps> encoded;
  KVR_RETURN_IF_ERROR(prepared->EncodeTensorMaps(plan, views(), encoded.data()));
  std::copy_n(encoded.begin(), count, maps.begin());
  return absl::OkStatus();
}

// Every pointer in `params` leads into this State, so they are laid out once a generation and a
// new address of a tensor or of the workspace is one store, and of a tensor map one encoding.
absl::Status BoundLaunch::State::Rebind(Stream stream) {
  const EpochGuard guard;
  Resolved resolved;
  LaunchPlan scratch;
  KVR_RETURN_IF_ERROR(dispatcher->Resolve(nullptr, op, axes, stream, &scratch, &resolved));
  prepared = resolved.prepared->shared_from_this();
  kernels.assign(resolved.plan.kernels.begin(), resolved.plan.kernels.end());
  const size_t count = prepared->variant().plan.regions.size();
  std::copy_n(resolved.plan.region_offset, count, region_offset.begin());
  std::copy_n(resolved.plan.region_bytes, count, region_bytes.begin());
  std::copy_n(resolved.plan.tensor_maps, prepared->variant().plan.tensor_maps.size(),
              map_plans.begin());
  plan = resolved.plan;
  plan.kernels = kernels;
  plan.region_offset = region_offset.data();
  plan.region_bytes = region_bytes.data();
  plan.tensor_maps = map_plans.data();
  KVR_RETURN_IF_ERROR(EncodeMaps());  // failed: no version, so the next launch binds again
  missed = resolved.missed;
  // Of the very snapshot that was resolved: a newer one has another version, so the next launch
  // sees that it must re-plan.
  names = resolved.snapshot->ops[op]->names;
  key = names->Bucket(axes);
  streams = resolved.snapshot->streams;
  version = resolved.snapshot->version;
  clears = false;
  for (const RegionSpec& region : prepared->variant().plan.regions) clears |= region.zeroed;
  for (size_t i = 0; i < kernels.size(); ++i) {
    prepared->Params(plan, static_cast<int>(i), views(), regions.data(), maps.data(),
                     params[i].data());
  }
  return absl::OkStatus();
}

BoundLaunch::BoundLaunch(std::unique_ptr<State> state) : state_(std::move(state)) {}
BoundLaunch::BoundLaunch(BoundLaunch&&) noexcept = default;
BoundLaunch& BoundLaunch::operator=(BoundLaunch&&) noexcept = default;
BoundLaunch::~BoundLaunch() = default;

absl::StatusOr<BoundLaunch> Dispatcher::Bind(std::string_view op,
                                             absl::Span<const TensorView> tensors) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* found, catalog_.FindOp(op));
  auto state = std::make_unique<BoundLaunch::State>();
  state->dispatcher = impl_.get();
  state->device = &device_;
  state->op = found->index;
  state->spec = &found->spec();
  KVR_RETURN_IF_ERROR(TensorReader(found->spec()).Read(tensors, &state->axes));
  state->tensor_count = static_cast<int>(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    state->tensors[i] = tensors[i];
    if (found->spec().tensor(static_cast<int>(i)).is_scalar) {
      state->SetScalar(static_cast<int>(i), tensors[i].data);
    }
  }
  KVR_RETURN_IF_ERROR(state->Rebind(Stream{}));
  return BoundLaunch(std::move(state));
}

// The copy stays where it is, so `params` may point at it.
void BoundLaunch::State::SetScalar(int index, const void* value) {
  const TensorSpec& tensor = spec->tensor(index);
  if (value != nullptr) {
    std::memcpy(scalars[index].data(), value, static_cast<size_t>(DTypeSize(tensor.dtype)));
  } else {
    scalars[index] = ScalarBytes(tensor.scalar_default, tensor.dtype);
  }
  tensors[index].data = scalars[index].data();
}

absl::Status BoundLaunch::SetData(int index, void* data) {
  State& s = *state_;
  if (index < 0 || index >= s.tensor_count) {
    return Error(absl::StatusCode::kOutOfRange,
                 StrCat("no tensor ", index, ": the op has ", s.tensor_count),
                 "count the inputs, then the outputs, from 0");
  }
  if (const TensorSpec& spec = s.spec->tensor(index); spec.is_scalar) {
    if (spec.attribute >= 0 &&
        AttributeValue(*s.spec, spec, {.data = data}) != s.axes[spec.attribute]) {
      return Error(
          absl::StatusCode::kInvalidArgument,
          StrCat("'", spec.name, "' is an axis, and ", s.axes[spec.attribute], " in this launch"),
          "Bind again for another value");
    }
    s.SetScalar(index, data);
    return absl::OkStatus();
  }
  TensorView& tensor = s.tensors[index];
  if ((data == nullptr) != (tensor.data == nullptr)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("tensor ", index, " was ", data == nullptr ? "given" : "absent",
                        " when the launch was bound"),
                 "Bind again to add or leave out a tensor");
  }
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(DTypeSize(tensor.dtype)) != 0) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat("tensor ", index, " is not aligned to its ", DTypeName(tensor.dtype), " elements"),
        "pass memory aligned to the element size");
  }
  void* const before = std::exchange(tensor.data, data);
  absl::Status status = s.EncodeMaps();
  if (!status.ok()) tensor.data = before;
  return status;
}

absl::Status BoundLaunch::SetWorkspace(Workspace workspace) {
  if (reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlign != 0) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("the workspace given is not aligned to ", kWorkspaceAlign, " bytes"),
                 "align it");
  }
  state_->own = workspace;
  return absl::OkStatus();
}

absl::Status BoundLaunch::Launch(Stream stream) {
  State& s = *state_;
  KVR_ASSIGN_OR_RETURN(const bool capturing, s.device->IsCapturing(stream));
  if (capturing) [[unlikely]] {
    return s.dispatcher->LaunchCaptured(OpHandle{s.op}, s.views(), stream, s.own);
  }
  if (s.version != s.dispatcher->version.load(std::memory_order_acquire)) {
    KVR_RETURN_IF_ERROR(s.Rebind(stream));
  } else if (s.missed.has_value()) {
    s.dispatcher->CountMiss(*s.dispatcher->self.catalog().ops()[s.op], s.names, s.key, *s.missed);
    s.dispatcher->counters.baseline.fetch_add(1, std::memory_order_relaxed);
  }
  if (s.plan.workspace_bytes > 0) {
    void* memory = s.own.data;
    if (memory == nullptr) {
      memory = EagerWorkspace(*s.streams, stream, s.plan.workspace_bytes);
      if (memory == nullptr) {
        // This publishes a snapshot, so the next launch re-plans; `streams` keeps the buffer.
        KVR_ASSIGN_OR_RETURN(s.streams, s.dispatcher->MakeRoom(stream, s.plan.workspace_bytes));
        memory = EagerWorkspace(*s.streams, stream, s.plan.workspace_bytes);
      }
    } else if (s.own.bytes < s.plan.workspace_bytes) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("the workspace given has ", s.own.bytes, " bytes, the launch needs ",
                          s.plan.workspace_bytes),
                   "give one of workspace_bytes()");
    }
    s.prepared->Regions(s.plan, memory, s.regions.data());
    if (s.clears) KVR_RETURN_IF_ERROR(s.prepared->Clear(s.plan, s.regions.data(), stream));
  }
  CountLaunch();
  const std::vector<KernelSpec>& specs = s.prepared->variant().plan.kernels;
  for (size_t i = 0; i < s.kernels.size(); ++i) {
    const KernelLaunch& launch = s.kernels[i];
    KVR_RETURN_IF_ERROR(s.device->Launch(s.prepared->function(launch.kernel), launch,
                                         specs[launch.kernel].attributes, s.params[i].data(),
                                         stream));
  }
  if (s.kernels.empty() && s.prepared->calls()) {
    return s.prepared->Call(s.plan, s.views(), s.regions.data(), stream);
  }
  return absl::OkStatus();
}

int64_t BoundLaunch::workspace_bytes() const { return state_->plan.workspace_bytes; }
const Prepared& BoundLaunch::prepared() const { return *state_->prepared; }

}  // namespace kvr
