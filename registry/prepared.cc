// SPDX-License-Identifier: Apache-2.0
#include "registry/prepared.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

// An int32 value is passed by the address of its int64.
static_assert(std::endian::native == std::endian::little);

std::array<std::byte, 8> ScalarBytes(double value, DType dtype) {
  std::array<std::byte, 8> bytes{};
  const auto store = [&](auto typed) { std::memcpy(bytes.data(), &typed, sizeof typed); };
  switch (dtype) {
    case DType::kBool:
      store(static_cast<uint8_t>(value != 0));
      break;
    case DType::kU8:
    case DType::kF8E8M0:
      store(static_cast<uint8_t>(value));
      break;
    case DType::kF8E4M3:
      store(FloatToE4m3(static_cast<float>(value)));
      break;
    case DType::kI32:
      store(static_cast<int32_t>(value));
      break;
    case DType::kI64:
      store(static_cast<int64_t>(value));
      break;
    case DType::kF16:
      store(FloatToF16(static_cast<float>(value)));
      break;
    case DType::kBF16:
      store(FloatToBf16(static_cast<float>(value)));
      break;
    case DType::kF32:
      store(static_cast<float>(value));
      break;
    case DType::kF64:
      store(value);
      break;
  }
  return bytes;
}

namespace {

// What the function may need in any plan: the whole of what the device offers beside the static
// part, unless the manifest gives a constant. Opting in costs nothing; a launch above it fails.
int64_t SmemOptIn(const KernelSpec& spec, const BinaryKernel& kernel, const DeviceInfo& device) {
  if (spec.smem.IsConstant()) {
    const absl::StatusOr<int64_t> value = spec.smem.Eval({});
    return value.ok() ? *value : 0;
  }
  return std::max<int64_t>(0, device.smem_per_block - kernel.resources.smem_static);
}

}  // namespace

absl::StatusOr<PreparedPtr> Prepare(Device& device, const OpSpec& op, VariantPtr variant,
                                    Config config, BinaryPtr binary,
                                    std::shared_ptr<Module> module) {
  const std::string place =
      StrCat(op.name, "/", variant->name, " {", ConfigText(config), "} on ", device.info().name);
  if (absl::Status status = CheckConfig(config, variant->tunables); !status.ok()) {
    return WithContext(place, status);
  }
  if (binary->target != device.info().target) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat(place, ": binary is for ", binary->target, ", device takes ", device.info().target),
        StrCat("compile the variant for ", device.info().target));
  }
  // From here on nothing loads, whatever a plan or a launch asks of the library.
  if (variant->code != nullptr) {
    if (absl::Status status = variant->code->Load(); !status.ok()) {
      return WithContext(place, status);
    }
  }
  if (module == nullptr && !variant->has_launch_function) {
    absl::StatusOr<std::unique_ptr<Module>> loaded = device.Load(*binary);
    if (!loaded.ok()) return WithContext(place, loaded.status());
    module = *std::move(loaded);
  }

  std::shared_ptr<Prepared> prepared(new Prepared());
  prepared->device_ = &device;
  prepared->tunable_values_ = variant->TunableValues(config);
  for (int i = 0; i < op.tensor_count(); ++i) {
    const TensorSpec& tensor = op.tensor(i);
    prepared->scalar_defaults_.push_back(tensor.is_scalar
                                             ? ScalarBytes(tensor.scalar_default, tensor.dtype)
                                             : std::array<std::byte, 8>{});
  }
  prepared->variant_ = std::move(variant);
  prepared->config_ = std::move(config);
  prepared->binary_ = std::move(binary);
  prepared->module_ = std::move(module);
  const std::vector<RegionSpec>& regions = prepared->variant_->plan.regions;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].zeroed) prepared->zeroed_.push_back(static_cast<uint8_t>(i));
  }
  prepared->code_.emplace(prepared->variant_->plan, op, prepared->tunable_values_, device.info());
  const absl::Status status =
      prepared->variant_->has_launch_function ? prepared->Open(op) : prepared->FindFunctions();
  if (!status.ok()) return WithContext(place, status);
  return prepared;
}

