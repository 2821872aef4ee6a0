// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/tensor_map.h"

#include <array>
#include <cstdint>

#include "core/status.h"
#include "core/strings.h"
#include "core/tensor_map.h"

namespace kvr::cuda {
namespace {

int DataType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
      return kTensorMapUint8;
    case DType::kI32:
      return kTensorMapInt32;
    case DType::kI64:
      return kTensorMapInt64;
    case DType::kF16:
      return kTensorMapFloat16;
    case DType::kBF16:
      return kTensorMapBfloat16;
    case DType::kF32:
      return kTensorMapFloat32;
    case DType::kF64:
      return kTensorMapFloat64;
  }
  return kTensorMapUint8;
}

int Swizzle(int bytes) {
  switch (bytes) {
    case 32:
      return kTensorMapSwizzle32;
    case 64:
      return kTensorMapSwizzle64;
    case 128:
      return kTensorMapSwizzle128;
    default:
      return kTensorMapSwizzleNone;
  }
}

}  // namespace

absl::Status ExplainTensorMap(const TensorMapLaunch& map, const void* data) {
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % kTensorMapAlign != 0) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("its memory is not aligned to ", kTensorMapAlign, " bytes"),
                 StrCat("pass memory aligned to ", kTensorMapAlign, " bytes"));
  }
  return CheckTensorMap(map);
}

absl::Status EncodeTensorMap(const Driver& driver, const TensorMapLaunch& map, const void* data,
                             TensorMap* encoded) {
  if (driver.TensorMapEncodeTiled == nullptr) {
    return Error(absl::StatusCode::kUnimplemented,
                 "the CUDA driver has no cuTensorMapEncodeTiled, which tensor maps need",
                 StrCat("install NVIDIA driver ", kMinimumDriverText, " or newer"));
  }
  // The driver counts dimensions from the innermost, and leaves out its stride, the element's size.
  std::array<uint64_t, kMaxTensorMapRank> shape, strides;
  std::array<uint32_t, kMaxTensorMapRank> box, steps;
  uint64_t stride = static_cast<uint64_t>(DTypeSize(map.dtype));
  for (int d = 0; d < map.rank; ++d) {
    const int from = map.rank - 1 - d;
    shape[d] = static_cast<uint64_t>(map.shape[from]);
    box[d] = static_cast<uint32_t>(map.box[from]);
    steps[d] = 1;
    stride *= shape[d];
    strides[d] = stride;
  }
  const Result result = driver.TensorMapEncodeTiled(
      encoded, DataType(map.dtype), static_cast<uint32_t>(map.rank), const_cast<void*>(data),
      shape.data(), strides.data(), box.data(), steps.data(), kTensorMapInterleaveNone,
      Swizzle(map.swizzle), kTensorMapL2Promotion128, kTensorMapFillZeros);
  if (result == kSuccess) return absl::OkStatus();
  KVR_RETURN_IF_ERROR(ExplainTensorMap(map, data));
  return ErrorFrom(driver, result, "cuTensorMapEncodeTiled");
}

}  // namespace kvr::cuda
