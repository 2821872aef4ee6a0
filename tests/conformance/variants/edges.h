// SPDX-License-Identifier: Apache-2.0
//
// The shapes at which implementations break, from what an op and a variant say of themselves: its
// axes, constraints and key policy, its tunables' values. Nothing here knows an op by name, but for
// AwkwardShapes.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/config.h"
#include "core/key_policy.h"
#include "core/op.h"
#include "core/variant.h"

namespace kvr {

// Do the op's constraints allow `axes`, and can tensors of that size exist?
bool IsLegal(const OpSpec& op, const AxisVector& axes);

// A small shape: every axis that is not const at 3, or at what is nearest to it and legal.
AxisVector SmallShape(const OpSpec& op);

// SmallShape with one axis at a time at 0, 1, 2, primes, and at each bucket of `policy` and one
// beside it, up to `largest`; what is not legal is left out. SmallShape itself comes first.
std::vector<AxisVector> EdgeShapes(const OpSpec& op, const KeyPolicy& policy, int64_t largest);
// The same with each of `tiles` and one beside it, and one shape of different primes.
std::vector<AxisVector> TileShapes(const OpSpec& op, absl::Span<const int64_t> tiles,
                                   int64_t largest);
// Those that edges.cc lists for the op.
std::vector<AxisVector> AwkwardShapes(const OpSpec& op);

// SmallShape with one axis at 0, where that empties every output.
std::vector<AxisVector> EmptyShapes(const OpSpec& op);

// Each axis, each pair of axes, and all from each axis on, as large as `allowed` (beside being
// legal), and the powers of two where 31, 32 and so on bits end, allowed or not; the other axes
// small, then at their defaults.
std::vector<AxisVector> LargestShapes(const OpSpec& op,
                                      const std::function<bool(const AxisVector&)>& allowed);

// The default, then every other value of each tunable once, the others at their defaults. Of one of
// scope quality the first and the last value alone: it may have many, and each is compiled.
std::vector<Config> ConfigsToTry(absl::Span<const Tunable> tunables);

std::string ShapeText(const OpSpec& op, const AxisVector& axes);  // "num_tokens=3,topk=17"

}  // namespace kvr
