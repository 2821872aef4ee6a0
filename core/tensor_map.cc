// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_map.h"

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr int64_t kMostBox = 256;                   // elements, in each dimension
constexpr int64_t kMostExtent = int64_t{1} << 32;   // elements, in each dimension
constexpr int64_t kStrideLimit = int64_t{1} << 40;  // bytes, exclusive

absl::Status Refused(std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kFailedPrecondition, what, fix);
}

}  // namespace

absl::Status CheckTensorMap(const TensorMapLaunch& map) {
  if (map.rank < 1 || map.rank > kMaxTensorMapRank) {
    return Refused(StrCat("it has ", map.rank, " dimensions"),
                   StrCat("give 1 to ", kMaxTensorMapRank));
  }
  const int64_t element = DTypeSize(map.dtype);
  int64_t stride = element;
  for (int d = map.rank - 1; d >= 0; --d) {
    if (map.box[d] < 1 || map.box[d] > kMostBox) {
      return Refused(StrCat("box extent ", d, " is ", map.box[d]),
                     StrCat("keep it within 1...", kMostBox));
    }
    if (map.shape[d] < 1 || map.shape[d] > kMostExtent) {
      return Refused(
          StrCat("extent ", d, " is ", map.shape[d]),
          StrCat("keep it within 1...", kMostExtent, ", or leave the kernel out with `when`"));
    }
    if (d == 0) continue;
    if (__builtin_mul_overflow(stride, map.shape[d], &stride) || stride >= kStrideLimit ||
        stride % kTensorMapAlign != 0) {
      return Refused(StrCat("rows of dimension ", d - 1, " lie ", stride, " bytes apart"),
                     StrCat("the extents behind it must make a multiple of ", kTensorMapAlign,
                            " bytes below ", kStrideLimit));
    }
  }
  const int64_t width = map.box[map.rank - 1] * element;
  if (width % kTensorMapAlign != 0) {
    return Refused(StrCat("the box is ", width, " bytes wide"),
                   StrCat("make its innermost extent a multiple of ", kTensorMapAlign, " bytes"));
  }
  if (map.swizzle != 0 && width > map.swizzle) {
    return Refused(StrCat("the box is ", width, " bytes wide, its swizzle ", map.swizzle),
                   "make its innermost extent no wider than the swizzle");
  }
  return absl::OkStatus();
}

}  // namespace kvr
