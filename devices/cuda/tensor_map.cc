// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/tensor_map.h"

#include <array>
#include <cstdint>

#include "core/status.h"
#include "core/strings.h"

namespace kvr::cuda {
namespace {

constexpr int64_t kMostBox = 256;                  // elements of a box, in each dimension
constexpr int64_t kMostExtent = int64_t{1} << 32;  // elements of the view, in each dimension
constexpr int64_t kMostStride = int64_t{1} << 40;  // bytes, exclusive
constexpr int64_t kUnit = 16;                      // bytes that addresses and strides are made of

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

absl::Status Refused(std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kFailedPrecondition, StrCat("tensor map: ", what), fix);
}

}  // namespace

absl::Status ExplainTensorMap(const TensorMapLaunch& map, const void* data) {
  const int64_t element = DTypeSize(map.dtype);
  if (map.rank < 1 || map.rank > kMaxTensorMapRank) {
    return Refused(StrCat("it has ", map.rank, " dimensions"),
                   StrCat("give 1 to ", kMaxTensorMapRank));
  }
  if (reinterpret_cast<uintptr_t>(data) % kUnit != 0 || data == nullptr) {
    return Refused("its memory is not aligned to 16 bytes", "pass memory aligned to 16 bytes");
  }
  int64_t stride = element;
  for (int d = map.rank - 1; d >= 0; --d) {
    if (map.box[d] < 1 || map.box[d] > kMostBox) {
      return Refused(StrCat("box extent ", d, " is ", map.box[d]),
                     StrCat("keep it within 1...", kMostBox));
    }
    if (map.shape[d] < 1 || map.shape[d] > kMostExtent) {
      return Refused(StrCat("extent ", d, " is ", map.shape[d]),
                     StrCat("keep it within 1...", kMostExtent));
    }
    if (d == 0) continue;
    stride *= map.shape[d];
    if (stride % kUnit != 0 || stride >= kMostStride) {
      return Refused(
          StrCat("rows of dimension ", d - 1, " lie ", stride, " bytes apart"),
          StrCat("the extents behind it must make a multiple of 16 bytes below ", kMostStride));
    }
  }
  const int64_t inner = map.box[map.rank - 1] * element;
  if (inner % kUnit != 0) {
    return Refused(StrCat("the box is ", inner, " bytes wide"),
                   "make its innermost extent a multiple of 16 bytes");
  }
  if (map.swizzle != 0 && inner > map.swizzle) {
    return Refused(StrCat("the box is ", inner, " bytes wide, its swizzle ", map.swizzle),
                   "make its innermost extent no wider than the swizzle");
  }
  return absl::OkStatus();
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
