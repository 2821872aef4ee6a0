// SPDX-License-Identifier: Apache-2.0
//
// What somebody states by hand, held against the shapes that it is stated for: a quality that is
// consented to, tunables that are pinned. Who asks for what cannot be at any of them has mistyped;
// that nothing passes would be another answer.
//
// Threading: pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/axes.h"
#include "core/config.h"
#include "core/op.h"
#include "core/variant.h"

namespace kvr {

// Do these values meet the variant's constraints at one of `shapes` at least? Asked are constraints
// that name axes and stated tunables alone: no device and no other tunable makes up for them.
// kInvalidArgument: the constraint, and what of the first shape it names. `stated` are legal values
// of the variant's tunables; OK without any, or without shapes.
absl::Status CheckStated(const OpSpec& op, const Variant& variant, const Config& stated,
                         absl::Span<const AxisVector> shapes);

}  // namespace kvr
