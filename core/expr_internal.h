// SPDX-License-Identifier: Apache-2.0
//
// What the parser (expr_parser.cc) and the evaluator (expr.cc) of expressions share.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "core/expr.h"

namespace kvr {

enum class Expr::Op : uint8_t {
  kConst,
  kSlot,
  kNegate,
  kNot,
  kPow2Ceil,
  kAdd,
  kSubtract,
  kMultiply,
  kCeilDiv,
  kFloorDiv,
  kMod,
  kMin,
  kMax,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
  kJumpIfZero,  // pops; `value` is the target
  kJump,
};

// An error at the 1-based `column` of `text`, quoting the text or the part of it around there.
absl::Status ExprError(absl::StatusCode code, std::string_view text, int column,
                       std::string_view what, std::string_view fix);

}  // namespace kvr
