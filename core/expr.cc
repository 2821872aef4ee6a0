// SPDX-License-Identifier: Apache-2.0
//
// Parser (recursive descent, depth-limited) and evaluator (a postfix stack machine) of manifest
// expressions.
#include "core/expr.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

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

namespace {

absl::Status At(absl::StatusCode code, std::string_view text, int column, std::string_view what,
                std::string_view fix) {
  return Error(code, StrCat("expression ", Quoted(text), ", column ", column, ": ", what), fix);
}

constexpr std::string_view kFunctions[] = {"ceildiv", "floordiv", "mod", "min",
                                           "max",     "pow2ceil", "if"};

}  // namespace

struct Expr::Parser {
  std::string_view text;
  const SymbolTable& symbols;
  std::vector<Node> nodes;
  size_t at = 0;
  int depth = 0;

  int Column() const { return static_cast<int>(at) + 1; }

  absl::Status Fail(int column, std::string_view what, std::string_view fix) const {
    return At(absl::StatusCode::kInvalidArgument, text, column, what, fix);
  }

  absl::Status Emit(Op op, int column, int64_t value = 0) {
    if (nodes.size() >= static_cast<size_t>(kMaxExprNodes)) {
      return Fail(column, StrCat("more than ", kMaxExprNodes, " operations"),
                  "split the expression over several [let] values");
    }
    nodes.push_back({op, column, value});
    return absl::OkStatus();
  }

