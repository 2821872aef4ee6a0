// SPDX-License-Identifier: Apache-2.0
//
// The evaluator of manifest expressions: a postfix stack machine.
#include <algorithm>
#include <limits>

#include "core/expr_internal.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// The text itself, or the part of a long one around the column.
std::string Excerpt(std::string_view text, int column) {
  constexpr size_t kBefore = 40, kWidth = 56;
  if (text.size() <= 60) return Quoted(text);
  const size_t at = static_cast<size_t>(column) - 1;
  const size_t begin = at > kBefore ? at - kBefore : 0;
  const bool whole_end = begin + kWidth >= text.size();
  return StrCat(begin > 0 ? "..." : "", Quoted(text.substr(begin, kWidth)), whole_end ? "" : "...");
}

}  // namespace

absl::Status ExprError(absl::StatusCode code, std::string_view text, int column,
                       std::string_view what, std::string_view fix) {
  return Error(code, StrCat("expression ", Excerpt(text, column), ", column ", column, ": ", what),
               fix);
}

Expr::Expr() : Expr(Constant(0)) {}

Expr Expr::Constant(int64_t value) {
  Expr expr(Uninitialised{});
  expr.text_ = StrCat(value);
  expr.nodes_.push_back({Op::kConst, 1, value});
  return expr;
}

absl::StatusOr<int64_t> Expr::Eval(absl::Span<const int64_t> slots) const {
  // A node pushes at most one value, so this never overflows; it is not cleared on purpose.
  int64_t stack[kMaxExprNodes];
  int top = -1;
  auto fail = [this](const Node& node, std::string_view what, std::string_view fix) {
    return ExprError(absl::StatusCode::kOutOfRange, text_, node.column, what, fix);
  };
  auto overflow = [&fail](const Node& node, int64_t a, std::string_view op, int64_t b) {
    return fail(node, StrCat("overflow in ", a, " ", op, " ", b),
                "keep values within signed 64-bit integers");
  };
  const size_t size = nodes_.size();
  for (size_t pc = 0; pc < size; ++pc) {
    const Node& node = nodes_[pc];
    switch (node.op) {
      case Op::kConst:
        stack[++top] = node.value;
        continue;
      case Op::kSlot:
        if (static_cast<size_t>(node.value) >= slots.size()) {
          return ExprError(absl::StatusCode::kInternal, text_, node.column,
                           StrCat("slot ", node.value, " of ", slots.size(), " is read"),
                           "evaluate with the slots of the symbol table that parsed it");
        }
        stack[++top] = slots[static_cast<size_t>(node.value)];
        continue;
      case Op::kJump:
        pc = static_cast<size_t>(node.value) - 1;
        continue;
      case Op::kJumpIfZero:
        if (stack[top--] == 0) pc = static_cast<size_t>(node.value) - 1;
        continue;
      case Op::kNegate:
        if (__builtin_sub_overflow(int64_t{0}, stack[top], &stack[top])) {
          return overflow(node, 0, "-", std::numeric_limits<int64_t>::min());
        }
        continue;
      case Op::kNot:
        stack[top] = stack[top] == 0;
        continue;
      case Op::kPow2Ceil: {
        int64_t value = stack[top], power = 1;
        while (power < value) {
          if (power > std::numeric_limits<int64_t>::max() / 2) {
            return fail(node, StrCat("overflow in pow2ceil(", value, ")"),
                        "the largest power of two here is 4611686018427387904");
          }
          power *= 2;
        }
        stack[top] = power;
        continue;
      }
      default:
        break;
    }
    const int64_t b = stack[top--];
    const int64_t a = stack[top];
    int64_t& result = stack[top];
    switch (node.op) {
      case Op::kAdd:
        if (__builtin_add_overflow(a, b, &result)) return overflow(node, a, "+", b);
        break;
      case Op::kSubtract:
        if (__builtin_sub_overflow(a, b, &result)) return overflow(node, a, "-", b);
        break;
      case Op::kMultiply:
        if (__builtin_mul_overflow(a, b, &result)) return overflow(node, a, "*", b);
        break;
      case Op::kCeilDiv:
      case Op::kFloorDiv:
      case Op::kMod: {
        std::string_view name = node.op == Op::kMod       ? "mod"
                                : node.op == Op::kCeilDiv ? "ceildiv"
                                                          : "floordiv";
        if (b <= 0) {
          return fail(node,
                      StrCat(b == 0 ? "division by zero" : "division by a negative number", ": ",
                             name, "(", a, ", ", b, ")"),
                      "keep the divisor positive, as in max(1, b)");
        }
        int64_t remainder = a % b;
        if (remainder < 0) remainder += b;
        if (node.op == Op::kMod) {
          result = remainder;
        } else {
          int64_t floor = a / b - (a % b < 0);
          result = floor + (node.op == Op::kCeilDiv && remainder != 0);
        }
        break;
      }
      case Op::kMin:
        result = std::min(a, b);
        break;
      case Op::kMax:
        result = std::max(a, b);
        break;
      case Op::kEqual:
        result = a == b;
        break;
      case Op::kNotEqual:
        result = a != b;
        break;
      case Op::kLess:
        result = a < b;
        break;
      case Op::kLessEqual:
        result = a <= b;
        break;
      case Op::kGreater:
        result = a > b;
        break;
      case Op::kGreaterEqual:
        result = a >= b;
        break;
      case Op::kAnd:
        result = a != 0 && b != 0;
        break;
      case Op::kOr:
        result = a != 0 || b != 0;
        break;
      default:
        return fail(node, "unknown operation", "");
    }
  }
  return stack[0];
}

std::vector<int> Expr::UsedSlots() const {
  std::vector<int> used;
  for (const Node& node : nodes_)
    if (node.op == Op::kSlot) used.push_back(static_cast<int>(node.value));
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

}  // namespace kvr
