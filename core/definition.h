// SPDX-License-Identifier: Apache-2.0
//
// FlashInfer-Bench Definition JSON text -> OpSpec. The published files load as they are:
//
//   name, op_type, axes, inputs, outputs     required
//   description, tags, constraints           taken over
//   reference, init, check                   checked to be text; Python, which KVR does not run
//   axes:     {"type": "var"} or {"type": "const", "value": 8}, description. A const axis without
//             a value is read as var: the file leaves it to the caller.
//   tensors:  shape (axis names, or null: a scalar), dtype, description, optional, param.
//             dtype "unknown" sets TensorSpec::any_dtype. An output named like an input is that
//             input updated in place.
//   constraints over axes are core/expr.h's; those that read a tensor ("n == indptr[-1].item()")
//             are kept in OpSpec::data_constraints, unchecked.
//
// KVR's own additions go into one block that other readers skip:
//
//   "kvr": {"axis_defaults": {"num_tokens": 64}, "scalar_defaults": {"sm_scale": 0.0722},
//           "key_policy": "topk:pow2"}
//
// Everything else is an error: axis_defaults that break a constraint, unknown or duplicate keys,
// wrong types, shapes over unknown axes, more axes, tensors or dimensions than core/op.h and
// core/tensor.h allow. Errors name the file and the field ("inputs.q.dtype"), and the line and
// column where the text is no JSON.
//
// Threading: pure function.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/op.h"

namespace kvr {

// `file` is for errors only.
absl::StatusOr<OpSpec> ParseDefinition(std::string_view json,
                                       std::string_view file = "definition.json");

}  // namespace kvr
