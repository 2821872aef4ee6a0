// SPDX-License-Identifier: Apache-2.0
#include "core/expr.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/strings.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const SymbolTable kSymbols = {{"a", 0}, {"b", 1}, {"topk", 2}, {"num_tokens", 3}};

absl::StatusOr<int64_t> Compute(std::string_view text, int64_t a = 0, int64_t b = 0) {
  KVR_ASSIGN_OR_RETURN(Expr expr, Expr::Parse(text, kSymbols));
  const int64_t slots[] = {a, b, 2048, 64};
  return expr.Eval(slots);
}

int64_t Value(std::string_view text, int64_t a = 0, int64_t b = 0) {
  absl::StatusOr<int64_t> value = Compute(text, a, b);
  EXPECT_TRUE(value.ok()) << text << ": " << value.status();
  return value.ok() ? *value : -999999;
}

TEST(Expr, PrecedenceIsThatOfArithmetic) {
  EXPECT_EQ(Value("1 + 2 * 3"), 7);
  EXPECT_EQ(Value("(1 + 2) * 3"), 9);
  EXPECT_EQ(Value("10 - 2 - 3"), 5);
  EXPECT_EQ(Value("-2 * -3"), 6);
  EXPECT_EQ(Value("- - 2"), 2);
  EXPECT_EQ(Value("1 + 1 == 2 and 3 < 4"), 1);
  EXPECT_EQ(Value("0 and 0 or 1"), 1);
  EXPECT_EQ(Value("not 1 == 2"), 1);
  EXPECT_EQ(Value("not not 5"), 1);
  EXPECT_EQ(Value("\ttopk*num_tokens "), 131072);
}

TEST(Expr, DivisionHasFloorSemantics) {
  for (int64_t a : {-7, -6, -1, 0, 1, 6, 7}) {
    int64_t floor = Value("floordiv(a, b)", a, 3), mod = Value("mod(a, b)", a, 3);
    EXPECT_EQ(floor * 3 + mod, a);
    EXPECT_GE(mod, 0);
    EXPECT_LT(mod, 3);
    EXPECT_EQ(Value("ceildiv(a, b)", a, 3), -Value("floordiv(-a, b)", a, 3));
  }
  EXPECT_EQ(Value("floordiv(a, 1)", kMin), kMin);
  EXPECT_EQ(Value("ceildiv(a, 2)", kMax), int64_t{1} << 62);
}

TEST(Expr, MinMaxAndPow2Ceil) {
  EXPECT_EQ(Value("min(3, 1, 2)"), 1);
  EXPECT_EQ(Value("max(3, 1, 2, 9, 0)"), 9);
  EXPECT_EQ(Value("pow2ceil(a)", -5), 1);
  EXPECT_EQ(Value("pow2ceil(a)", 0), 1);
  EXPECT_EQ(Value("pow2ceil(a)", 37), 64);
  EXPECT_EQ(Value("pow2ceil(a)", int64_t{1} << 62), int64_t{1} << 62);
  EXPECT_THAT(Compute("pow2ceil(a)", (int64_t{1} << 62) + 1).status(),
              IsError(absl::StatusCode::kOutOfRange, "overflow in pow2ceil", "largest"));
}

TEST(Expr, IfEvaluatesTheBranchTakenOnly) {
  EXPECT_EQ(Value("if(a == 0, 1, ceildiv(10, a))", 0), 1);
  EXPECT_EQ(Value("if(a == 0, 1, ceildiv(10, a))", 3), 4);
  EXPECT_EQ(Value("1 + if(a, if(b, 10, 20), 30) * 2", 1, 0), 41);
  EXPECT_FALSE(Compute("a == 0 or ceildiv(10, a)", 0).ok()) << "`or` evaluates both sides";
}

TEST(Expr, OverflowAndDivisionByZeroNameTheColumn) {
  constexpr auto kRange = absl::StatusCode::kOutOfRange;
  EXPECT_THAT(Compute("a + 1", kMax).status(), IsError(kRange, "column 3: overflow in", "64-bit"));
  EXPECT_THAT(Compute("a - 1", kMin).status(), IsError(kRange, "column 3: overflow in", "64-bit"));
  EXPECT_THAT(Compute("1 * a * b", kMax, 2).status(),
              IsError(kRange, "column 7: overflow", "64-bit"));
  EXPECT_THAT(Compute("-a", kMin).status(), IsError(kRange, "column 1: overflow", "64-bit"));
  EXPECT_THAT(Compute("1 + ceildiv(7, b)", 0, 0).status(),
              IsError(kRange, "column 5: division by zero: ceildiv(7, 0)", "max(1, b)"));
  EXPECT_THAT(Compute("mod(7, b)", 0, -2).status(), IsError(kRange, "negative number", "positive"));
}