absl::Status Prepared::FindFunctions() {
  for (const KernelSpec& spec : variant_->plan.kernels) {
    const BinaryKernel* kernel = binary_->Find(spec.entry);
    if (kernel == nullptr) {
      return Error(absl::StatusCode::kNotFound,
                   StrCat("binary ", binary_->key.Short(), " has no kernel '", spec.entry, "'"),
                   "the binary belongs to another variant or version; compile it anew");
    }
    absl::StatusOr<Function> function =
        module_->Get(kernel->symbol, SmemOptIn(spec, *kernel, device_->info()));
    if (!function.ok()) return WithContext(StrCat("kernel ", spec.name), function.status());
    Kernel& ready = kernels_.emplace_back();
    ready.function = *function;
    ready.attributes = spec.attributes;
    ready.arg_count = static_cast<uint8_t>(spec.args.size());
    for (size_t i = 0; i < spec.args.size(); ++i) ready.args[i] = ArgOf(spec.args[i], i);
  }
  return absl::OkStatus();
}

Prepared::Arg Prepared::ArgOf(const ArgSpec& spec, size_t position) {
  using From = Arg::From;
  const auto index = static_cast<uint8_t>(spec.index);
  const auto at = [&](From from, size_t place, size_t size) {
    return Arg{from, index, static_cast<uint16_t>(place * size)};
  };
  switch (spec.kind) {
    case ArgSpec::Kind::kTensor:
      return at(From::kTensors, index, sizeof(TensorView));
    case ArgSpec::Kind::kScalar:
      return at(From::kScalar, 0, 0);
    case ArgSpec::Kind::kWorkspace:
      return at(From::kRegions, index, sizeof(void*));
    case ArgSpec::Kind::kValue:
      return at(From::kValues, position, sizeof(int64_t));
    case ArgSpec::Kind::kTensorMap:
      return at(From::kMaps, index, sizeof(TensorMap));
  }
  return {};
}

absl::Status Prepared::Open(const OpSpec& op) {
  if (variant_->code == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "a launch function without its library",
                 "build the bundle into a plugin with kvr_add_plugin()");
  }
  std::unique_ptr<LaunchFunction> function;
  KVR_RETURN_IF_ERROR(device_->WithContext([&]() -> absl::Status {
    KVR_ASSIGN_OR_RETURN(function, variant_->code->Open(device_->info(), tunable_values_));
    return absl::OkStatus();
  }));
  call_ = std::make_unique<OpenCall>(OpenCall{op, std::move(function)});
  return absl::OkStatus();
}

// What a launch function opened, it frees where it was opened, and after the calls in flight (host
// makes them on its own threads): Free waits for them, as a Module's end does.
Prepared::~Prepared() {
  if (call_ == nullptr) return;
  if (const absl::StatusOr<void*> memory = device_->Allocate(1); memory.ok()) {
    device_->Free(*memory);
  }
  device_
      ->WithContext([&] {
        call_.reset();
        return absl::OkStatus();
      })
      .IgnoreError();
}

absl::Status Prepared::Plan(const AxisVector& axes, LaunchPlan* plan) const {
  if (TryPlan(axes, plan) == PlanCode::Outcome::kPlanned) return absl::OkStatus();
  KVR_RETURN_IF_ERROR(variant_->plan.Evaluate(axes, tunable_values_, device_->info(), plan));
  if (call_ != nullptr) ForgetEmptyCall(axes, plan);
  return absl::OkStatus();
}

void Prepared::ForgetEmptyCall(const AxisVector& axes, LaunchPlan* plan) const {
  for (const TensorSpec& output : call_->op.outputs) {
    if (std::all_of(output.axes.begin(), output.axes.end(),
                    [&](int axis) { return axes[axis] > 0; })) {
      return;
    }
  }
  plan->workspace_bytes = 0;
  plan->region_offset.fill(0);
  plan->region_bytes.fill(0);
}

void Prepared::Regions(const PlanView& plan, void* workspace, void** regions) const {
  const size_t count = variant_->plan.regions.size();
  for (size_t i = 0; i < count; ++i) {
    regions[i] = static_cast<std::byte*>(workspace) + plan.region_offset[i];
  }
}

absl::Status Prepared::Clear(const PlanView& plan, void* const* regions, Stream stream) const {
  for (const uint8_t i : zeroed_) {
    if (plan.region_bytes[i] == 0) continue;
    KVR_RETURN_IF_ERROR(device_->MemsetAsync(regions[i], 0, plan.region_bytes[i], stream));
  }
  return absl::OkStatus();
}

