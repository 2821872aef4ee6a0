// SPDX-License-Identifier: Apache-2.0
//
// The generated assertions: each kernel of a plan takes exactly the parameters that the manifest
// passes. A tensor is `const T*` (input) or `T*` (output), a scalar its type by value, a workspace
// region `T*` or `const T*`, a value `int` or `long long` (`long` is as good: both are 64 bits
// here).
//
// Each assertion stands, by #line, at the parameter it is about in the author's source; where the
// source does not show it, at the kernel's name; failing that, at the manifest's [[kernel]].
//
// Threading: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"
#include "core/plan.h"
#include "core/variant.h"
#include "jit/unit.h"

namespace kvr {

// The parameter type that `arg` needs, in words of CUDA C++: "const __nv_bfloat16*". Of a workspace
// region the one without const, though either fits.
std::string ParameterType(const OpSpec& op, const ArgSpec& arg);

// Headers that declare the types which the plan's arguments need.
std::vector<std::string> TypeHeaders(const PlanProgram& plan);

// Appends the assertions' text to unit->text, and fills entries, entry_sites and assertions from
// the plan's kernels. unit->files must be set.
absl::Status AddSignatureChecks(const OpSpec& op, const Variant& variant, Unit* unit);

}  // namespace kvr
