// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "core/dtype.h"
#include "core/key_policy.h"
#include "tests/variants/problem.h"
#include "variants/mla_sparse_decode/op.h"

namespace kvr::mla_sparse_decode {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class MlaSparseDecode : public ::testing::Test {
 protected:
  const std::unique_ptr<Operation> op_ = BuiltinOperation("mla_sparse_decode");
};

// Small enough to be quick: 8 pages of 16 slots.
Axes Small(int64_t num_tokens, int64_t num_heads, int64_t topk) {
  return {{"num_tokens", num_tokens},
          {"num_qo_heads", num_heads},
          {"topk", topk},
          {"num_pages", 8},
          {"page_size", 16}};
}

void ExpectNear(const ReferenceOutput& actual, const ReferenceOutput& expected, double tolerance) {
  ASSERT_EQ(actual.expected.size(), expected.expected.size());
  for (size_t i = 0; i < expected.expected.size(); ++i) {
    if (std::isinf(expected.expected[i])) {
      ASSERT_EQ(actual.expected[i], expected.expected[i]) << i;
    } else {
      ASSERT_NEAR(actual.expected[i], expected.expected[i], tolerance) << i;
    }
  }
}

TEST_F(MlaSparseDecode, SpecNamesWhatTheDefinitionNames) {
  const OpSpec& spec = op_->spec();
  EXPECT_EQ(spec.op_type, "dsa_paged");
  EXPECT_EQ(spec.key_policy, "topk:pow2");
  EXPECT_TRUE(KeyPolicy::Parse(spec.key_policy, spec).ok());
  EXPECT_EQ(spec.AxisIndex("num_tokens"), kNumTokens);
  EXPECT_EQ(spec.AxisIndex("topk"), kTopk);
  EXPECT_EQ(spec.TensorIndex("sparse_indices"), kSparseIndices);
  EXPECT_EQ(spec.TensorIndex("sm_scale"), kSmScale);
  EXPECT_EQ(spec.TensorIndex("lse"), kSmScale + 1 + kLse);
  EXPECT_NEAR(spec.inputs[kSmScale].scalar_default, 1 / std::sqrt(192.0), 1e-16);
}

TEST_F(MlaSparseDecode, EveryAxisHasADefaultAndTheLimitsAreKept) {
  absl::StatusOr<AxisVector> axes = ResolveAxes(op_->spec(), {});
  ASSERT_TRUE(axes.ok()) << axes.status();
  EXPECT_EQ((*axes)[kNumTokens], 16);
  EXPECT_EQ((*axes)[kTopk], 512);

  EXPECT_TRUE(ResolveAxes(op_->spec(), {{"num_tokens", 0}}).ok());
  EXPECT_TRUE(ResolveAxes(op_->spec(), {{"topk", 32768}, {"num_qo_heads", 128}}).ok());
  EXPECT_FALSE(ResolveAxes(op_->spec(), {{"topk", 0}}).ok());
  EXPECT_FALSE(ResolveAxes(op_->spec(), {{"topk", 32769}}).ok());
  EXPECT_FALSE(ResolveAxes(op_->spec(), {{"num_qo_heads", 0}}).ok());
  EXPECT_FALSE(ResolveAxes(op_->spec(), {{"num_qo_heads", 129}}).ok());
  EXPECT_FALSE(ResolveAxes(op_->spec(), {{"head_dim_ckv", 256}}).ok());
}

TEST_F(MlaSparseDecode, MinimumBytesCountsEachCacheRowOnce) {
  auto bytes = [&](const Axes& axes) { return op_->MinimumBytes(*ResolveAxes(op_->spec(), axes)); };
  // Two lists of 512 among 32768 slots have 8 in common: 32768 * (1 - (63/64)^2) = 1016.
  EXPECT_EQ(bytes({{"num_tokens", 2}, {"num_qo_heads", 16}, {"topk", 512}}),
            1016 * 1152 + 2 * 2 * 16 * (576 + 512) + 4 * 1024);
  // More slots than the cache has.
  EXPECT_EQ(bytes(Small(4, 16, 512)), 128 * 1152 + 2 * 4 * 16 * (576 + 512) + 4 * 2048);
  EXPECT_EQ(bytes({{"num_tokens", 0}}), 0);
}

TEST_F(MlaSparseDecode, InputsAreAFunctionOfTheSeed) {
  Problem one(*op_, Small(5, 3, 40)), same(*op_, Small(5, 3, 40)), other(*op_, Small(5, 3, 40));
  one.Generate(1), same.Generate(1), other.Generate(2);
  EXPECT_EQ(one.memory, same.memory);
  for (int input : {kQNope, kQPe, kCkvCache, kKpeCache, kSparseIndices}) {
    EXPECT_NE(one.memory[input], other.memory[input]) << input;
  }
  EXPECT_FLOAT_EQ(one.Input<float>(kSmScale)[0], kDefaultSmScale);
}

// Changing them would make every result in a ledger one about other inputs.
TEST_F(MlaSparseDecode, InputsOfASeedStayWhatTheyAre) {
  Problem problem(*op_, Small(5, 3, 40));
  problem.Generate(1);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over all inputs
  for (const TensorView& input : problem.inputs) {
    const unsigned char* bytes = static_cast<const unsigned char*>(input.data);
    for (int64_t i = 0; i < input.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  EXPECT_EQ(hash, 0xfcdfa455b956bf48ull);
}

TEST_F(MlaSparseDecode, SlotsLieInTheCacheAndAreDistinctWithinAToken) {
  Problem problem(*op_, Small(9, 1, 100));
  const absl::Span<int32_t> indices = problem.Generate(3).Input<int32_t>(kSparseIndices);
  for (int token = 0; token < 9; ++token) {
    std::set<int32_t> seen;
    for (int32_t slot : indices.subspan(token * 100, 100)) {
      ASSERT_GE(slot, -1);
      ASSERT_LT(slot, 8 * 16);
      EXPECT_TRUE(slot < 0 || seen.insert(slot).second) << slot;
    }
  }
}

TEST_F(MlaSparseDecode, SlotsRepeatOnlyWhereTheCacheRunsOut) {
  Problem problem(*op_, Small(1, 1, 300));
  const absl::Span<int32_t> indices = problem.Generate(0).Input<int32_t>(kSparseIndices);
  std::vector<int> uses(128);
  for (int32_t slot : indices) ++uses[slot];
  EXPECT_EQ(*std::min_element(uses.begin(), uses.end()), 2);
  EXPECT_EQ(*std::max_element(uses.begin(), uses.end()), 3);
}

TEST_F(MlaSparseDecode, EveryPatternOfPaddingOccurs) {
  Problem problem(*op_, Small(8, 1, 100));
  const absl::Span<int32_t> indices = problem.Generate(5).Input<int32_t>(kSparseIndices);
  int full = 0, scattered = 0, tail = 0, empty = 0;
  for (int token = 0; token < 8; ++token) {
    const absl::Span<int32_t> slots = indices.subspan(token * 100, 100);
    const auto padding = std::count(slots.begin(), slots.end(), -1);
    const auto last_kept =
        std::find_if(slots.rbegin(), slots.rend(), [](int32_t s) { return s >= 0; });
    const auto tail_length = last_kept - slots.rbegin();
    full += padding == 0;
    empty += padding == 100;
    tail += tail_length > 0 && tail_length < 100;
    scattered += padding > tail_length;
  }
  EXPECT_GE(full, 1);
  EXPECT_EQ(empty, 1);
  EXPECT_GE(tail, 2);
  EXPECT_GE(scattered, 2);
}

TEST_F(MlaSparseDecode, AnEvenSeedPadsNothing) {
  Problem problem(*op_, Small(8, 1, 100));
  EXPECT_THAT(problem.Generate(4).Input<int32_t>(kSparseIndices),
              ::testing::Each(::testing::Ge(0)));
}

TEST_F(MlaSparseDecode, ReferenceMeetsACaseComputedByHand) {
  Problem problem(*op_, Small(1, 1, 3));
  for (auto& memory : problem.memory) std::fill(memory.begin(), memory.end(), 0);
  auto q_nope = problem.Input<uint16_t>(kQNope), q_pe = problem.Input<uint16_t>(kQPe);
  auto ckv = problem.Input<uint16_t>(kCkvCache), kpe = problem.Input<uint16_t>(kKpeCache);
  q_nope[0] = FloatToBf16(2), q_pe[63] = FloatToBf16(1);
  // Slot 5: score (2 * 1 + 1 * 1) / 2. Slot 17, on the second page: score (2 * -1 + 1 * 3) / 2.
  ckv[5 * 512] = FloatToBf16(1), ckv[5 * 512 + 511] = FloatToBf16(4);
  kpe[5 * 64 + 63] = FloatToBf16(1);
  ckv[17 * 512] = FloatToBf16(-1);
  kpe[17 * 64 + 63] = FloatToBf16(3);
  auto indices = problem.Input<int32_t>(kSparseIndices);
  indices[0] = 5, indices[1] = -1, indices[2] = 17;
  problem.Input<float>(kSmScale)[0] = 0.5f;

  const double a = std::exp(1.5), b = std::exp(0.5);
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  EXPECT_NEAR(outputs[kOutput].expected[0], (a - b) / (a + b), 1e-14);
  EXPECT_NEAR(outputs[kOutput].expected[511], 4 * a / (a + b), 1e-14);
  EXPECT_EQ(outputs[kOutput].expected[1], 0);
  EXPECT_NEAR(outputs[kLse].expected[0], std::log2(a + b), 1e-14);

  // |o| + sum p |v|: 1 for element 0.
  EXPECT_NEAR(outputs[kOutput].bound[0], ((a - b) / (a + b) + 1) / 256, 1e-15);
  EXPECT_NEAR(outputs[kOutput].bound[511], 2 * 4 * a / (a + b) / 256, 1e-15);
  EXPECT_EQ(outputs[kOutput].bound[1], 0);
  EXPECT_DOUBLE_EQ(outputs[kLse].bound[0], 1e-6 + 8.01 / 65536 * std::log2(a + b));
  EXPECT_EQ(outputs[kOutput].cosine_limit, 5e-6);
}

TEST_F(MlaSparseDecode, AllPaddingGivesZeroAndMinusInfinity) {
  Problem problem(*op_, Small(1, 2, 8));
  problem.Generate(5);
  for (int32_t& slot : problem.Input<int32_t>(kSparseIndices)) slot = -1;
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  EXPECT_THAT(outputs[kOutput].expected, ::testing::Each(0.0));
  EXPECT_THAT(outputs[kOutput].bound, ::testing::Each(0.0));
  EXPECT_THAT(outputs[kLse].expected, ::testing::Each(-kInfinity));
}

TEST_F(MlaSparseDecode, PaddingIgnoresWhatTheCacheHolds) {
  Problem problem(*op_, Small(2, 2, 8)), poisoned(*op_, Small(2, 2, 8));
  problem.Generate(6), poisoned.Generate(6);
  for (Problem* p : {&problem, &poisoned}) {
    for (int32_t& slot : p->Input<int32_t>(kSparseIndices)) {
      if (slot == 0) slot = -1;
    }
  }
  std::fill_n(poisoned.Input<uint16_t>(kCkvCache).begin(), 512, 0x7fc0);  // slot 0: NaN
  ExpectNear(poisoned.Reference()[kOutput], problem.Reference()[kOutput], 0);
}

TEST_F(MlaSparseDecode, OrderOfTheSlotsDoesNotMatter) {
  Problem problem(*op_, Small(4, 17, 60));
  const std::vector<ReferenceOutput> before = problem.Generate(7).Reference();
  const absl::Span<int32_t> indices = problem.Input<int32_t>(kSparseIndices);
  for (int token = 0; token < 4; ++token) {
    const absl::Span<int32_t> slots = indices.subspan(token * 60, 60);
    std::rotate(slots.begin(), slots.begin() + 23, slots.end());
    std::reverse(slots.begin() + 5, slots.begin() + 40);
  }
  const std::vector<ReferenceOutput> after = problem.Reference();
  ExpectNear(after[kOutput], before[kOutput], 1e-12);
  ExpectNear(after[kLse], before[kLse], 1e-12);
}

TEST_F(MlaSparseDecode, NumberOfThreadsDoesNotMatter) {
  Problem problem(*op_, Small(5, 33, 20));
  problem.Generate(8);
  const std::vector<ReferenceOutput> one = problem.Reference(1), many = problem.Reference(7);
  for (int output : {kOutput, kLse}) {
    EXPECT_EQ(one[output].expected, many[output].expected);
    EXPECT_EQ(one[output].bound, many[output].bound);
  }
}

// Split-KV's law: with w = 2^(lse - M), o = sum(w o) / sum(w) and lse = M + log2(sum(w)).
TEST_F(MlaSparseDecode, MergingTheHalvesOfAListGivesTheWhole) {
  constexpr int kTokens = 4, kHeads = 3, kSlots = 50, kCut = 19;
  Problem whole(*op_, Small(kTokens, kHeads, kSlots));
  whole.Generate(9);
  Problem first(*op_, Small(kTokens, kHeads, kSlots)), rest(*op_, Small(kTokens, kHeads, kSlots));
  first.Generate(9), rest.Generate(9);
  for (int token = 0; token < kTokens; ++token) {
    for (int i = 0; i < kSlots; ++i) {
      Problem& loses = i < kCut ? rest : first;
      loses.Input<int32_t>(kSparseIndices)[token * kSlots + i] = -1;
    }
  }
  const auto all = whole.Reference(), a = first.Reference(), b = rest.Reference();
  ReferenceOutput output, lse;
  for (int row = 0; row < kTokens * kHeads; ++row) {
    const double lse_a = a[kLse].expected[row], lse_b = b[kLse].expected[row];
    const double m = std::max(lse_a, lse_b);
    const double wa = std::isinf(m) ? 0 : std::exp2(lse_a - m);
    const double wb = std::isinf(m) ? 0 : std::exp2(lse_b - m);
    lse.expected.push_back(std::isinf(m) ? m : m + std::log2(wa + wb));
    for (int d = 0; d < 512; ++d) {
      const double sum =
          wa * a[kOutput].expected[row * 512 + d] + wb * b[kOutput].expected[row * 512 + d];
      output.expected.push_back(wa + wb > 0 ? sum / (wa + wb) : 0);
    }
  }
  ExpectNear(output, all[kOutput], 1e-12);
  ExpectNear(lse, all[kLse], 1e-12);
}

TEST_F(MlaSparseDecode, ASlotBeyondTheCacheIsNamed) {
  Problem problem(*op_, Small(2, 1, 4));
  problem.Generate(10).Input<int32_t>(kSparseIndices)[6] = 128;
  const auto outputs = op_->Reference(problem.axes, problem.inputs, 1);
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(outputs.status().message(), HasSubstr("sparse_indices[1, 2] is 128"));
}

TEST_F(MlaSparseDecode, AnEmptyBatchHasEmptyResults) {
  Problem problem(*op_, Small(0, 16, 4));
  const std::vector<ReferenceOutput> outputs = problem.Generate(11).Reference(4);
  EXPECT_TRUE(outputs[kOutput].expected.empty());
  EXPECT_TRUE(outputs[kLse].expected.empty());
}

}  // namespace
}  // namespace kvr::mla_sparse_decode
