// SPDX-License-Identifier: Apache-2.0
//
// `extends`: what a bundle leaves out is taken from the variant it extends.
//
//   semantics, targets, host_skip_reason,     the child's statement replaces the parent's
//   constraints, key_policy
//   [tunables.X]                              replaces X as a whole, at its place; new ones follow
//   [let]                                     a value replaces the one of that name at its place; a
//                                             new one goes before the replaced one that follows it
//                                             in the child, or else to the end
//   [[workspace]], [[tensor_map]], [[kernel]] merged key by key with the one of that name; new ones
//                                             follow
//   sources, headers, cubins                  a file replaces the one of that name, or target, at
//                                             its place; new ones follow
//   sources / cubins / launch_function        one of them drops the parent's others; cubins also
//                                             the parent's targets, a launch function its kernels
//                                             and tensor maps
//   plan_values                               replaced as a whole, with the function that gives
//                                             them
//   reference_function                        replaced; semantics = "exact" drops the parent's
//   op, name, version, baseline, description  never inherited
//
// An inherited function stays that of the parent's library and variant. It is called with the axes
// and tensors of their op by position, so a child of another op inherits none.
// An inherited tunable or tensor map that the result uses nowhere is dropped by plugins/admit.h.
//
// Threading: pure.
#pragma once

#include "absl/status/statusor.h"
#include "plugins/manifest.h"

namespace kvr::bundle {

// `parent` is complete (itself merged). Errors: a file that one has as source, the other as header;
// a function of another op that the child keeps; counts over the limits.
absl::StatusOr<Manifest> Extend(const Manifest& parent, const Manifest& child);

}  // namespace kvr::bundle
