// SPDX-License-Identifier: Apache-2.0
//
// Random expressions against an oracle that works on trees in 128-bit arithmetic, and random text
// against the parser: whatever comes, it answers with a value or with an error that names its fix.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "core/expr.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

using Wide = __int128;
using Result = std::optional<int64_t>;  // nothing: an error
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const char* const kSlotNames[] = {"a", "b", "c", "d"};

struct Tree {
  std::string op;  // "1": a constant, "a": a slot, else an operator or a function
  int64_t value = 0;
  std::vector<Tree> children;
};

class Maker {
 public:
  explicit Maker(uint64_t seed) : random(seed) {}

  Tree Make(int depth) {
    if (depth == 0 || Pick(6) == 0) return Leaf();
    static const std::vector<std::pair<std::string, int>> kOps = {
        {"+", 2},   {"-", 2},        {"*", 2},   {"neg", 1},     {"ceildiv", 2}, {"floordiv", 2},
        {"mod", 2}, {"pow2ceil", 1}, {"==", 2},  {"!=", 2},      {"<", 2},       {"<=", 2},
        {">", 2},   {">=", 2},       {"and", 2}, {"or", 2},      {"not", 1},     {"if", 3},
        {"min", 3}, {"max", 2},      {"min", 2}, {"ceildiv", 2}, {"*", 2},       {"+", 2}};
    const auto& [op, count] = kOps[Pick(kOps.size())];
    Tree tree{.op = op};
    for (int i = 0; i < count; ++i) tree.children.push_back(Make(depth - 1));
    return tree;
  }

  Tree Leaf() {
    if (Pick(2)) return {.op = kSlotNames[Pick(4)], .value = 0};
    static const int64_t kEdges[] = {0, 1, 2, 3, 7, 64, 4096, 2147483648, kMax, kMax - 1};
    return {.op = "1", .value = kEdges[Pick(std::size(kEdges))]};
  }

  int64_t SlotValue() {
    static const int64_t kEdges[] = {0, 1, -1, 2, 16, -7, 1000003, kMax, kMin, int64_t{1} << 32};
    if (Pick(2)) return kEdges[Pick(std::size(kEdges))];
    return static_cast<int64_t>(random()) >> (random() % 64);
  }

  size_t Pick(size_t n) { return random() % n; }

  std::mt19937_64 random;
};

// Binding strength, as the grammar has it.
int Level(const Tree& tree) {
  if (tree.op == "or") return 1;
  if (tree.op == "and") return 2;
  if (tree.op == "not") return 3;
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    if (tree.op == op) return 4;
  if (tree.op == "+" || tree.op == "-") return 5;
  if (tree.op == "*") return 6;
  if (tree.op == "neg") return 7;
  return 8;
}

// With as few parentheses as the grammar allows, and now and then a blank.
std::string Print(const Tree& tree, int least, Maker* maker) {
  const std::string blank = maker->Pick(3) ? " " : maker->Pick(2) ? "" : "\t ";
  const int level = Level(tree);
  std::string text;
  const auto& kids = tree.children;
  if (tree.op == "1") {
    text = StrCat(tree.value);
  } else if (kids.empty()) {
    text = tree.op;
  } else if (level == 8) {
    for (const Tree& kid : kids) {
      StrAppend(&text, text.empty() ? "" : "," + blank, Print(kid, 1, maker));
    }
    text = StrCat(tree.op, "(", text, ")");
  } else if (kids.size() == 1) {
    text = StrCat(tree.op == "neg" ? "-" : "not ", blank, Print(kids[0], level, maker));
  } else {
    const bool word = level <= 2;
    const int left = level == 4 ? 5 : level;
    text = StrCat(Print(kids[0], left, maker), word ? " " : blank, tree.op, word ? " " : blank,
                  Print(kids[1], level + 1, maker));
  }
  return level < least ? StrCat("(", blank, text, blank, ")") : text;
}

Result Narrow(Wide value) {
  if (value < kMin || value > kMax) return std::nullopt;
  return static_cast<int64_t>(value);
}

