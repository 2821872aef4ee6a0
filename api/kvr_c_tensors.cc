// SPDX-License-Identifier: Apache-2.0
#include "api/kvr_c_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::c {
namespace {

static_assert(sizeof(kvr_dltensor) == 48 && offsetof(kvr_dltensor, device_type) == 8 &&
                  offsetof(kvr_dltensor, ndim) == 16 && offsetof(kvr_dltensor, dtype_code) == 20 &&
                  offsetof(kvr_dltensor, dtype_lanes) == 22 &&
                  offsetof(kvr_dltensor, shape) == 24 && offsetof(kvr_dltensor, strides) == 32 &&
                  offsetof(kvr_dltensor, byte_offset) == 40,
              "DLPack publishes this layout");

enum : int32_t { kCpu = 1, kCuda = 2, kPinned = 3, kManaged = 13 };  // DLDeviceType

struct DlType {
  uint8_t code, bits;
  DType dtype;
};
constexpr DlType kTypes[] = {
    {0, 32, DType::kI32},    {0, 64, DType::kI64},    {1, 8, DType::kU8},    {2, 16, DType::kF16},
    {2, 32, DType::kF32},    {2, 64, DType::kF64},    {4, 16, DType::kBF16}, {6, 8, DType::kBool},
    {10, 8, DType::kF8E4M3}, {14, 8, DType::kF8E8M0},
};

std::optional<DType> TypeOf(const kvr_dltensor& tensor) {
  if (tensor.dtype_lanes != 1) return std::nullopt;
  for (const DlType& type : kTypes) {
    if (type.code == tensor.dtype_code && type.bits == tensor.dtype_bits) return type.dtype;
  }
  return std::nullopt;
}

std::string DeviceName(int32_t type, int32_t id) {
  switch (type) {
    case kCpu:
      return "the CPU";
    case kCuda:
      return StrCat("cuda:", id);
    case kPinned:
      return "pinned host memory";
    case kManaged:
      return "managed CUDA memory";
    default:
      return StrCat("a device of DLPack type ", type);
  }
}

absl::Status Refuse(const OpSpec& op, int index, std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("tensor ", index, " (", op.tensor(index).name, ") of ", op.name, ": ", what),
               fix);
}

absl::Status CheckDevice(const OpSpec& op, int index, const kvr_dltensor& tensor,
                         const DeviceInfo& device) {
  const int32_t type = tensor.device_type;
  if (device.kind == "null") return absl::OkStatus();  // it looks at no memory
  if (device.kind == "host") {
    if (type == kCpu || type == kPinned) return absl::OkStatus();
  } else {
    if (type == kManaged || (type == kCuda && tensor.device_id == device.ordinal)) {
      return absl::OkStatus();
    }
  }
  const std::string ours =
      device.kind == "host" ? std::string("the CPU") : StrCat("cuda:", device.ordinal);
  return Refuse(op, index,
                StrCat("it lies on ", DeviceName(type, tensor.device_id),
                       ", and this runtime launches on ", ours),
                StrCat("move it to ", ours));
}

// Row-major without gaps. A stride of an extent of 1, or of an empty tensor, is never used.
absl::Status CheckStrides(const OpSpec& op, int index, const kvr_dltensor& tensor) {
  int64_t expected = 1;
  bool fits = true;
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    if (tensor.shape[d] < 0 || __builtin_mul_overflow(expected, tensor.shape[d], &expected)) {
      return Refuse(op, index, StrCat("its extent ", d, " is ", tensor.shape[d]),
                    "extents are 0 or more, and the tensor must fit into memory");
    }
  }
  if (expected == 0 || tensor.strides == nullptr) return absl::OkStatus();
  expected = 1;
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    fits &= tensor.shape[d] == 1 || tensor.strides[d] == expected;
    expected *= tensor.shape[d];
  }
  if (fits) return absl::OkStatus();
  std::string strides;
  for (int d = 0; d < tensor.ndim; ++d) StrAppend(&strides, d == 0 ? "" : ", ", tensor.strides[d]);
  return Refuse(op, index, StrCat("it is not contiguous: its strides are ", strides),
                "pass a row-major copy, as tensor.contiguous() makes one");
}

template <typename T>
uint64_t Bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// `value` as `dtype`; nothing where it has no such value.
std::optional<uint64_t> Convert(double value, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return Bits(value);
    case DType::kF32:
      if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) return {};
      return Bits(static_cast<float>(value));
    case DType::kBF16:
      return Bits(FloatToBf16(static_cast<float>(value)));
    case DType::kF16:
      return Bits(FloatToF16(static_cast<float>(value)));
    default:
      return {};
  }
}

