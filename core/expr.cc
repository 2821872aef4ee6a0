// SPDX-License-Identifier: Apache-2.0
//
// The evaluator of manifest expressions: a postfix stack machine.
#include <algorithm>

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

Expr::Expr(std::string text, std::vector<Node> nodes)
    : text_(std::move(text)),
      nodes_(std::move(nodes)),
      is_constant_(nodes_.size() == 1 && nodes_[0].op == Op::kConst) {
  const std::vector<int> used = UsedSlots();
  if (!used.empty()) slot_count_ = static_cast<size_t>(used.back()) + 1;
}

Expr Expr::Constant(int64_t value) {
  return Expr(StrCat(value), {{Op::kConst, Right::kStack, 1, value}});
}

absl::StatusOr<int64_t> Expr::Eval(absl::Span<const int64_t> slots) const {
  int64_t value;
  Fault fault;
  if (Run(slots, &value, &fault)) return value;
  return Explain(fault, slots.size());
}

// Every launch passes here: the topmost value lives in a register, and errors are made elsewhere.
bool Expr::Run(absl::Span<const int64_t> slots, int64_t* value, Fault* fault) const {
  if (slots.size() < slot_count_) {
    *fault = {nullptr, 0, 0};
    return false;
  }
  // A node pushes at most one value, so this never overflows; it is not cleared on purpose.
  int64_t stack[kMaxExprNodes];
  int64_t* below = stack;
  int64_t top = 0;
  const Node* const begin = nodes_.data();
  const Node* const end = begin + nodes_.size();
  for (const Node* node = begin; node != end;) {
    int64_t a, b;
    switch (node->op) {
      case Op::kConst:
        *below++ = top;
        top = node->value;
        break;
      case Op::kSlot:
        *below++ = top;
        top = slots[static_cast<size_t>(node->value)];
        break;
      case Op::kJump:
        node = begin + node->value;
        continue;
      case Op::kJumpIfZero:
        node = top == 0 ? begin + node->value : node + 1;
        top = *--below;
        continue;
      case Op::kNot:
      case Op::kNegate:
      case Op::kPow2Ceil:
        if (!Unary(node->op, top, &top)) {
          *fault = {node, node->op == Op::kNegate ? 0 : top, top};
          return false;
        }
        break;
      default:
        if (node->right == Right::kStack) {
          b = top;
          a = *--below;
        } else {
          b = node->right == Right::kSlot ? slots[static_cast<size_t>(node->value)] : node->value;
          a = top;
        }
        if (!Binary(node->op, a, b, &top)) {
          *fault = {node, a, b};
          return false;
        }
    }
    ++node;
  }
  *value = top;
  return true;
}

absl::Status Expr::Explain(const Fault& fault, size_t slots) const {
  if (!fault.node) {
    return ExprError(absl::StatusCode::kInternal, text_, 1,
                     StrCat("slot ", slot_count_ - 1, " of ", slots, " is read"),
                     "evaluate with the slots of the symbol table that parsed it");
  }
  const Node& node = *fault.node;
  auto fail = [&](std::string_view what, std::string_view fix) {
    return ExprError(absl::StatusCode::kOutOfRange, text_, node.column, what, fix);
  };
  auto overflow = [&](std::string_view op) {
    return fail(StrCat("overflow in ", fault.a, " ", op, " ", fault.b),
                "keep values within signed 64-bit integers");
  };
  auto division = [&](std::string_view name) {
    return fail(StrCat(fault.b == 0 ? "division by zero" : "division by a negative number", ": ",
                       name, "(", fault.a, ", ", fault.b, ")"),
                "keep the divisor positive, as in max(1, b)");
  };
  switch (node.op) {
    case Op::kPow2Ceil:
      return fail(StrCat("overflow in pow2ceil(", fault.a, ")"),
                  StrCat("the largest power of two here is ", kLargestPow2));
    case Op::kCeilDiv:
      return division("ceildiv");
    case Op::kFloorDiv:
      return division("floordiv");
    case Op::kMod:
      return division("mod");
    case Op::kAdd:
      return overflow("+");
    case Op::kMultiply:
      return overflow("*");
    default:
      return overflow("-");
  }
}

std::vector<int> Expr::UsedSlots() const {
  std::vector<int> used;
  for (const Node& node : nodes_)
    if (node.op == Op::kSlot || node.right == Right::kSlot) {
      used.push_back(static_cast<int>(node.value));
    }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

}  // namespace kvr
