// SPDX-License-Identifier: Apache-2.0
#include "core/key_policy.h"

#include <algorithm>
#include <bit>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr int64_t kLargestPow2 = int64_t{1} << 62;

absl::Status Malformed(std::string_view text, std::string_view piece, std::string_view why) {
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("key policy ", Quoted(text), ": ", Quoted(piece), " ", why),
               "write \"axis:bucket; axis:bucket\" with exact, pow2 or ceil(1,2,4), as in "
               "\"topk:pow2; num_tokens:ceil(1,2,4,8)\"");
}

absl::StatusOr<std::vector<int64_t>> ParseBounds(std::string_view text, std::string_view piece,
                                                 std::string_view list) {
  std::vector<int64_t> bounds;
  for (std::string_view item : Split(list, ',')) {
    absl::StatusOr<int64_t> bound = ParseInteger(Trim(item), /*negative=*/false);
    if (!bound.ok()) return Malformed(text, piece, StrCat("has the bound ", Quoted(item)));
    if (*bound < 1) return Malformed(text, piece, "has a bound below 1");
    if (!bounds.empty() && *bound <= bounds.back()) {
      return Malformed(text, piece, "has bounds that do not ascend");
    }
    bounds.push_back(*bound);
  }
  return bounds;
}

}  // namespace

absl::StatusOr<KeyPolicy> KeyPolicy::Parse(std::string_view text, const OpSpec& op) {
  KeyPolicy policy;
  if (Trim(text).empty()) return policy;
  for (std::string_view raw : Split(text, ';')) {
    const std::string_view piece = Trim(raw);
    const size_t colon = piece.find(':');
    if (piece.empty()) return Malformed(text, raw, "is empty");
    if (colon == std::string_view::npos) return Malformed(text, piece, "has no ':'");
    Part part;
    part.axis = std::string(Trim(piece.substr(0, colon)));
    part.axis_index = op.AxisIndex(part.axis);
    if (part.axis_index < 0) {
      std::vector<std::string_view> names;
      for (const AxisSpec& axis : op.axes) names.push_back(axis.name);
      return WithContext(StrCat("key policy ", Quoted(text)),
                         UnknownName("axis", part.axis, names));
    }
    for (const Part& before : policy.parts_) {
      if (before.axis == part.axis) return Malformed(text, piece, "names its axis a second time");
    }
    if (policy.parts_.size() == static_cast<size_t>(kMaxKeyAxes)) {
      return Malformed(text, piece, StrCat("is one axis more than the ", kMaxKeyAxes, " allowed"));
    }
    const std::string_view bucket = Trim(piece.substr(colon + 1));
    std::string canonical(bucket);
    if (bucket == "exact") {
      part.kind = Kind::kExact;
    } else if (bucket == "pow2") {
      part.kind = Kind::kPow2;
    } else if (bucket.starts_with("ceil(") && bucket.ends_with(")")) {
      part.kind = Kind::kCeil;
      KVR_ASSIGN_OR_RETURN(part.bounds,
                           ParseBounds(text, piece, bucket.substr(5, bucket.size() - 6)));
      canonical = StrCat("ceil(", StrJoin(part.bounds, ","), ")");
    } else {
      return Malformed(text, piece, "has an unknown bucket");
    }
    StrAppend(&policy.text_, policy.text_.empty() ? "" : "; ", part.axis, ":", canonical);
    policy.parts_.push_back(std::move(part));
  }
  return policy;
}

int64_t KeyPolicy::BucketOf(const Part& part, int64_t value, bool* clipped) {
  switch (part.kind) {
    case Kind::kExact:
      return value;
    case Kind::kPow2: {
      if (value > kLargestPow2) {
        if (clipped) *clipped = true;
        return kLargestPow2;
      }
      return static_cast<int64_t>(
          std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
    }
    case Kind::kCeil: {
      // Counted, not searched: a launch of any shape should not wait for a mispredicted branch.
      size_t below = 0;
      for (int64_t bound : part.bounds) below += bound < value;
      if (below < part.bounds.size()) return part.bounds[below];
      if (clipped) *clipped = true;
      return part.bounds.back();
    }
  }
  return value;
}

BucketedKey KeyPolicy::Bucket(const AxisVector& axes, bool* clipped) const {
  if (clipped) *clipped = false;
  BucketedKey key;
  for (size_t i = 0; i < parts_.size(); ++i) {
    key.values[i] = BucketOf(parts_[i], axes[parts_[i].axis_index], clipped);
  }
  return key;
}

AxisVector KeyPolicy::Representative(const AxisVector& axes) const {
  AxisVector result = axes;
  for (const Part& part : parts_) {
    result[part.axis_index] = BucketOf(part, axes[part.axis_index], nullptr);
  }
  return result;
}

Axes KeyPolicy::Named(const BucketedKey& key) const {
  Axes named;
  for (size_t i = 0; i < parts_.size(); ++i) named[parts_[i].axis] = key.values[i];
  return named;
}

absl::StatusOr<BucketedKey> KeyPolicy::FromNamed(const Axes& named) const {
  BucketedKey key;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    auto found = named.find(part.axis);
    if (found == named.end()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("key '", AxesText(named), "' lacks axis '", part.axis, "'"),
                   StrCat("give every axis of the key policy \"", text_, "\""));
    }
    const int64_t bucket = BucketOf(part, found->second, nullptr);
    if (bucket != found->second) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("key '", AxesText(named), "': ", part.axis, "=", found->second,
                          " is no bucket of \"", text_, "\""),
                   StrCat("its bucket is ", part.axis, "=", bucket));
    }
    key.values[i] = bucket;
  }
  if (named.size() != parts_.size()) {
    std::vector<std::string_view> names;
    for (const Part& part : parts_) names.push_back(part.axis);
    for (const auto& [name, value] : named) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        return WithContext(StrCat("key policy \"", text_, "\""), UnknownName("axis", name, names));
      }
    }
  }
  return key;
}

}  // namespace kvr
