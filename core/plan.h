// SPDX-License-Identifier: Apache-2.0
//
// Launch plans. A PlanProgram is the parsed form of a manifest's [let], [[workspace]] and
// [[kernel]] tables; Evaluate turns it, for given axes, config and device, into a LaunchPlan: the
// sequence of kernels to launch and the workspace they need. An empty batch is a plan with no
// kernels: a kernel whose `when` is 0, or any of whose grid extents is 0, is left out. A program
// without kernels is a launch function's: its plans are the workspace alone.
//
// Slots (what expressions may name), in this order: the op's axes, the variant's tunables, the
// device's properties (kDeviceSymbols), the values of the plan function if there is one, then the
// [let] values in order, each seeing those before.
//
// Threading: PlanProgram is immutable. Evaluate allocates nothing unless it fails.
// Units: grid, block and cluster in blocks/threads; sizes in bytes. Workspace regions are aligned
// to kWorkspaceAlign.
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
#include "core/config.h"
#include "core/device_info.h"
#include "core/dtype.h"
#include "core/expr.h"
#include "core/op.h"

namespace kvr {

inline constexpr int kMaxKernels = 8;
inline constexpr int kMaxArgs = 32;
inline constexpr int kMaxRegions = 8;
inline constexpr int kMaxTensorMaps = 4;
inline constexpr int kMaxTensorMapRank = 5;
inline constexpr int kMaxSlots = 96;
inline constexpr int64_t kWorkspaceAlign = 256;

// "sms": multiprocessors; "smem_per_block": most dynamic shared memory of a block, bytes.
inline constexpr std::array<std::string_view, 2> kDeviceSymbols = {"sms", "smem_per_block"};

struct ArgSpec {
  enum class Kind : uint8_t {
    kTensor,     // pointer to tensor `index` of the op; const for inputs
    kScalar,     // rank-0 input `index`, by value
    kWorkspace,  // pointer to workspace region `index`
    kValue,      // `value`, as `dtype` (int32 or int64; checked to fit)
    kTensorMap,  // tensor map `index`, a CUtensorMap by value
  };
  Kind kind = Kind::kTensor;
  int index = 0;
  DType dtype = DType::kI32;  // element type of a tensor or region, type of a value or scalar
  Expr value;
  std::string text;  // as written in the manifest
};

struct RegionSpec {
  std::string name;
  DType dtype = DType::kF32;
  Expr elements;
  bool zeroed = false;
};

// A view of one of the op's tensors for the tensor memory accelerator (cuTensorMapEncodeTiled):
// row-major, outermost extent first, the innermost contiguous.
struct TensorMapSpec {
  std::string name;
  int tensor = 0;  // of the op
  DType dtype = DType::kF32;
  std::vector<Expr> shape;  // elements
  std::vector<Expr> box;    // elements of one copy; as many extents as the view has
  int swizzle = 0;          // 0, 32, 64 or 128 bytes
};

struct LaunchAttributes {
  bool cooperative = false;
  bool programmatic = false;  // programmatic dependent launch on the kernel before
  bool operator==(const LaunchAttributes&) const = default;
};

struct KernelSpec {
  std::string name;   // in reports
  std::string entry;  // C++ name expression, e.g. "mla_split<BLOCK_H, BLOCK_T>"
  std::array<Expr, 3> grid = Ones(), block = Ones(), cluster = Ones();
  Expr smem;  // dynamic shared memory, bytes
  Expr when = Expr::Constant(1);
  LaunchAttributes attributes;
  std::vector<ArgSpec> args;
  std::string file;  // where the manifest says this, for errors
  int line = 0;

  static std::array<Expr, 3> Ones() {  // what an extent left out means
    return {Expr::Constant(1), Expr::Constant(1), Expr::Constant(1)};
  }
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
  int64_t volume() const { return int64_t{x} * y * z; }
};

struct KernelLaunch {
  int kernel = 0;  // index into PlanProgram::kernels
  Dim3 grid, block, cluster;
  int64_t smem = 0;
  std::array<int64_t, kMaxArgs> values{};  // of kValue arguments, by argument position
};

struct TensorMapLaunch {
  DType dtype = DType::kF32;
  int rank = 0;
  int swizzle = 0;
  std::array<int64_t, kMaxTensorMapRank> shape{}, box{};
};

struct LaunchPlan {
  int kernel_count = 0;
  std::array<KernelLaunch, kMaxKernels> kernels;
  int64_t workspace_bytes = 0;
  std::array<int64_t, kMaxRegions> region_offset{};
  std::array<int64_t, kMaxRegions> region_bytes{};
  std::array<TensorMapLaunch, kMaxTensorMaps> tensor_maps;  // by PlanProgram::tensor_maps

  absl::Span<const KernelLaunch> launches() const {
    return {kernels.data(), static_cast<size_t>(kernel_count)};
  }
};

// What a compiled plugin's plan function computes for a manifest's expressions to use.
// Threading: concurrent calls. Neither locks nor allocates unless it fails.
class PlanFunction {
 public:
  virtual ~PlanFunction() = default;
  virtual absl::Status Values(absl::Span<const int64_t> axes,
                              absl::Span<const int64_t> tunable_values, const DeviceInfo& device,
                              absl::Span<int64_t> values) const = 0;
};

struct PlanProgram {
  struct Let {
    std::string name;
    Expr value;
  };
  std::vector<std::string> function_values;      // what `function` gives, in order
  std::shared_ptr<const PlanFunction> function;  // null: no such values
  std::vector<Let> lets;
  std::vector<RegionSpec> regions;
  std::vector<TensorMapSpec> tensor_maps;
  std::vector<KernelSpec> kernels;
  std::vector<Expr> constraints;  // each non-zero, or the config does not fit these axes

  int axis_count = 0, tunable_count = 0;  // fix the slot layout

  // Slot names of a variant: axes, tunables, device symbols, function values, lets.
  static SymbolTable Symbols(const OpSpec& op, absl::Span<const Tunable> tunables,
                             absl::Span<const std::string> function_values,
                             absl::Span<const Let> lets);

  // `tunable_values` in tunable order. Errors name the expression and its column, or the
  // constraint that is not met (kFailedPrecondition), or the launch limit that is exceeded.
  absl::Status Evaluate(const AxisVector& axes, absl::Span<const int64_t> tunable_values,
                        const DeviceInfo& device, LaunchPlan* plan) const;
  // Is it within kMaxSlots and so on, and are there as many tunables?
  absl::Status CheckSizes(size_t tunables) const;
};

}  // namespace kvr
