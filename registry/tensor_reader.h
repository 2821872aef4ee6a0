// SPDX-License-Identifier: Apache-2.0
//
// The first step of a launch: axes read off the caller's tensors, which are checked on the way.
// AxesFromTensors (core/op.h) for one op, in a form that touches little memory, and the addresses
// as well: a tensor that is not optional and not empty has one, aligned to its elements.
//
// Threading: immutable. Read allocates nothing unless it fails.
// Ownership: the op's spec outlives it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "core/tensor.h"

namespace kvr {

class TensorReader {
 public:
  explicit TensorReader(const OpSpec& op);

  absl::Status Read(absl::Span<const TensorView> tensors, AxisVector* axes) const {
    *axes = start_;
    bool changed = false;
    return Reread(tensors, axes, &changed);
  }
  // `axes` were read before by this reader; `*changed` is set where they were others. After an
  // error they are anything.
  absl::Status Reread(absl::Span<const TensorView> tensors, AxisVector* axes, bool* changed) const {
    return Matches(tensors, axes, changed) ? absl::OkStatus() : Explain(tensors);
  }

 private:
  struct Entry {
    DType dtype;
    bool any_dtype, optional;
    uint8_t rank;
    uint8_t misaligned;  // address bits that must be 0, unless any_dtype
    std::array<uint8_t, kMaxRank> axes;
  };
  // Extents are named by their distance from the first tensor, in units of 8 bytes.
  struct FirstSeen {  // the extent is the axis
    uint16_t extent;
    uint8_t axis;
  };
  struct Repeated {  // the extent is that of a tensor before
    uint16_t extent, before;
  };
  struct Constant {
    uint16_t extent;
    int64_t value;
  };
  struct Attribute {  // the scalar's value is the axis
    uint8_t tensor, axis;
  };

  bool Matches(absl::Span<const TensorView> tensors, AxisVector* axes, bool* changed) const;
  bool MatchesWithAbsent(absl::Span<const TensorView> tensors, AxisVector* axes,
                         bool* changed) const;
  absl::Status Explain(absl::Span<const TensorView> tensors) const;

  const OpSpec* op_;
  std::vector<Entry> entries_;
  std::vector<FirstSeen> first_seen_;
  std::vector<Repeated> repeated_;
  std::vector<Constant> constants_;
  std::vector<Attribute> attributes_;
  AxisVector start_;  // constant axes, and defaults of those that no tensor has
};

}  // namespace kvr
