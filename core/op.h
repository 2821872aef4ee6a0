// SPDX-License-Identifier: Apache-2.0
//
// An operation: the contract that every variant of it meets. Field names follow the
// FlashInfer-Bench Definition (axes, inputs, outputs, constraints, op_type, tags), whose JSON files
// load as they are (core/definition.h); KVR adds a default for every axis, tolerances, a reference,
// an input generator and a default key policy.
//
// Threading: an Operation is immutable; all its functions may be called concurrently.
// Memory: Generate and Reference read and write *host* memory only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/axes.h"
#include "core/dtype.h"
#include "core/tensor.h"

namespace kvr {

inline constexpr int kMaxAxes = 16;
inline constexpr int kMaxTensors = 24;  // inputs + outputs of one op

struct AxisSpec {
  std::string name;
  bool is_const = false;      // value fixed by the op
  int64_t value = 0;          // of a const axis
  int64_t default_value = 1;  // what the generator takes when the caller leaves the axis out
  std::string description;
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  bool is_scalar = false;  // Definition: shape null; passed by value
  bool optional = false;
  std::vector<int> axes;      // shape: indices into OpSpec::axes
  double scalar_default = 0;  // of a scalar input
  std::string description;
  bool any_dtype = false;  // dtype "unknown" of a Definition: the caller's tensor decides
  // An attribute: an integer scalar that bears the name of an axis which no tensor has. Its value
  // is that axis's. -1: it is none.
  int attribute = -1;
};

struct OpSpec {
  std::string name;
  std::string op_type;
  std::string description;
  std::vector<std::string> tags;
  std::vector<AxisSpec> axes;      // order fixes AxisVector
  std::vector<TensorSpec> inputs;  // order fixes the tensor order of Launch: inputs, outputs
  std::vector<TensorSpec> outputs;
  std::vector<std::string> constraints;  // core/expr.h over axis names; each must give non-zero
  std::string key_policy;                // default key policy, core/key_policy.h
  // Constraints of a Definition that speak of tensor contents ("n == indptr[-1].item()"): kept for
  // reports, not checked.
  std::vector<std::string> data_constraints;

  int AxisIndex(std::string_view axis) const;  // -1: no such axis
  // Position in [inputs..., outputs...]; -1: no such tensor. An output may bear an input's name
  // (updated in place); the input is found then.
  int TensorIndex(std::string_view tensor) const;
  const TensorSpec& tensor(int index) const;
  // Finds the attributes, once all tensors and axes are there: their default is the axis's.
  void LinkAttributes();
  int tensor_count() const { return static_cast<int>(inputs.size() + outputs.size()); }
};

// Axis values in OpSpec::axes order.
using AxisVector = std::array<int64_t, kMaxAxes>;

// Names checked against the op, const axes filled in, missing ones defaulted, constraints checked.
// Errors: unknown axis (lists the op's axes, the nearest first), const axis overridden, negative
// value, constraint not met (quotes it).
absl::StatusOr<AxisVector> ResolveAxes(const OpSpec& op, const Axes& given);
Axes NamedAxes(const OpSpec& op, const AxisVector& axes);

// The shape of each tensor, [inputs..., outputs...], data pointers null.
std::vector<TensorView> TensorShapes(const OpSpec& op, const AxisVector& axes);

// The other direction, and the launch path's first step: axes read off the tensors; dtype, rank
// and every repeated axis are checked. An optional tensor is absent when its data is null; an axis
// that only absent tensors carry is 0, one that no tensor carries takes the value of the attribute
// of its name, else its default. Constraints are the plan's business, not checked here. No
// allocation unless it fails.
absl::Status AxesFromTensors(const OpSpec& op, absl::Span<const TensorView> tensors,
                             AxisVector* axes);
// The value of an attribute, `tensor` being the caller's scalar; null data: the axis's default.
int64_t AttributeValue(const OpSpec& op, const TensorSpec& spec, const TensorView& tensor);

// What a correct result may be. One per output tensor.
struct ReferenceOutput {
  std::vector<double> expected;
  std::vector<double> bound;  // |out - expected| <= bound, element by element; NaN never passes,
                              // an infinite `expected` must be met exactly
  double cosine_limit = 0;    // 1 - 2*sum(xy)/sum(x^2+y^2) <= limit; 0: not checked
};

// One figure that says how far an approximate result is from the exact one: "mass_kept" 0.98.
struct QualityMeasure {
  std::string name;
  double value = 0;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual const OpSpec& spec() const = 0;

  // Whose code it is, for messages: "plugin 'my-kernels' (/p/libx.so)"; empty: the caller's own.
  virtual std::string Origin() const { return ""; }
  // Loads that code unless it is loaded; everything below does so by itself.
  virtual absl::Status Load() const { return absl::OkStatus(); }

  // Fills every input, deterministically from `seed`. `inputs` have the shapes of TensorShapes.
  virtual absl::Status Generate(const AxisVector& axes, uint64_t seed,
                                absl::Span<const TensorView> inputs) const = 0;

  // The float64 reference, on `threads` threads.
  virtual absl::StatusOr<std::vector<ReferenceOutput>> Reference(
      const AxisVector& axes, absl::Span<const TensorView> inputs, int threads) const = 0;

  // How far `outputs`, as a kernel wrote them, are from `exact`, which Reference gave, in the op's
  // own terms; empty: it has none.
  virtual absl::StatusOr<std::vector<QualityMeasure>> Quality(
      const AxisVector& /*axes*/, absl::Span<const TensorView> /*inputs*/,
      absl::Span<const TensorView> /*outputs*/, absl::Span<const ReferenceOutput> /*exact*/) const {
    return std::vector<QualityMeasure>();
  }

  // The least time's numerator: bytes that any implementation must move (each distinct input byte
  // read once, outputs written once).
  virtual int64_t MinimumBytes(const AxisVector& axes) const = 0;
};

}  // namespace kvr
