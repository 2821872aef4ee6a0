// SPDX-License-Identifier: Apache-2.0
//
// A tensor the caller owns: pointer, dtype, shape. Row-major and contiguous (KVR's ops define
// contiguous layouts; a strided tensor is refused where it enters). Rank 0 is a scalar: `data`
// then points at *host* memory, and its value is copied into the launch.
//
// Ownership: a view; the caller keeps the memory alive until the stream has passed the launch.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype.h"

namespace kvr {

inline constexpr int kMaxRank = 6;

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};

  absl::Span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(rank)}; }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : dims()) n *= d;
    return n;
  }
  int64_t bytes() const { return elements() * DTypeSize(dtype); }
};

}  // namespace kvr
