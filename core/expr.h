// SPDX-License-Identifier: Apache-2.0
//
// The integer expressions of a manifest: checked 64-bit arithmetic over named values, parsed once
// into an immutable program. A bundle's only code on the CPU, so it is small and total: no loops,
// no calls but the listed ones, at most kMaxExprNodes nodes and kMaxExprDepth nesting.
//
//   a + b, a - b, a * b, -a            overflow is an error
//   ceildiv(a,b) floordiv(a,b) mod(a,b)   b > 0, else an error; floor semantics
//   min(a,b,...) max(a,b,...) pow2ceil(a)  pow2ceil(a) = smallest power of two >= max(a,1)
//   == != < <= > >=  and or not        give 0 or 1; `and`/`or` evaluate both sides
//   if(c, a, b)                        evaluates only the branch taken
//
// `/` and `%` are refused with the fix named. Errors carry the 1-based column in the text.
//
// Threading: immutable after Parse; Eval is const, allocates nothing unless it fails.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvr {

inline constexpr int kMaxExprNodes = 256;
inline constexpr int kMaxExprDepth = 32;

// Name -> slot in the flat array that Eval reads.
using SymbolTable = std::map<std::string, int, std::less<>>;

class Expr {
 public:
  Expr();  // the constant 0
  static Expr Constant(int64_t value);
  static absl::StatusOr<Expr> Parse(std::string_view text, const SymbolTable& symbols);

  absl::StatusOr<int64_t> Eval(absl::Span<const int64_t> slots) const;
  // The same for the launch path: false where Eval gives an error.
  bool TryEval(absl::Span<const int64_t> slots, int64_t* value) const {
    if (is_constant_) {
      *value = nodes_[0].value;
      return true;
    }
    Fault fault;
    return Run(slots, value, &fault);
  }

  const std::string& text() const { return text_; }
  std::vector<int> UsedSlots() const;  // sorted, unique
  bool IsConstant() const { return UsedSlots().empty(); }

  enum class Op : uint8_t;  // expr_internal.h

 private:
  enum class Right : uint8_t { kStack, kSlot, kConst };
  // Postfix, but that a binary node whose right operand is a name or a number holds it itself.
  struct Node {
    Op op;
    Right right;
    int column;
    int64_t value;  // a constant, a slot, or where a jump goes
  };
  struct Parser;
  friend class PlanCode;  // lowers nodes_
  struct Fault {          // what went wrong: a node and its operands
    const Node* node;
    int64_t a, b;
  };
  Expr(std::string text, std::vector<Node> nodes);
  static bool Binary(Op op, int64_t a, int64_t b, int64_t* result);
  static bool Unary(Op op, int64_t a, int64_t* result);
  bool Run(absl::Span<const int64_t> slots, int64_t* value, Fault* fault) const;
  absl::Status Explain(const Fault& fault, size_t slots) const;

  std::string text_;
  std::vector<Node> nodes_;
  size_t slot_count_ = 0;     // all used slots lie below
  bool is_constant_ = false;  // one constant
};

}  // namespace kvr