void Prepared::Params(const PlanView& plan, int i, absl::Span<const TensorView> tensors,
                      void* const* regions, const TensorMap* maps, void** params) const {
  static_assert(offsetof(TensorView, data) == 0);
  const KernelLaunch& launch = plan.kernels[i];
  const Kernel& kernel = kernels_[launch.kernel];
  const void* const begins[] = {tensors.data(), regions, launch.values.data(), maps};
  for (size_t a = 0; a < kernel.arg_count; ++a) {
    const Arg arg = kernel.args[a];
    const void* value;
    if (arg.from == Arg::From::kScalar) {
      value = tensors[arg.index].data;
      if (value == nullptr) value = &scalar_defaults_[arg.index];
    } else {
      value = static_cast<const std::byte*>(begins[static_cast<size_t>(arg.from)]) + arg.offset;
    }
    params[a] = const_cast<void*>(value);
  }
}

absl::Status Prepared::EncodeTensorMaps(const PlanView& plan, absl::Span<const TensorView> tensors,
                                        TensorMap* maps) const {
  const std::vector<TensorMapSpec>& specs = variant_->plan.tensor_maps;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorMapLaunch& map = plan.tensor_maps[i];
    const TensorView& tensor = tensors[specs[i].tensor];
    int64_t elements = 1;
    bool fits = tensor.data != nullptr;
    for (int d = 0; d < map.rank; ++d) {
      fits = fits && !__builtin_mul_overflow(elements, map.shape[d], &elements);
    }
    absl::Status status = fits && elements <= tensor.elements()
                              ? device_->EncodeTensorMap(map, tensor.data, &maps[i])
                              : Error(absl::StatusCode::kFailedPrecondition,
                                      StrCat("its view is larger than the tensor of ",
                                             tensor.elements(), " elements, or that is absent"),
                                      "correct the map's shape in the manifest");
    if (!status.ok()) {
      return WithContext(
          StrCat(variant_->op, "/", variant_->name, ": tensor map '", specs[i].name, "'"), status);
    }
  }
  return absl::OkStatus();
}

absl::Status Prepared::Call(const PlanView& plan, absl::Span<const TensorView> tensors,
                            void* const* regions, Stream stream) const {
  const OpSpec& op = call_->op;
  const absl::Span<const TensorView> outputs = tensors.subspan(op.inputs.size());
  if (std::all_of(outputs.begin(), outputs.end(),
                  [](const TensorView& output) { return output.elements() == 0; })) {
    return absl::OkStatus();
  }
  AxisVector axes;
  KVR_RETURN_IF_ERROR(AxesFromTensors(op, tensors, &axes));
  absl::InlinedVector<TensorView, kMaxTensors> defaulted;  // filled where a scalar is left out
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].data != nullptr || !op.tensor(static_cast<int>(i)).is_scalar) continue;
    if (defaulted.empty()) defaulted.assign(tensors.begin(), tensors.end());
    defaulted[i].data = const_cast<std::byte*>(scalar_defaults_[i].data());
  }
  const size_t count = variant_->plan.regions.size();
  FunctionLaunch launch;
  launch.axes = {axes.data(), op.axes.size()};
  launch.tensors = defaulted.empty() ? tensors : absl::MakeConstSpan(defaulted);
  launch.workspace = {regions, count};
  launch.workspace_bytes = {plan.region_bytes, count};
  absl::Status status = device_->Call(*call_->function, launch, stream);
  if (status.ok()) return status;
  return WithContext(StrCat(variant_->op, "/", variant_->name, ": launch function"), status);
}

absl::Status Prepared::Launch(const PlanView& plan, absl::Span<const TensorView> tensors,
                              void* workspace, Stream stream) const {
  if (plan.kernels.empty() && !calls()) return absl::OkStatus();
  if (plan.workspace_bytes > 0 && workspace == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(variant_->op, "/", variant_->name, " needs ", plan.workspace_bytes,
                        " bytes of workspace, none is given"),
                 "pass a workspace");
  }
  std::array<void*, kMaxRegions> regions;
  std::array<void*, kMaxArgs> params;
  Regions(plan, workspace, regions.data());
  KVR_RETURN_IF_ERROR(Clear(plan, regions.data(), stream));
  if (calls()) return Call(plan, tensors, regions.data(), stream);
  std::array<TensorMap, kMaxTensorMaps> maps;
  KVR_RETURN_IF_ERROR(EncodeTensorMaps(plan, tensors, maps.data()));
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    Params(plan, static_cast<int>(i), tensors, regions.data(), maps.data(), params.data());
    const KernelLaunch& launch = plan.kernels[i];
    const Kernel& kernel = kernels_[launch.kernel];
    KVR_RETURN_IF_ERROR(
        device_->Launch(kernel.function, launch, kernel.attributes, params.data(), stream));
  }
  return absl::OkStatus();
}

}  // namespace kvr
