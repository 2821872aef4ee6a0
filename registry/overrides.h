// SPDX-License-Identifier: Apache-2.0
//
// What a person forces by hand, and which value wins:
//
//   variant    --variant  >  KVR_FORCE_<OP>=NAME    >  selection  >  baseline
//   tunables   --set      >  KVR_<OP>_<TUNABLE>=N   >  selection  >  default
//
// <OP> is the op's name in capitals. The selection's config counts only for its own variant.
// A choice that an override touched is marked `overridden` and never stored as a selection.
// Quality tunables take their value from --set, the environment or the caller's opt-in only
// (registry/opt_in.h). A selection of an approximate variant serves where an opt-in gives the very
// values it was selected with; else the baseline does. Where there is an opt-in, what is set by
// hand must agree with it: a forced variant is an error else, a selected one gives way to the
// baseline. Without one, forcing the variant and every quality
// tunable by hand is an opt-in, too. Unknown variants, tunables and illegal values are errors; so
// is a KVR_<OP>_… variable that names no tunable of any variant of that op.
//
// Threading: Overrides is a value, read once at start-up; Choose is pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/opt_in.h"

namespace kvr {

// "mla_sparse_decode" -> "MLA_SPARSE_DECODE"
std::string EnvironmentName(std::string_view op);

class Overrides {
 public:
  struct Value {
    int64_t value = 0;
    std::string source;  // "--set" or the variable's name, for reports
  };
  struct ForOp {
    std::string variant;         // empty: not forced
    std::string variant_source;  // "--variant" or the variable's name
    std::map<std::string, Value> tunables;
  };

  Overrides() = default;
  // Every KVR_FORCE_* and KVR_<OP>_* of `environment` ("NAME=value" entries, as environ has them).
  static absl::StatusOr<Overrides> FromEnvironment(const Catalog& catalog,
                                                   const std::vector<std::string>& environment);
  static absl::StatusOr<Overrides> FromEnvironment(const Catalog& catalog);  // the process's own

  // The caller's --variant and --set, above the environment.
  absl::Status Force(const Catalog& catalog, std::string_view op, std::string_view variant);
  absl::Status Set(const Catalog& catalog, std::string_view op, std::string_view tunable,
                   int64_t value);

  const ForOp* Find(std::string_view op) const;
  // The config values that bind `variant` of `op`, wherever they come from; unknown ones skipped.
  Config FixedFor(const Variant& variant) const;

 private:
  std::map<std::string, ForOp, std::less<>> ops_;
};

// What serves a key.
struct Choice {
  Selection selection;
  bool from_generation = false;  // false: the baseline, or forced
  std::string why;               // one line: "selected", "baseline: no selection for topk=512", ...
  absl::Status refused;          // of a selection that has no consent: the baseline serves instead
};

// `selected` is the generation's answer for the key, or null. Errors: an override that does not fit
// the variant, a forced approximate variant without consent (kInvalidArgument), no baseline.
absl::StatusOr<Choice> Choose(const Catalog::Op& op, const Selection* selected,
                              const Overrides& overrides,
                              const std::vector<ApproximateOptIn>& opt_in);

}  // namespace kvr
