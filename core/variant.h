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

namespace kvr {

enum class Semantics : uint8_t { kExact, kApproximate };

struct SourceFile {
  std::string name;  // as the bundle names it, relative: "split.cuh"
  std::string content;
  std::string path;  // where it was read, for diagnostics only; never part of a key
};

struct Variant {
  std::string op;
  std::string name;
  std::string version;
  std::string description;
  std::string extends;  // "baseline" or empty, for reports: it is already merged
  Semantics semantics = Semantics::kExact;
  bool is_baseline = false;
  std::string plugin;  // name of the bundle or library that brought it
  std::string directory;

  std::vector<Tunable> tunables;
  std::string key_policy;            // empty: the op's
  std::vector<std::string> targets;  // patterns "sm_80+", "sm_90a", "host"
  std::string host_skip_reason;      // why "host" is not among them
  std::vector<SourceFile> sources;   // the unit's sources in order; headers they include by name
  std::vector<SourceFile> headers;
  PlanProgram plan;
  Fingerprint fingerprint;  // of all of the above that can change a result

  // Does the variant run on `target`? If not, the reason.
  bool Supports(std::string_view target, std::string* reason = nullptr) const;
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