  void SkipBlanks() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  }

  bool Take(std::string_view symbol) {
    SkipBlanks();
    if (text.substr(at, symbol.size()) != symbol) return false;
    at += symbol.size();
    return true;
  }

  // The identifier that starts here, not consumed; empty if none does.
  std::string_view PeekWord() {
    SkipBlanks();
    size_t end = at;
    while (end < text.size() &&
           (text[end] == '_' || absl::ascii_isalnum(static_cast<unsigned char>(text[end])))) {
      ++end;
    }
    std::string_view word = text.substr(at, end - at);
    return IsIdentifier(word) ? word : std::string_view();
  }

  bool TakeWord(std::string_view word) {
    if (PeekWord() != word) return false;
    at += word.size();
    return true;
  }

  absl::Status ParseAll() {
    KVR_RETURN_IF_ERROR(ParseOr());
    SkipBlanks();
    if (at == text.size()) return absl::OkStatus();
    return Unexpected("the end or an operator");
  }

  // Says what stands here, and knows what people write by habit from other languages.
  absl::Status Unexpected(std::string_view wanted) {
    static constexpr std::pair<std::string_view, std::string_view> kHabits[] = {
        {"//", "write floordiv(a, b)"},
        {"/", "write floordiv(a, b) or ceildiv(a, b): '/' does not say which way it rounds"},
        {"%", "write mod(a, b)"},
        {"**", "write the product out: there is no power operator"},
        {"&&", "write 'and'"},
        {"||", "write 'or'"},
        {"!", "write 'not', or '!=' for unequal"},
        {"=", "write '==' to compare"},
        {"?", "write if(condition, a, b)"},
        {"<<", "write a product with the power of two"},
        {">>", "write floordiv(a, 2) and so on"},
        {".", "numbers are integers"},
        {"[", "expressions read axes, tunables and [let] values, not tensors"},
    };
    SkipBlanks();
    int column = Column();
    if (at >= text.size()) {
      return Fail(column, "the expression ends too early", StrCat("here goes ", wanted));
    }
    std::string_view rest = text.substr(at);
    for (const auto& [habit, fix] : kHabits) {
      if (rest.starts_with(habit)) {
        return Fail(column, StrCat("'", habit, "' is no operator here"), fix);
      }
    }
    std::string_view word = PeekWord();
    return Fail(column, StrCat("unexpected ", Quoted(word.empty() ? rest.substr(0, 1) : word)),
                StrCat("here goes ", wanted));
  }

  struct Nested {
    explicit Nested(int* d) : depth(d) { ++*depth; }
    ~Nested() { --*depth; }
    int* depth;
  };

  absl::Status CheckDepth() const {
    if (depth <= kMaxExprDepth) return absl::OkStatus();
    return Fail(Column(), StrCat("nested more than ", kMaxExprDepth, " deep"),
                "split the expression over several [let] values");
  }

  absl::Status ParseOr() {
    KVR_RETURN_IF_ERROR(ParseAnd());
    for (;;) {
      SkipBlanks();
      int column = Column();
      if (!TakeWord("or")) return absl::OkStatus();
      KVR_RETURN_IF_ERROR(ParseAnd());
      KVR_RETURN_IF_ERROR(Emit(Op::kOr, column));
    }
  }

  absl::Status ParseAnd() {
    KVR_RETURN_IF_ERROR(ParseNot());
    for (;;) {
      SkipBlanks();
      int column = Column();
      if (!TakeWord("and")) return absl::OkStatus();
      KVR_RETURN_IF_ERROR(ParseNot());
      KVR_RETURN_IF_ERROR(Emit(Op::kAnd, column));
    }
  }

  absl::Status ParseNot() {
    SkipBlanks();
    int column = Column();
    if (!TakeWord("not")) return ParseComparison();
    Nested nested(&depth);
    KVR_RETURN_IF_ERROR(CheckDepth());
    KVR_RETURN_IF_ERROR(ParseNot());
    return Emit(Op::kNot, column);
  }

  bool TakeComparison(Op* op) {
    static constexpr std::pair<std::string_view, Op> kOps[] = {
        {"==", Op::kEqual},        {"!=", Op::kNotEqual}, {"<=", Op::kLessEqual},
        {">=", Op::kGreaterEqual}, {"<", Op::kLess},      {">", Op::kGreater}};
    SkipBlanks();
    std::string_view two = text.substr(at, 2);
    if (two == "<<" || two == ">>") return false;
    for (const auto& [symbol, candidate] : kOps) {
      if (Take(symbol)) {
        *op = candidate;
        return true;
      }
    }
    return false;
  }

  absl::Status ParseComparison() {
    KVR_RETURN_IF_ERROR(ParseSum());
    SkipBlanks();
    int column = Column();
    Op op;
    if (!TakeComparison(&op)) return absl::OkStatus();
    KVR_RETURN_IF_ERROR(ParseSum());
    KVR_RETURN_IF_ERROR(Emit(op, column));
    SkipBlanks();
    column = Column();
    if (TakeComparison(&op)) {
      return Fail(column, "comparisons do not chain", "write a < b and b < c");
    }
    return absl::OkStatus();
  }

  absl::Status ParseSum() {
    KVR_RETURN_IF_ERROR(ParseProduct());
    for (;;) {
      SkipBlanks();
      int column = Column();
      Op op;
      if (Take("+")) {
        op = Op::kAdd;
      } else if (Take("-")) {
        op = Op::kSubtract;
      } else {
        return absl::OkStatus();
      }
      KVR_RETURN_IF_ERROR(ParseProduct());
      KVR_RETURN_IF_ERROR(Emit(op, column));
    }
  }

  absl::Status ParseProduct() {
    KVR_RETURN_IF_ERROR(ParseUnary());
    for (;;) {
      SkipBlanks();
      int column = Column();
      if (text.substr(at, 2) == "**" || !Take("*")) return absl::OkStatus();
      KVR_RETURN_IF_ERROR(ParseUnary());
      KVR_RETURN_IF_ERROR(Emit(Op::kMultiply, column));
    }
  }

  absl::Status ParseUnary() {
    SkipBlanks();
    int column = Column();
    if (!Take("-")) return ParsePrimary();
    Nested nested(&depth);
    KVR_RETURN_IF_ERROR(CheckDepth());
    KVR_RETURN_IF_ERROR(ParseUnary());
    return Emit(Op::kNegate, column);
  }

  absl::Status ParsePrimary() {
    SkipBlanks();
    if (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) {
      return ParseNumber();
    }
    if (Take("(")) {
      Nested nested(&depth);
      KVR_RETURN_IF_ERROR(CheckDepth());
      KVR_RETURN_IF_ERROR(ParseOr());
      return Take(")") ? absl::OkStatus() : Unexpected("')'");
    }
    std::string_view word = PeekWord();
    if (word.empty() || word == "and" || word == "or" || word == "not") {
      return Unexpected("a number, a name or '('");
    }
    return ParseWord(word);
  }

  absl::Status ParseNumber() {
    int column = Column();
    size_t end = at;
    while (end < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[end]))) ++end;
    absl::StatusOr<int64_t> value = ParseInteger(text.substr(at, end - at), /*negative=*/false);
    if (!value.ok()) {
      return At(value.status().code(), text, column, What(value.status()), Fix(value.status()));
    }
    at = end;
    return Emit(Op::kConst, column, *value);
  }

  absl::Status ParseWord(std::string_view word) {
    int column = Column();
    at += word.size();
    if (Take("(")) {
      Nested nested(&depth);
      KVR_RETURN_IF_ERROR(CheckDepth());
      return ParseCall(word, column);
    }
    auto symbol = symbols.find(word);
    if (symbol != symbols.end()) return Emit(Op::kSlot, column, symbol->second);
    if (std::count(std::begin(kFunctions), std::end(kFunctions), word)) {
      return Fail(column, StrCat("'", word, "' is a function"), StrCat("write ", word, "(...)"));
    }
    std::vector<std::string_view> legal;
    for (const auto& [name, slot] : symbols) legal.push_back(name);
    return Fail(column, StrCat("unknown name ", Quoted(word)), SuggestNames(word, legal));
  }

  absl::Status ParseCall(std::string_view name, int column) {
    if (name == "if") return ParseIf(column);
    if (name == "pow2ceil") return ParseArguments(name, Op::kPow2Ceil, 1, 1, column);
    if (name == "ceildiv") return ParseArguments(name, Op::kCeilDiv, 2, 2, column);
    if (name == "floordiv") return ParseArguments(name, Op::kFloorDiv, 2, 2, column);
    if (name == "mod") return ParseArguments(name, Op::kMod, 2, 2, column);
    if (name == "min") return ParseArguments(name, Op::kMin, 2, kMaxExprNodes, column);
    if (name == "max") return ParseArguments(name, Op::kMax, 2, kMaxExprNodes, column);
    return Fail(column, StrCat("unknown function ", Quoted(name)), SuggestNames(name, kFunctions));
  }

  // min and max of several arguments fold from the left, so the stack stays shallow.
  absl::Status ParseArguments(std::string_view name, Op op, int least, int most, int column) {
    int count = 0;
    do {
      KVR_RETURN_IF_ERROR(ParseOr());
      if (++count > most) break;
      if (count >= 2 || most == 1) KVR_RETURN_IF_ERROR(Emit(op, column));
    } while (Take(","));
    if (count < least || count > most) {
      return Fail(column,
                  StrCat(name, " is given ", count, " argument", count == 1 ? "" : "s",
                         count > most ? " or more" : ""),
                  StrCat(name, " takes ", least, least == most ? "" : " or more", " argument",
                         least == 1 ? "" : "s"));
    }
    return Take(")") ? absl::OkStatus() : Unexpected("',' or ')'");
  }

  absl::Status ParseIf(int column) {
    KVR_RETURN_IF_ERROR(ParseOr());
    if (!Take(",")) return Unexpected("',': if takes a condition and two values");
    size_t jump_to_else = nodes.size();
    KVR_RETURN_IF_ERROR(Emit(Op::kJumpIfZero, column));
    KVR_RETURN_IF_ERROR(ParseOr());
    if (!Take(",")) return Unexpected("',': if takes a condition and two values");
    size_t jump_to_end = nodes.size();
    KVR_RETURN_IF_ERROR(Emit(Op::kJump, column));
    nodes[jump_to_else].value = static_cast<int64_t>(nodes.size());
    KVR_RETURN_IF_ERROR(ParseOr());
    nodes[jump_to_end].value = static_cast<int64_t>(nodes.size());
    return Take(")") ? absl::OkStatus() : Unexpected("')': if takes a condition and two values");
  }
};

Expr::Expr() : Expr(Constant(0)) {}

Expr Expr::Constant(int64_t value) {
  Expr expr(Uninitialised{});
  expr.text_ = StrCat(value);
  expr.nodes_.push_back({Op::kConst, 1, value});
  return expr;
}

absl::StatusOr<Expr> Expr::Parse(std::string_view text, const SymbolTable& symbols) {
  Parser parser{.text = text, .symbols = symbols};
  KVR_RETURN_IF_ERROR(parser.ParseAll());
  Expr expr(Uninitialised{});
  expr.text_ = std::string(text);
  expr.nodes_ = std::move(parser.nodes);
  return expr;
}

absl::StatusOr<int64_t> Expr::Eval(absl::Span<const int64_t> slots) const {
  // A node pushes at most one value, so this never overflows; it is not cleared on purpose.
  int64_t stack[kMaxExprNodes];
  int top = -1;
  auto fail = [this](const Node& node, std::string_view what, std::string_view fix) {
    return At(absl::StatusCode::kOutOfRange, text_, node.column, what, fix);
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
          return At(absl::StatusCode::kInternal, text_, node.column,
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
