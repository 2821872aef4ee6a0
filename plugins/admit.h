// SPDX-License-Identifier: Apache-2.0
//
// A complete manifest (nothing left to inherit) checked against its op and turned into a Variant.
//
// Threading: pure; the files' contents are already in the manifest.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "core/variant.h"
#include "plugins/manifest.h"

namespace kvr::bundle {

absl::StatusOr<Variant> Admit(Manifest manifest, const OpSpec& op);

// Hash of what decides the results of a config: op, semantics, tunable names and scopes, sources,
// headers, cubins, plan, and the whole library where it has a function (`code`, null ones are left
// out), the one that says what is right included. Not of names people read, nor of paths, nor of
// which values a tunable may take, so that editing that list keeps every verdict already paid for.
Fingerprint FingerprintVariant(const Variant& variant, absl::Span<const CodeEntry* const> code);

}  // namespace kvr::bundle
