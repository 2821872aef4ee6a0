// SPDX-License-Identifier: Apache-2.0
//
// Binaries of variants that are not compiled: a cubin that another compiler made, or nothing at all
// for a launch function. No compiler is needed, and the cache keeps none of them: the bundle is
// where they live.
//
// A cubin must be for the architecture that the manifest states it for (one for plain sm_90 also
// serves sm_90a, whose GPUs run it), have every kernel of the plan, and take parameters as many and
// as large as the manifest's arguments.
//
// Key of a cubin's binary: content, target and entries; of a launch function's: the variant's
// fingerprint and the target.
// Threading: pure functions.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/variant.h"

namespace kvr {

// Errors: kUnimplemented where the variant has no binary for `target`; kInvalidArgument for a fault
// in the cubin, which it names, or in what the manifest says of it, at its line.
absl::StatusOr<BinaryPtr> PrebuiltFor(const Variant& variant, std::string_view target);

}  // namespace kvr
