// SPDX-License-Identifier: Apache-2.0
//
// What a layer of the synthetic decode stack looks like: the axes of its two operations, modelled
// on a known model's. num_tokens is the batch, num_pages follows from it: every row of a step has
// a cache of its own of `context` slots.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/axes.h"

namespace kvr {

inline constexpr char kDecodeAttention[] = "mla_sparse_decode";
inline constexpr char kDecodeMoe[] = "moe_decode";

struct DecodeShape {
  std::string name, description;
  Axes attention, moe;
  int64_t context = 0;

  const Axes& of(std::string_view op) const { return op == kDecodeMoe ? moe : attention; }
};

absl::StatusOr<DecodeShape> FindDecodeShape(std::string_view name);
std::vector<std::string_view> DecodeShapeNames();

// `text`: "moe_decode/num_experts=64,inner=512". An axis that the batch gives is refused; the ops
// themselves check the rest (ResolveAxes).
absl::Status ChangeDecodeAxes(std::string_view text, DecodeShape* shape);

}  // namespace kvr