std::optional<uint64_t> Convert(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      if (value != 0 && value != 1) return {};
      return Bits(static_cast<uint8_t>(value));
    case DType::kU8:
      if (value < 0 || value > 255) return {};
      return Bits(static_cast<uint8_t>(value));
    case DType::kI32:
      if (value != static_cast<int32_t>(value)) return {};
      return Bits(static_cast<int32_t>(value));
    case DType::kI64:
      return Bits(value);
    default:
      return Convert(static_cast<double>(value), dtype);
  }
}

absl::Status ReadScalar(const OpSpec& op, int index, DType given, TensorView* view,
                        uint64_t* scalar) {
  const TensorSpec& spec = op.tensor(index);
  if (given == spec.dtype || spec.any_dtype) return absl::OkStatus();
  std::optional<uint64_t> bits;
  std::string value;
  if (given == DType::kF64) {
    double number;
    std::memcpy(&number, view->data, sizeof number);
    bits = Convert(number, spec.dtype);
    value = StrCat(number);
  } else if (given == DType::kI64) {
    int64_t number;
    std::memcpy(&number, view->data, sizeof number);
    bits = Convert(number, spec.dtype);
    value = StrCat(number);
  }
  if (!bits.has_value()) {
    return Refuse(op, index,
                  StrCat("a ", DTypeName(given), value.empty() ? "" : " of ", value,
                         ", where the op takes a ", DTypeName(spec.dtype)),
                  StrCat("pass a ", DTypeName(spec.dtype), " that holds the value"));
  }
  *scalar = *bits;
  view->data = scalar;
  view->dtype = spec.dtype;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTensor(const OpSpec& op, int index, const kvr_dltensor* given,
                        const DeviceInfo& device, TensorView* view, uint64_t* scalar) {
  const TensorSpec& spec = op.tensor(index);
  *view = TensorView{};
  view->dtype = spec.dtype;
  if (given == nullptr) {
    if (!spec.optional) return Refuse(op, index, "it is NULL", "only optional tensors may be NULL");
    view->rank = static_cast<int>(spec.axes.size());
    return absl::OkStatus();
  }
  const std::optional<DType> dtype = TypeOf(*given);
  if (!dtype.has_value()) {
    return Refuse(op, index,
                  StrCat("DLPack type code ", given->dtype_code, ", ", given->dtype_bits, " bits, ",
                         given->dtype_lanes, " lanes"),
                  StrCat("the op takes ", DTypeName(spec.dtype)));
  }
  if (given->ndim < 0 || given->ndim > kMaxRank) {
    return Refuse(op, index, StrCat("it has ", given->ndim, " dimensions"),
                  StrCat("0 to ", kMaxRank, " are possible"));
  }
  if (given->ndim > 0 && given->shape == nullptr) {
    return Refuse(op, index, "its shape is NULL", "pass its extents");
  }
  view->dtype = *dtype;
  view->rank = given->ndim;
  std::copy_n(given->shape, given->ndim, view->shape.begin());
  view->data = given->data;
  if (view->data != nullptr) {
    view->data = static_cast<char*>(view->data) + given->byte_offset;
  }
  if (!spec.is_scalar) {
    KVR_RETURN_IF_ERROR(CheckDevice(op, index, *given, device));
    return CheckStrides(op, index, *given);
  }
  if (given->ndim != 0) {
    return Refuse(op, index, StrCat("it has ", given->ndim, " dimensions, and is a scalar"),
                  "pass one value with ndim 0");
  }
  if (given->device_type != kCpu && given->device_type != kPinned) {
    return Refuse(
        op, index,
        StrCat("it is a scalar, and lies on ", DeviceName(given->device_type, given->device_id)),
        "scalars are host values: pass tensor.item()");
  }
  if (view->data == nullptr) return Refuse(op, index, "its data is NULL", "pass its value");
  return ReadScalar(op, index, *dtype, view, scalar);
}

absl::Status ReadTensors(const OpSpec& op, const kvr_dltensor* const* given, size_t count,
                         const DeviceInfo& device, TensorView* views, Scalars* scalars) {
  if (count != static_cast<size_t>(op.tensor_count()) || given == nullptr) {
    std::string names;
    for (int i = 0; i < op.tensor_count(); ++i) {
      StrAppend(&names, i == 0 ? "" : ", ", op.tensor(i).name);
    }
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat(op.name, " takes ", op.tensor_count(), " tensors; ",
               given == nullptr ? std::string("`tensors` is NULL") : StrCat(count, " were given")),
        StrCat("pass ", names));
  }
  for (int i = 0; i < op.tensor_count(); ++i) {
    KVR_RETURN_IF_ERROR(
        ReadTensor(op, i, given[i], device, &views[i], &(*scalars)[static_cast<size_t>(i)]));
  }
  return absl::OkStatus();
}

}  // namespace kvr::c
