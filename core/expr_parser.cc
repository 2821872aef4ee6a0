// SPDX-License-Identifier: Apache-2.0
//
// The parser of manifest expressions: recursive descent, limited in depth and size.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "core/expr_internal.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr std::string_view kFunctions[] = {"ceildiv", "floordiv", "mod", "min",
                                           "max",     "pow2ceil", "if"};

}  // namespace

struct Expr::Parser {
  std::string_view text;
  const SymbolTable& symbols;
  std::vector<Node> nodes;
  size_t at = 0;
  int depth = 0;
  size_t last_target = 0;  // the furthest node that a jump goes to

  int Column() const { return static_cast<int>(at) + 1; }

  absl::Status Fail(int column, std::string_view what, std::string_view fix) const {
    return ExprError(absl::StatusCode::kInvalidArgument, text, column, what, fix);
  }

  absl::Status Emit(Op op, int column, int64_t value = 0) {
    if (nodes.size() >= static_cast<size_t>(kMaxExprNodes)) {
      return Fail(column, StrCat("more than ", kMaxExprNodes, " operations"),
                  "split the expression over several [let] values");
    }
    nodes.push_back({op, Right::kStack, column, value});
    return absl::OkStatus();
  }

  // A binary operation. A right operand that is one name or number moves into the node, unless a
  // jump lands behind it, which then is the end of an if().
  absl::Status EmitBinary(Op op, int column) {
    const Node& right = nodes.back();
    const bool leaf = right.op == Op::kConst || right.op == Op::kSlot;
    if (!leaf || nodes.size() == last_target) return Emit(op, column);
    nodes.back() = {op, right.op == Op::kConst ? Right::kConst : Right::kSlot, column, right.value};
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
    const bool comparison = rest.starts_with("==") || rest.starts_with("!=");
    for (const auto& [habit, fix] : kHabits) {
      if (!comparison && rest.starts_with(habit)) {
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
      KVR_RETURN_IF_ERROR(EmitBinary(Op::kOr, column));
    }
  }

  absl::Status ParseAnd() {
    KVR_RETURN_IF_ERROR(ParseNot());
    for (;;) {
      SkipBlanks();
      int column = Column();
      if (!TakeWord("and")) return absl::OkStatus();
      KVR_RETURN_IF_ERROR(ParseNot());
      KVR_RETURN_IF_ERROR(EmitBinary(Op::kAnd, column));
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
    KVR_RETURN_IF_ERROR(EmitBinary(op, column));
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
      KVR_RETURN_IF_ERROR(EmitBinary(op, column));
    }
  }

  absl::Status ParseProduct() {
    KVR_RETURN_IF_ERROR(ParseUnary());
    for (;;) {
      SkipBlanks();
      int column = Column();
      if (text.substr(at, 2) == "**" || !Take("*")) return absl::OkStatus();
      KVR_RETURN_IF_ERROR(ParseUnary());
      KVR_RETURN_IF_ERROR(EmitBinary(Op::kMultiply, column));
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
    while (end < text.size() &&
           (text[end] == '_' || absl::ascii_isalnum(static_cast<unsigned char>(text[end])))) {
      ++end;
    }
    absl::StatusOr<int64_t> value = ParseInteger(text.substr(at, end - at), /*negative=*/false);
    if (!value.ok()) {
      return ExprError(value.status().code(), text, column, What(value.status()),
                       Fix(value.status()));
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
      if (most == 1) KVR_RETURN_IF_ERROR(Emit(op, column));
      if (count >= 2) KVR_RETURN_IF_ERROR(EmitBinary(op, column));
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
    last_target = nodes.size();
    return Take(")") ? absl::OkStatus() : Unexpected("')': if takes a condition and two values");
  }
};

absl::StatusOr<Expr> Expr::Parse(std::string_view text, const SymbolTable& symbols) {
  Parser parser{.text = text, .symbols = symbols};
  KVR_RETURN_IF_ERROR(parser.ParseAll());
  return Expr(std::string(text), std::move(parser.nodes));
}

}  // namespace kvr
