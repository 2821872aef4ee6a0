// SPDX-License-Identifier: Apache-2.0
//
// What the parser (expr_parser.cc), the evaluator (expr.cc) and the lowering of expressions
// (plan_lowering.cc) share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
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

// False: overflow, or a divisor that is not positive. Inlined wherever the launch path passes.
[[gnu::always_inline]] inline bool Expr::Binary(Op op, int64_t a, int64_t b, int64_t* result) {
  switch (op) {
    case Op::kAdd:
      return !__builtin_add_overflow(a, b, result);
    case Op::kSubtract:
      return !__builtin_sub_overflow(a, b, result);
    case Op::kMultiply:
      return !__builtin_mul_overflow(a, b, result);
    case Op::kCeilDiv:
    case Op::kFloorDiv:
    case Op::kMod: {
      if (b <= 0) return false;
      int64_t quotient, remainder;
      if (static_cast<uint64_t>(a | b) >> 32 == 0) {  // the common case, several times as fast
        quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
        remainder = static_cast<uint32_t>(a) % static_cast<uint32_t>(b);
      } else {
        quotient = a / b;
        remainder = a % b;
        if (remainder < 0) {
          remainder += b;
          --quotient;
        }
      }
      *result = op == Op::kMod ? remainder : quotient + (op == Op::kCeilDiv && remainder != 0);
      return true;
    }
    case Op::kMin:
      *result = std::min(a, b);
      return true;
    case Op::kMax:
      *result = std::max(a, b);
      return true;
    case Op::kEqual:
      *result = a == b;
      return true;
    case Op::kNotEqual:
      *result = a != b;
      return true;
    case Op::kLess:
      *result = a < b;
      return true;
    case Op::kLessEqual:
      *result = a <= b;
      return true;
    case Op::kGreater:
      *result = a > b;
      return true;
    case Op::kGreaterEqual:
      *result = a >= b;
      return true;
    case Op::kAnd:
      *result = a != 0 && b != 0;
      return true;
    case Op::kOr:
      *result = a != 0 || b != 0;
      return true;
    default:
      return false;
  }
}

inline constexpr int64_t kLargestPow2 = int64_t{1} << 62;

// The same of kNegate, kNot and kPow2Ceil.
[[gnu::always_inline]] inline bool Expr::Unary(Op op, int64_t a, int64_t* result) {
  switch (op) {
    case Op::kNot:
      *result = a == 0;
      return true;
    case Op::kNegate:
      return !__builtin_sub_overflow(int64_t{0}, a, result);
    case Op::kPow2Ceil:
      if (a > kLargestPow2) return false;
      *result = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(a, 1))));
      return true;
    default:
      return false;
  }
}

// An error at the 1-based `column` of `text`, quoting the text or the part of it around there.
absl::Status ExprError(absl::StatusCode code, std::string_view text, int column,
                       std::string_view what, std::string_view fix);

}  // namespace kvr