TEST(Expr, HabitsFromOtherLanguagesAreAnsweredWithTheFix) {
  EXPECT_THAT(Compute("a / b").status(), IsError(kInvalid, "column 3: '/'", "ceildiv(a, b)"));
  EXPECT_THAT(Compute("a // b").status(), IsError(kInvalid, "'//'", "floordiv(a, b)"));
  EXPECT_THAT(Compute("a % b").status(), IsError(kInvalid, "'%'", "mod(a, b)"));
  EXPECT_THAT(Compute("a ** b").status(), IsError(kInvalid, "'**'", "no power"));
  EXPECT_THAT(Compute("a && b").status(), IsError(kInvalid, "'&&'", "'and'"));
  EXPECT_THAT(Compute("!a").status(), IsError(kInvalid, "column 1: '!'", "'not'"));
  EXPECT_THAT(Compute("a = b").status(), IsError(kInvalid, "'='", "'=='"));
  EXPECT_THAT(Compute("a ? b : 1").status(), IsError(kInvalid, "'?'", "if("));
  EXPECT_THAT(Compute("1.5").status(), IsError(kInvalid, "column 2: '.'", "integers"));
  EXPECT_THAT(Compute("a << 2").status(), IsError(kInvalid, "'<<'", "product"));
  EXPECT_THAT(Compute("topk[0]").status(), IsError(kInvalid, "'['", "not tensors"));
  EXPECT_THAT(Compute("1 < a < 3").status(),
              IsError(kInvalid, "column 7: comparisons do not chain", "a < b and b < c"));
}

TEST(Expr, MalformedTextNamesThePlaceAndWhatBelongsThere) {
  EXPECT_THAT(Compute("").status(), IsError(kInvalid, "column 1: the expression ends", "a number"));
  EXPECT_THAT(Compute("1 +").status(),
              IsError(kInvalid, "column 4: the expression ends", "a number"));
  EXPECT_THAT(Compute("(1").status(), IsError(kInvalid, "column 3", "')'"));
  EXPECT_THAT(Compute("1)").status(), IsError(kInvalid, "column 2: unexpected ')'", "the end"));
  EXPECT_THAT(Compute("1 2").status(), IsError(kInvalid, "column 3: unexpected '2'", "operator"));
  EXPECT_THAT(Compute("== 1").status(), IsError(kInvalid, "column 1: unexpected '='", "a number"));
  EXPECT_THAT(Compute("and 1").status(), IsError(kInvalid, "unexpected 'and'", "a number"));
  EXPECT_THAT(Compute("0x10").status(), IsError(kInvalid, "'0x10' is no integer", "decimal"));
  EXPECT_THAT(Compute("1_000").status(), IsError(kInvalid, "'1_000' is no integer", "decimal"));
  EXPECT_THAT(Compute("9223372036854775808").status(),
              IsError(absl::StatusCode::kOutOfRange, "too large", "64-bit"));
  EXPECT_THAT(Compute("mod(1)").status(), IsError(kInvalid, "mod is given 1 argument", "takes 2"));
  EXPECT_THAT(Compute("pow2ceil(1, 2)").status(),
              IsError(kInvalid, "2 arguments or more", "takes 1 argument"));
  EXPECT_THAT(Compute("min(1)").status(), IsError(kInvalid, "1 argument", "2 or more"));
  EXPECT_THAT(Compute("if(1, 2)").status(), IsError(kInvalid, "unexpected ')'", "condition"));
  EXPECT_THAT(Compute("min").status(), IsError(kInvalid, "'min' is a function", "min(...)"));
}

TEST(Expr, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_THAT(Compute("1 + num_token").status(),
              IsError(kInvalid, "column 5: unknown name 'num_token'", "did you mean 'num_tokens'"));
  EXPECT_THAT(Compute("cieldiv(1, 2)").status(),
              IsError(kInvalid, "unknown function 'cieldiv'", "did you mean 'ceildiv'"));
}

TEST(Expr, LongTextsAreQuotedAroundTheColumn) {
  std::string text = "1";
  for (int i = 0; i < 40; ++i) text += " + topk";
  text += " + oops";
  absl::Status status = Compute(text).status();
  EXPECT_THAT(status, IsError(kInvalid, "...'", "known"));
  EXPECT_THAT(status, IsError(kInvalid, "oops', column 285", "known"));
  EXPECT_LT(What(status).size(), 150u);
}

TEST(Expr, SizeAndDepthAreLimited) {
  std::string flat = "1", deep = "1", minus(kMaxExprDepth + 1, '-');
  for (int i = 0; i < kMaxExprNodes; ++i) flat += " + 1";
  for (int i = 0; i <= kMaxExprDepth; ++i) deep = StrCat("(", deep, ")");
  EXPECT_THAT(Compute(flat).status(), IsError(kInvalid, "more than 256 operations", "[let]"));
  EXPECT_THAT(Compute(deep).status(), IsError(kInvalid, "nested more than 32", "[let]"));
  EXPECT_THAT(Compute(minus + "1").status(), IsError(kInvalid, "nested more than 32", "[let]"));
  EXPECT_EQ(Value(deep.substr(1, deep.size() - 2)), 1);
  EXPECT_THAT(Compute(std::string(1 << 20, '(')).status(), IsError(kInvalid, "nested", "[let]"));
}

TEST(Expr, KnowsWhatItReads) {
  EXPECT_EQ(*Expr().Eval({}), 0);
  EXPECT_EQ(*Expr::Constant(-4).Eval({}), -4);
  EXPECT_TRUE(Expr::Parse("2 * 3", kSymbols)->IsConstant());
  Expr expr = *Expr::Parse("topk + a * topk", kSymbols);
  EXPECT_THAT(expr.UsedSlots(), testing::ElementsAre(0, 2));
  EXPECT_FALSE(expr.IsConstant());
  EXPECT_EQ(expr.text(), "topk + a * topk");
  const int64_t too_few[] = {1};
  EXPECT_THAT(expr.Eval(too_few).status(),
              IsError(absl::StatusCode::kInternal, "slot 2 of 1", "symbol table"));
}

}  // namespace
}  // namespace kvr
