// SPDX-License-Identifier: Apache-2.0
//
// The launch plan of a manifest: expressions parsed against the op's axes, the tunables, the
// device and the lets before; arguments resolved to the op's tensors, workspace and values.
//
// Threading: pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/op.h"
#include "core/plan.h"
#include "plugins/manifest.h"

namespace kvr::bundle {

// `manifest` is complete. `tunables` are the admitted ones, which fix the slots.
absl::StatusOr<PlanProgram> BuildPlan(const Manifest& manifest, const OpSpec& op,
                                      absl::Span<const Tunable> tunables);

}  // namespace kvr::bundle
