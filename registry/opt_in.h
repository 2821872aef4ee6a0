// SPDX-License-Identifier: Apache-2.0
//
// Consent to a variant whose results differ from the operation's. It names op, variant and a value
// for every quality tunable of it, and holds for these values alone: nothing is searched, and
// nothing that is selected, tuned or swapped puts others in their place.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/config.h"
#include "core/variant.h"
#include "registry/catalog.h"

namespace kvr {

struct ApproximateOptIn {
  std::string op, variant;
  Config quality;
};

// "moe_decode/oea{K0=4,P=1000}". Where `op` is given, the text may leave it out, and names no
// other. Whether such a variant exists, and what it wants, is CheckOptIn's.
absl::StatusOr<ApproximateOptIn> ParseOptIn(std::string_view text, std::string_view op = "");
std::string OptInText(const ApproximateOptIn& opt_in);
// The one that covers `config`: a value that it leaves out is the default.
ApproximateOptIn OptInFor(const Variant& variant, const Config& config);

// Each names an approximate variant, once, and a legal value for every quality tunable of it. What
// is wrong is said with the whole text to say instead.
absl::Status CheckOptIns(const Catalog& catalog, absl::Span<const ApproximateOptIn> opt_ins);

// Null: there is none for this variant.
const ApproximateOptIn* FindOptIn(absl::Span<const ApproximateOptIn> opt_ins,
                                  const Variant& variant);

// OK: the variant is exact, or an opt-in gives its quality tunables the values that `config` has.
// kFailedPrecondition: it must not be used with this config; the fix is the opt-in to state.
absl::Status CheckConsent(absl::Span<const ApproximateOptIn> opt_ins, const Variant& variant,
                          const Config& config);

}  // namespace kvr
