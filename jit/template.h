// SPDX-License-Identifier: Apache-2.0
//
// Variant + config → translation unit text. In this order:
//
//   1. the angled includes at the head of the sources, and those the tensors' types need
//   2. the prologue: `inline constexpr int NAME = value;` for each compile- or quality-scope
//   tunable
//   3. the variant's sources, each included under its bundle-relative name
//   4. assertions: each kernel of the plan takes exactly the parameters that the manifest passes,
//      reported at the parameter's own line
//
// {{NAME}} in a source or header becomes the tunable's value, for places that constants cannot
// reach (#if, pragmas, attributes). A lower-case {{x}} outside a directive is C++ and stays.
// Launch-scope tunables do not enter the unit: changing them compiles nothing.
//
// Threading: pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/config.h"
#include "core/op.h"
#include "core/variant.h"
#include "jit/unit.h"

namespace kvr {

// The unit with the bundle's own files as headers; includes are not resolved yet. `config` must
// name every tunable of the variant that is not launch-scope; others are ignored.
// Errors (kInvalidArgument): a tunable without a value; a placeholder that names none that enters
// the source, at file:line:column with a caret; a file that names what lies outside the bundle
// and the header roots (CheckFileReferences), likewise; a kernel of the plan whose argument is out
// of range.
absl::StatusOr<Unit> RenderUnit(const OpSpec& op, const Variant& variant, const Config& config);

}  // namespace kvr
