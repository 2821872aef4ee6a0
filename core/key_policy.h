// SPDX-License-Identifier: Apache-2.0
//
// How axes become a tuning key. A policy is a comma-free list of bucketed axes:
//
//   "topk:pow2; num_tokens:ceil(1,2,4,8); num_qo_heads:exact"
//
//   exact          the value itself
//   pow2           the smallest power of two >= the value
//   ceil(a,b,...)  the smallest listed bound >= the value; above the last, the last
//                  (Bucketed::clipped says so; whoever warns, warns once)
//
// A bucket's value is also its representative: the shape it is tuned at.
//
// Threading: immutable after Parse; Bucket is const and allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"

namespace kvr {

inline constexpr int kMaxKeyAxes = 6;

// Bucketed axis values in policy order; unused tail is zero. Hashable, comparable.
struct BucketedKey {
  std::array<int64_t, kMaxKeyAxes> values{};
  bool operator==(const BucketedKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const BucketedKey& k) {
    return H::combine(std::move(h), k.values);
  }
};

class KeyPolicy {
 public:
  // `op` gives the legal axis names.
  static absl::StatusOr<KeyPolicy> Parse(std::string_view text, const OpSpec& op);

  BucketedKey Bucket(const AxisVector& axes, bool* clipped = nullptr) const;
  // `axes` with every policy axis at its bucket's representative.
  AxisVector Representative(const AxisVector& axes) const;
  // {"topk": 512, ...} for files and people.
  Axes Named(const BucketedKey& key) const;
  // The inverse of Named; an axis missing or not in the policy is an error.
  absl::StatusOr<BucketedKey> FromNamed(const Axes& named) const;
  size_t axis_count() const { return parts_.size(); }
  const std::string& text() const { return text_; }  // canonical

 private:
  enum class Kind : uint8_t { kExact, kPow2, kCeil };
  struct Part {
    std::string axis;
    int axis_index;
    Kind kind;
    std::vector<int64_t> bounds;
  };
  static int64_t BucketOf(const Part& part, int64_t value, bool* clipped);
  std::string text_;
  std::vector<Part> parts_;
};

}  // namespace kvr