Wide Floor(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Result Oracle(const Tree& tree, const int64_t* slots) {
  if (tree.op == "1") return tree.value;
  for (int i = 0; i < 4; ++i)
    if (tree.op == kSlotNames[i]) return slots[i];
  Result first = Oracle(tree.children[0], slots);
  if (!first) return first;
  if (tree.op == "if") return Oracle(tree.children[*first ? 1 : 2], slots);
  Wide a = *first;
  if (tree.op == "neg") return Narrow(-a);
  if (tree.op == "not") return a == 0;
  if (tree.op == "pow2ceil") {
    Wide power = 1;
    while (power < a) power *= 2;
    return Narrow(power);
  }
  for (size_t i = 1; i < tree.children.size(); ++i) {
    Result second = Oracle(tree.children[i], slots);
    if (!second) return second;
    const Wide b = *second;
    const bool division = tree.op == "ceildiv" || tree.op == "floordiv" || tree.op == "mod";
    if (division && b <= 0) return std::nullopt;
    if (tree.op == "+") a = a + b;
    if (tree.op == "-") a = a - b;
    if (tree.op == "*") a = a * b;
    if (tree.op == "ceildiv") a = -Floor(-a, b);
    if (tree.op == "floordiv") a = Floor(a, b);
    if (tree.op == "mod") a = a - b * Floor(a, b);
    if (tree.op == "min") a = a < b ? a : b;
    if (tree.op == "max") a = a > b ? a : b;
    if (tree.op == "==") a = a == b;
    if (tree.op == "!=") a = a != b;
    if (tree.op == "<") a = a < b;
    if (tree.op == "<=") a = a <= b;
    if (tree.op == ">") a = a > b;
    if (tree.op == ">=") a = a >= b;
    if (tree.op == "and") a = a != 0 && b != 0;
    if (tree.op == "or") a = a != 0 || b != 0;
    if (!Narrow(a)) return std::nullopt;
  }
  return Narrow(a);
}

SymbolTable Symbols() {
  SymbolTable symbols;
  for (int i = 0; i < 4; ++i) symbols[kSlotNames[i]] = i;
  return symbols;
}

TEST(ExprProperty, AgreesWithA128BitOracle) {
  Maker maker(20240611);
  const SymbolTable symbols = Symbols();
  int values = 0, errors = 0;
  for (int i = 0; i < 4000; ++i) {
    const Tree tree = maker.Make(1 + static_cast<int>(maker.Pick(4)));
    const std::string text = Print(tree, 1, &maker);
    absl::StatusOr<Expr> expr = Expr::Parse(text, symbols);
    ASSERT_TRUE(expr.ok()) << text << "\n" << expr.status();
    for (int round = 0; round < 8; ++round) {
      int64_t slots[4];
      for (int64_t& slot : slots) slot = maker.SlotValue();
      const Result expected = Oracle(tree, slots);
      const absl::StatusOr<int64_t> got = expr->Eval(slots);
      ASSERT_EQ(got.ok(), expected.has_value()) << text << "\n" << got.status();
      if (got.ok()) {
        ASSERT_EQ(*got, *expected) << text;
        ++values;
      } else {
        ASSERT_NE(What(got.status()).find(", column "), std::string_view::npos);
        ASSERT_FALSE(Fix(got.status()).empty());
        ++errors;
      }
    }
  }
  EXPECT_GT(values, 8000);
  EXPECT_GT(errors, 2000);
}

void CheckAnyText(const std::string& text, const SymbolTable& symbols) {
  absl::StatusOr<Expr> expr = Expr::Parse(text, symbols);
  if (!expr.ok()) {
    ASSERT_FALSE(Fix(expr.status()).empty()) << expr.status();
    ASSERT_NE(What(expr.status()).find("column "), std::string_view::npos) << expr.status();
    return;
  }
  const int64_t slots[] = {1, -3, kMax, 0};
  absl::StatusOr<int64_t> value = expr->Eval(slots);
  ASSERT_TRUE(value.ok() || !Fix(value.status()).empty()) << text;
}

TEST(ExprProperty, RandomBytesNeverCrash) {
  std::mt19937_64 random(99);
  const SymbolTable symbols = Symbols();
  for (int i = 0; i < 10000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = static_cast<char>(random());
    CheckAnyText(text, symbols);
  }
}

TEST(ExprProperty, RandomTokensNeverCrash) {
  std::mt19937_64 random(100);
  const SymbolTable symbols = Symbols();
  static const char* const kTokens[] = {
      "a",   "b",   "1",    "0",        "(",         ")",   ",",
      "+",   "-",   "*",    "<",        "==",        "and", "or",
      "not", "if(", "min(", "ceildiv(", "pow2ceil(", " ",   "9223372036854775807"};
  for (int i = 0; i < 10000; ++i) {
    std::string text;
    for (uint64_t n = random() % 30; n > 0; --n) {
      StrAppend(&text, kTokens[random() % std::size(kTokens)], random() % 2 ? " " : "");
    }
    CheckAnyText(text, symbols);
  }
}

TEST(ExprProperty, MutatedExpressionsNeverCrash) {
  Maker maker(5);
  const SymbolTable symbols = Symbols();
  for (int i = 0; i < 3000; ++i) {
    std::string text = Print(maker.Make(4), 1, &maker);
    for (size_t n = 1 + maker.Pick(3); n > 0 && !text.empty(); --n) {
      size_t at = maker.Pick(text.size());
      switch (maker.Pick(3)) {
        case 0:
          text.erase(at, 1 + maker.Pick(4));
          break;
        case 1:
          text[at] = static_cast<char>(maker.random());
          break;
        default:
          text.insert(at, 1, "()+-*,<a1 "[maker.Pick(10)]);
      }
    }
    CheckAnyText(text, symbols);
  }
}

}  // namespace
}  // namespace kvr
