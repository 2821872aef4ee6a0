// SPDX-License-Identifier: Apache-2.0
//
// A variant as admitted: everything a bundle states, with what it extends merged in, parsed and
// checked against its op. Built by plugins/, rendered by jit/, planned and launched by registry/.
//
// Ownership: immutable after admission, shared; a catalog entry, a selection and a launch handle
// may each hold it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/config.h"
#include "core/fingerprint.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/tensor.h"

namespace kvr {

enum class Semantics : uint8_t { kExact, kApproximate };

struct SourceFile {
  std::string name;  // as the bundle names it, relative: "split.cuh"
  std::string content;
  std::string path;  // where it was read, for diagnostics only; never part of a key
};

// A cubin that another compiler made, for one exact target.
struct PrebuiltBinary {
  std::string target;
  SourceFile file;  // content: the ELF
};

// What one launch function call gets; see kvr_launch_request in sdk/kvr_plugin.h.
struct FunctionLaunch {
  absl::Span<const int64_t> axes;
  absl::Span<const TensorView> tensors;
  absl::Span<void* const> workspace;
  absl::Span<const int64_t> workspace_bytes;
  void* stream = nullptr;
};

// One config's launch function on one device, opened. Threading and stream order: kvr_plugin.h.
class LaunchFunction {
 public:
  virtual ~LaunchFunction() = default;
  virtual absl::Status Launch(const FunctionLaunch& launch) const = 0;
};

// The compiled half of a variant that a shared library brings.
class VariantCode : public PlanFunction {
 public:
  // Loads the library unless it is loaded, as far as planning and launching need it. Whoever must
  // not load later calls it first; everything else here does by itself.
  virtual absl::Status Load() const = 0;
  // The device's context is current. What it returns holds the library.
  virtual absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(
      const DeviceInfo& device, absl::Span<const int64_t> tunable_values) const = 0;
  // What an approximate variant computes with its quality tunables' values, in float64 on the host.
  // As Operation::Reference. kUnimplemented where there is none.
  virtual absl::StatusOr<std::vector<ReferenceOutput>> Reference(
      const AxisVector& axes, absl::Span<const int64_t> tunable_values,
      absl::Span<const TensorView> inputs, int threads) const;
};

struct Variant {
  std::string op;
  std::string name;
  std::string version;
  std::string description;
  std::string extends;  // "baseline", "other_op/baseline" or empty: it is already merged
  Semantics semantics = Semantics::kExact;
  bool is_baseline = false;
  std::string plugin;  // name of the bundle or library that brought it
  std::string directory;

  std::vector<Tunable> tunables;
  std::string key_policy;            // empty: the op's
  std::vector<std::string> targets;  // patterns "sm_80+", "sm_90a", "host"
  std::string host_skip_reason;      // why "host" is not among them
  // One of: sources that are compiled; cubins; the library's launch function, whose plan has
  // workspace and constraints but no kernels.
  std::vector<SourceFile> sources;  // the unit's sources in order; headers they include by name
  std::vector<SourceFile> headers;
  std::vector<PrebuiltBinary> cubins;
  bool has_launch_function = false;
  bool has_reference_function = false;      // every approximate variant has one: what it is held to
  std::shared_ptr<const VariantCode> code;  // null: the variant is data alone
  PlanProgram plan;
  Fingerprint fingerprint;  // of all of the above that can change a result

  bool is_compiled() const { return cubins.empty() && !has_launch_function; }  // from sources
  // Does the variant run on `target`? If not, the reason.
  bool Supports(std::string_view target, std::string* reason = nullptr) const;
  const PrebuiltBinary* Cubin(std::string_view target) const;      // null: none for it
  std::vector<int64_t> TunableValues(const Config& config) const;  // in tunable order
};

using VariantPtr = std::shared_ptr<const Variant>;

// "sm_90a" matches itself; "sm_80+" matches every sm_NN with NN >= 80, suffixed or not.
bool TargetMatches(std::string_view pattern, std::string_view target);
// "sm_80", ..., "host": every target that KVR compiles for.
absl::Span<const std::string_view> KnownTargets();
// Known exact targets only ("sm_90" is refused with "sm_90a" as the fix).
absl::StatusOr<std::vector<std::string>> ParseTargets(std::string_view comma_separated);

}  // namespace kvr
