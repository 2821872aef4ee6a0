// SPDX-License-Identifier: Apache-2.0
#include "registry/prepared.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

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
  if (module == nullptr) {
    absl::StatusOr<std::unique_ptr<Module>> loaded = device.Load(*binary);
    if (!loaded.ok()) return WithContext(place, loaded.status());
    module = *std::move(loaded);
  }

  std::shared_ptr<Prepared> prepared(new Prepared());
  prepared->device_ = &device;
  prepared->tunable_values_ = variant->TunableValues(config);
  for (int i = 0; i < op.tensor_count(); ++i) {
    const TensorSpec& tensor = op.tensor(i);
    prepared->required_.push_back(!tensor.optional);
    prepared->scalar_defaults_.push_back(tensor.is_scalar
                                             ? ScalarBytes(tensor.scalar_default, tensor.dtype)
                                             : std::array<std::byte, 8>{});
  }
  for (const KernelSpec& spec : variant->plan.kernels) {
    const BinaryKernel* kernel = binary->Find(spec.entry);
    if (kernel == nullptr) {
      return Error(
          absl::StatusCode::kNotFound,
          StrCat(place, ": binary ", binary->key.Short(), " has no kernel '", spec.entry, "'"),
          "the binary belongs to another variant or version; compile it anew");
    }
    absl::StatusOr<Function> function =
        module->Get(kernel->symbol, SmemOptIn(spec, *kernel, device.info()));
    if (!function.ok())
      return WithContext(StrCat(place, ", kernel ", spec.name), function.status());
    prepared->functions_.push_back(*function);
  }
  prepared->variant_ = std::move(variant);
  prepared->config_ = std::move(config);
  prepared->binary_ = std::move(binary);
  prepared->module_ = std::move(module);
  return prepared;
}

void Prepared::Regions(const PlanView& plan, void* workspace, void** regions) const {
  const size_t count = variant_->plan.regions.size();
  for (size_t i = 0; i < count; ++i) {
    regions[i] = static_cast<std::byte*>(workspace) + plan.region_offset[i];
  }
}

absl::Status Prepared::Clear(const PlanView& plan, void* const* regions, Stream stream) const {
  const std::vector<RegionSpec>& specs = variant_->plan.regions;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].zeroed || plan.region_bytes[i] == 0) continue;
    KVR_RETURN_IF_ERROR(device_->MemsetAsync(regions[i], 0, plan.region_bytes[i], stream));
  }
  return absl::OkStatus();
}

void Prepared::Params(const PlanView& plan, int i, absl::Span<const TensorView> tensors,
                      void* const* regions, void** params) const {
  const KernelLaunch& launch = plan.kernels[i];
  const std::vector<ArgSpec>& args = variant_->plan.kernels[launch.kernel].args;
  for (size_t a = 0; a < args.size(); ++a) {
    const ArgSpec& arg = args[a];
    const void* value = nullptr;
    switch (arg.kind) {
      case ArgSpec::Kind::kTensor:
        value = &tensors[arg.index].data;
        break;
      case ArgSpec::Kind::kScalar:
        value = tensors[arg.index].data;
        if (value == nullptr) value = &scalar_defaults_[arg.index];
        break;
      case ArgSpec::Kind::kWorkspace:
        value = &regions[arg.index];
        break;
      case ArgSpec::Kind::kValue:
        value = &launch.values[a];
        break;
      case ArgSpec::Kind::kTensorMap:  // no manifest states one yet
        break;
    }
    params[a] = const_cast<void*>(value);
  }
}

absl::Status Prepared::CheckTensors(absl::Span<const TensorView> tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (tensor.rank == 0) continue;
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    if (tensor.data == nullptr) {
      if (!required_[i] || tensor.elements() == 0) continue;
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("tensor ", i, " of ", variant_->op, " has no memory"),
                   "give the address of every tensor that is not optional");
    }
    if (address % static_cast<uintptr_t>(DTypeSize(tensor.dtype)) != 0) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("tensor ", i, " of ", variant_->op, " is not aligned to its ",
                          DTypeName(tensor.dtype), " elements"),
                   "pass memory aligned to the element size");
    }
  }
  return absl::OkStatus();
}

absl::Status Prepared::Launch(const PlanView& plan, absl::Span<const TensorView> tensors,
                              void* workspace, Stream stream) const {
  KVR_RETURN_IF_ERROR(CheckTensors(tensors));
  if (plan.kernels.empty()) return absl::OkStatus();
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
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    Params(plan, static_cast<int>(i), tensors, regions.data(), params.data());
    const KernelLaunch& launch = plan.kernels[i];
    KVR_RETURN_IF_ERROR(device_->Launch(functions_[launch.kernel], launch,
                                        variant_->plan.kernels[launch.kernel].attributes,
                                        params.data(), stream));
  }
  return absl::OkStatus();
}

}  // namespace kvr
