// SPDX-License-Identifier: Apache-2.0
//
// mla_sparse_decode_fp8 and mla_sparse_decode_fp8_v32: what they compute, from bytes written by
// hand, and what their generator draws.
#include "variants/common/mla_fp8/mla_fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/dtype.h"
#include "core/key_policy.h"
#include "tests/variants/problem.h"

namespace kvr::mla_fp8 {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// e4m3: 1 sign, 4 exponent bits of bias 7, 3 mantissa bits.
constexpr uint8_t kOne = 0x38, kTwo = 0x40, kThree = 0x44, kMinusOne = 0xb8;
constexpr uint8_t kE8m0One = 127;

struct Form {
  const char* op;
  Layout layout;
};

class MlaFp8 : public ::testing::TestWithParam<Form> {
 protected:
  const Layout& layout() const { return GetParam().layout; }
  bool is_v4() const { return layout().scales_follow; }

  // 8 pages of 16 slots; without a second cache unless `extra_topk`.
  static Axes Small(int64_t num_tokens, int64_t num_heads, int64_t topk, int64_t extra_topk = 0) {
    return {{"num_tokens", num_tokens}, {"num_qo_heads", num_heads}, {"topk", topk},
            {"num_pages", 8},           {"page_size", 16},           {"extra_topk", extra_topk},
            {"extra_num_pages", 5},     {"extra_page_size", 2}};
  }

  // All zero, every list -1, every scale 1, lengths whole, no sink, sm_scale 1.
  Problem Blank(const Axes& axes) const {
    Problem problem(*op_, axes);
    for (auto& memory : problem.memory) std::fill(memory.begin(), memory.end(), 0);
    for (int input : {kSparseIndices, kExtraIndices}) {
      for (int32_t& slot : problem.Input<int32_t>(input)) slot = -1;
    }
    for (int32_t& n : problem.Input<int32_t>(kTopkLength)) n = problem.axes[kTopk];
    for (int32_t& n : problem.Input<int32_t>(kExtraTopkLength)) n = problem.axes[kExtraTopk];
    for (float& sink : problem.Input<float>(kSink)) sink = -kInfinity;
    problem.Input<float>(kSmScale)[0] = 1;
    for (int64_t slot = 0; slot < 128; ++slot) PutScales(problem, slot, 0);
    return problem;
  }

  // Where the definitions' READMEs say that things lie, 16 slots a page.
  uint8_t* Code(Problem& problem, int64_t slot, int dim) const {
    uint8_t* const cache = problem.Input<uint8_t>(kKvCache).data();
    return is_v4() ? cache + slot / 16 * 16 * 584 + slot % 16 * 576 + dim
                   : cache + slot * 656 + dim;
  }
  void PutRope(Problem& problem, int64_t slot, int dim, float value) const {
    const uint16_t bits = FloatToBf16(value);
    std::memcpy(Code(problem, slot, 0) + (is_v4() ? 448 : 528) + 2 * dim, &bits, 2);
  }
  void PutScale(Problem& problem, int64_t slot, int group, int exponent) const {
    if (is_v4()) {
      problem.Input<uint8_t>(kKvCache)[slot / 16 * 16 * 584 + 16 * 576 + slot % 16 * 8 + group] =
          static_cast<uint8_t>(kE8m0One + exponent);
    } else {
      const float scale = std::ldexp(1.0f, exponent);
      std::memcpy(Code(problem, slot, 0) + 512 + 4 * group, &scale, 4);
    }
  }
  void PutScales(Problem& problem, int64_t slot, int exponent) const {
    for (int group = 0; group < layout().groups(); ++group)
      PutScale(problem, slot, group, exponent);
  }

  const std::unique_ptr<Operation> op_ = BuiltinOperation(GetParam().op);
};

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

TEST_P(MlaFp8, SpecNamesWhatTheCodeCounts) {
  const OpSpec& spec = op_->spec();
  EXPECT_EQ(spec.op_type, "dsa_paged");
  EXPECT_EQ(spec.key_policy, "topk:pow2");
  EXPECT_EQ(spec.AxisIndex("num_tokens"), kNumTokens);
  EXPECT_EQ(spec.AxisIndex("num_qo_heads"), kNumHeads);
  EXPECT_EQ(spec.AxisIndex("head_dim"), kHeadDim);
  EXPECT_EQ(spec.AxisIndex("page_size"), kPageSize);
  EXPECT_EQ(spec.AxisIndex("num_pages"), kNumPages);
  EXPECT_EQ(spec.AxisIndex("topk"), kTopk);
  EXPECT_EQ(spec.AxisIndex("extra_page_size"), kExtraPageSize);
  EXPECT_EQ(spec.AxisIndex("extra_num_pages"), kExtraNumPages);
  EXPECT_EQ(spec.AxisIndex("extra_topk"), kExtraTopk);
  EXPECT_EQ(spec.axes[kHeadDim].value, layout().key_dims());
  EXPECT_EQ(spec.axes[spec.AxisIndex("token_bytes")].value, layout().token_bytes);
  for (const auto& [input, name] : {std::pair{kQ, "q"},
                                    {kKvCache, "kv_cache"},
                                    {kSparseIndices, "sparse_indices"},
                                    {kTopkLength, "topk_length"},
                                    {kSink, "sink"},
                                    {kExtraKvCache, "extra_kv_cache"},
                                    {kExtraIndices, "extra_indices"},
                                    {kExtraTopkLength, "extra_topk_length"},
                                    {kSmScale, "sm_scale"}}) {
    EXPECT_EQ(spec.TensorIndex(name), input);
    EXPECT_EQ(spec.inputs[input].optional, input >= kTopkLength && input <= kExtraTopkLength);
  }
  EXPECT_EQ(spec.TensorIndex("output"), kSmScale + 1 + kOutput);
  EXPECT_EQ(spec.TensorIndex("lse"), kSmScale + 1 + kLse);
  EXPECT_EQ(spec.inputs[kSmScale].scalar_default, kDefaultSmScale);
}

TEST_P(MlaFp8, TheLimitsAreKept) {
  const OpSpec& spec = op_->spec();
  EXPECT_TRUE(ResolveAxes(spec, {}).ok());
  EXPECT_TRUE(ResolveAxes(spec, {{"num_tokens", 0}}).ok());
  EXPECT_TRUE(ResolveAxes(spec, {{"topk", 32768}, {"num_qo_heads", 128}}).ok());
  EXPECT_TRUE(ResolveAxes(spec, {{"extra_num_pages", 0}, {"extra_page_size", 0}}).ok());
  EXPECT_FALSE(ResolveAxes(spec, {{"topk", 0}}).ok());
  EXPECT_FALSE(ResolveAxes(spec, {{"topk", 32769}}).ok());
  EXPECT_FALSE(ResolveAxes(spec, {{"extra_topk", 32769}}).ok());
  EXPECT_FALSE(ResolveAxes(spec, {{"num_qo_heads", 0}}).ok());
  EXPECT_FALSE(ResolveAxes(spec, {{"num_qo_heads", 129}}).ok());
  EXPECT_EQ(ResolveAxes(spec, {{"page_size", 3}}).ok(), !is_v4());
}

TEST_P(MlaFp8, MinimumBytesCountsEachCacheRowOnce) {
  auto bytes = [&](const Axes& axes) { return op_->MinimumBytes(*ResolveAxes(op_->spec(), axes)); };
  const int64_t row = layout().token_bytes, q_and_o = 2 * (layout().key_dims() + 512);
  // Two lists of 512 among 32768 slots have 8 in common: 32768 * (1 - (63/64)^2) = 1016.
  EXPECT_EQ(bytes({{"num_tokens", 2}, {"topk", 512}, {"num_pages", 512}}),
            1016 * row + 2 * 16 * q_and_o + 2 * 512 * 4);
  // More slots than the caches have.
  EXPECT_EQ(bytes(Small(4, 16, 512, 6)), (128 + 10) * row + 4 * 16 * q_and_o + 4 * 518 * 4);
  EXPECT_EQ(bytes({{"num_tokens", 0}}), 0);
}

TEST_P(MlaFp8, ReferenceMeetsACaseComputedByHand) {
  Problem problem = Blank(Small(1, 1, 3));
  auto q = problem.Input<uint16_t>(kQ);
  const int last_code = layout().codes - 1;
  q[0] = FloatToBf16(2), q[last_code] = FloatToBf16(3), q[layout().codes + 63] = FloatToBf16(1);
  // Slot 5: 2 * (1 * 2^-1) + 1 * 0.5. Slot 17, on the second page: 3 * (-1 * 2^-2) + 1 * -0.25.
  *Code(problem, 5, 0) = kOne;
  PutScale(problem, 5, 0, -1);
  PutRope(problem, 5, 63, 0.5f);
  *Code(problem, 17, last_code) = kMinusOne;
  PutScale(problem, 17, layout().groups() - 1, -2);
  PutRope(problem, 17, 63, -0.25f);
  auto indices = problem.Input<int32_t>(kSparseIndices);
  indices[0] = 5, indices[1] = -1, indices[2] = 17;

  const double a = std::exp(1.5), b = std::exp(-1.0);
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  EXPECT_NEAR(outputs[kOutput].expected[0], 0.5 * a / (a + b), 1e-14);
  EXPECT_NEAR(outputs[kOutput].expected[last_code], -0.25 * b / (a + b), 1e-14);
  EXPECT_EQ(outputs[kOutput].expected[1], 0);
  EXPECT_NEAR(outputs[kLse].expected[0], std::log2(a + b), 1e-14);
  EXPECT_NEAR(outputs[kOutput].bound[0], 2 * 0.5 * a / (a + b) / 256, 1e-15);
  EXPECT_EQ(outputs[kOutput].bound[1], 0);
  EXPECT_DOUBLE_EQ(outputs[kLse].bound[0], 1e-6 + 8.01 / 65536 * std::log2(a + b));
  EXPECT_EQ(outputs[kOutput].cosine_limit, 5e-6);
  // The V4 layout's value is the whole row; V3.2's ends where RoPE begins.
  if (is_v4()) {
    EXPECT_NEAR(outputs[kOutput].expected[511], (0.5 * a - 0.25 * b) / (a + b), 1e-14);
    EXPECT_NEAR(outputs[kOutput].bound[511],
                ((0.5 * a - 0.25 * b) + (0.5 * a + 0.25 * b)) / (a + b) / 256, 1e-15);
  }
}

TEST_P(MlaFp8, EveryDimHasTheScaleOfItsGroup) {
  Problem problem = Blank(Small(1, 1, 1));
  for (int dim = 0; dim < layout().codes; ++dim) *Code(problem, 3, dim) = kThree;
  for (int group = 0; group < layout().groups(); ++group)
    PutScale(problem, 3, group, 20 - 9 * group);
  problem.Input<int32_t>(kSparseIndices)[0] = 3;
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  for (int dim = 0; dim < layout().codes; ++dim) {
    EXPECT_EQ(outputs[kOutput].expected[dim], std::ldexp(3.0, 20 - 9 * (dim / layout().group)))
        << dim;
  }
}

TEST_P(MlaFp8, TheSinkTakesWeightFromTheOutputAndNoneFromLse) {
  Problem problem = Blank(Small(1, 4, 1));
  *Code(problem, 3, 0) = kTwo;
  problem.Input<int32_t>(kSparseIndices)[0] = 3;
  auto q = problem.Input<uint16_t>(kQ);
  for (int head = 0; head < 4; ++head) q[head * layout().key_dims()] = FloatToBf16(1.5f);
  auto sinks = problem.Input<float>(kSink);
  sinks[0] = 3, sinks[1] = 2, sinks[2] = kInfinity;  // the score is 3
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  EXPECT_NEAR(outputs[kOutput].expected[0], 2 * 0.5, 1e-15);
  EXPECT_NEAR(outputs[kOutput].expected[512], 2 / (1 + std::exp(-1.0)), 1e-15);
  EXPECT_EQ(outputs[kOutput].expected[2 * 512], 0);
  EXPECT_EQ(outputs[kOutput].bound[2 * 512], 0);
  EXPECT_EQ(outputs[kOutput].expected[3 * 512], 2);
  for (int head = 0; head < 4; ++head) {
    EXPECT_NEAR(outputs[kLse].expected[head], 3 / std::log(2.0), 1e-14);
  }
  problem.inputs[kSink].data = nullptr;
  EXPECT_EQ(problem.Reference()[kOutput].expected[0], 2);
}

TEST_P(MlaFp8, TheSecondCacheIsMoreOfTheSameList) {
  Problem problem = Blank(Small(1, 1, 2, 2));
  for (const auto& [slot, code] : {std::pair{5, kOne}, {6, kTwo}, {17, kThree}}) {
    *Code(problem, slot, 0) = code;
  }
  auto q = problem.Input<uint16_t>(kQ);
  q[0] = FloatToBf16(0.5f);
  // The rows of slots 5 and 17 once more, in pages of 2: slots 3 and 8.
  const auto cache = problem.Input<uint8_t>(kKvCache),
             extra = problem.Input<uint8_t>(kExtraKvCache);
  for (const auto& [from, to] : {std::pair{5, 3}, {17, 8}}) {
    const auto source = RowOf<const uint8_t>(layout(), cache.data(), 16, from);
    const auto target = RowOf<uint8_t>(layout(), extra.data(), 2, to);
    std::copy_n(source.codes, layout().codes, target.codes);
    std::copy_n(source.rope, 128, target.rope);
    std::copy_n(source.scales, is_v4() ? 8 : 16, target.scales);
  }
  auto indices = problem.Input<int32_t>(kSparseIndices);
  auto extra_indices = problem.Input<int32_t>(kExtraIndices);
  indices[0] = 6, extra_indices[0] = 3, extra_indices[1] = 8;
  const auto both = problem.Reference();
  Problem one = Blank(Small(1, 1, 3));
  std::copy(cache.begin(), cache.end(), one.Input<uint8_t>(kKvCache).begin());
  one.Input<uint16_t>(kQ)[0] = FloatToBf16(0.5f);
  auto all = one.Input<int32_t>(kSparseIndices);
  all[0] = 6, all[1] = 5, all[2] = 17;
  const auto expected = one.Reference();
  EXPECT_GT(expected[kOutput].expected[0], 2);
  ExpectNear(both[kOutput], expected[kOutput], 1e-14);
  ExpectNear(both[kLse], expected[kLse], 1e-14);

  problem.Input<int32_t>(kExtraTopkLength)[0] = 0;
  EXPECT_EQ(problem.Reference()[kOutput].expected[0], 2);
}

TEST_P(MlaFp8, AbsentTensorsMeanWholeListsNoSinkAndOneCache) {
  Problem problem(*op_, Small(4, 3, 20));
  problem.Generate(2);
  for (float& sink : problem.Input<float>(kSink)) sink = -kInfinity;
  const auto with = problem.Reference();
  for (int input : {kTopkLength, kSink, kExtraKvCache, kExtraIndices, kExtraTopkLength}) {
    problem.inputs[input].data = nullptr;
  }
  const auto without = problem.Reference();
  ExpectNear(without[kOutput], with[kOutput], 0);
  ExpectNear(without[kLse], with[kLse], 0);
}

TEST_P(MlaFp8, NothingThatCountsGivesZeroAndMinusInfinityWhateverTheSink) {
  Problem problem = Blank(Small(3, 4, 8, 3));
  auto sinks = problem.Input<float>(kSink);
  sinks[0] = 1, sinks[1] = kInfinity;
  problem.Input<int32_t>(kTopkLength)[1] = 0;
  problem.Input<int32_t>(kSparseIndices)[8] = 1 << 30;  // beyond the length
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  EXPECT_THAT(outputs[kOutput].expected, Each(0.0));
  EXPECT_THAT(outputs[kOutput].bound, Each(0.0));
  EXPECT_THAT(outputs[kLse].expected, Each(-kInfinity));
}

TEST_P(MlaFp8, OrderOfTheEntriesDoesNotMatter) {
  Problem problem(*op_, Small(4, 17, 60, 7));
  const std::vector<ReferenceOutput> before = problem.Generate(6).Reference();
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

TEST_P(MlaFp8, NumberOfThreadsDoesNotMatter) {
  Problem problem(*op_, Small(5, 33, 20, 4));
  problem.Generate(7);
  const std::vector<ReferenceOutput> one = problem.Reference(1), many = problem.Reference(7);
  for (int output : {kOutput, kLse}) {
    EXPECT_EQ(one[output].expected, many[output].expected);
    EXPECT_EQ(one[output].bound, many[output].bound);
  }
}

TEST_P(MlaFp8, ASlotBeyondTheCacheOrALengthBeyondTheListIsNamed) {
  Problem problem = Blank(Small(2, 1, 4, 2));
  const auto message = [&] {
    const auto outputs = op_->Reference(problem.axes, problem.inputs, 1);
    EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(outputs.status().message());
  };
  problem.Input<int32_t>(kExtraIndices)[3] = 10;
  EXPECT_THAT(message(), HasSubstr("extra_indices[1, 1] is 10, beyond the cache of 10 slots"));
  problem.Input<int32_t>(kSparseIndices)[6] = 128;
  EXPECT_THAT(message(), HasSubstr("sparse_indices[1, 2] is 128"));
  problem.Input<int32_t>(kTopkLength)[1] = 5;
  EXPECT_THAT(message(), HasSubstr("topk_length[1] is 5, for a list of 4"));
}

TEST_P(MlaFp8, AnEmptyBatchHasEmptyResults) {
  Problem problem(*op_, Small(0, 16, 4));
  const std::vector<ReferenceOutput> outputs = problem.Generate(11).Reference(4);
  EXPECT_TRUE(outputs[kOutput].expected.empty());
  EXPECT_TRUE(outputs[kLse].expected.empty());
}

// --- The layouts --------------------------------------------------------------------------------

TEST_P(MlaFp8, ARowComesBackAsItsQuantisationLeavesIt) {
  const int dims = layout().key_dims();
  std::vector<float> values(dims);
  for (int i = 0; i < dims; ++i) values[i] = std::sin(1.7f * i) * (i % 5 + 1);
  std::vector<int> exponents;
  for (int group = 0; group < layout().groups(); ++group) exponents.push_back(3 * group - 5);
  std::vector<uint8_t> page(16 * layout().token_bytes, 0xff);
  Encode(layout(), values.data(), exponents.data(), RowOf(layout(), page.data(), 16, 11));
  std::vector<double> row(dims);
  Decode(layout(), RowOf<const uint8_t>(layout(), page.data(), 16, 11), row.data());
  for (int i = 0; i < layout().codes; ++i) {
    const int group = i / layout().group;
    const double expected = std::ldexp(values[i], exponents[group]);
    // e4m3 keeps 4 bits: an error of 2^-4 of the value, or of half the smallest code, which a scale
    // of at most 2 * 5 / 448 makes 5 * 2^-18.
    const double error = std::max(std::abs(expected) / 16, std::ldexp(5.0, exponents[group] - 18));
    EXPECT_NEAR(row[i], expected, error) << i;
  }
  for (int i = layout().codes; i < dims; ++i) {
    EXPECT_EQ(row[i], Bf16ToFloat(FloatToBf16(values[i]))) << i;
  }
  // Nothing else of the page was written, the pad of the row's scales included.
  const auto written = std::count_if(page.begin(), page.end(), [](uint8_t b) { return b != 0xff; });
  EXPECT_LE(written, layout().token_bytes - (is_v4() ? 1 : 0));
  EXPECT_GT(written, layout().token_bytes - 40);
}

TEST_P(MlaFp8, TheScaleIsTheLeastThatSaturatesNothing) {
  std::vector<float> values(layout().key_dims(), 0.25f);
  values[1] = -3.0f;
  const std::vector<int> exponents(layout().groups(), 0);
  std::vector<uint8_t> page(16 * layout().token_bytes);
  const Row<uint8_t> row = RowOf(layout(), page.data(), 16, 2);
  Encode(layout(), values.data(), exponents.data(), row);
  if (is_v4()) {
    EXPECT_EQ(row.scales[0], kE8m0One - 7);  // 3 / 448 lies above 2^-8
  } else {
    float scale;
    std::memcpy(&scale, row.scales, sizeof(scale));
    EXPECT_EQ(scale, 3.0f / 448);
    EXPECT_EQ(row.codes[1], 0xfe);  // -448
  }
}

// --- The generator ------------------------------------------------------------------------------

TEST_P(MlaFp8, InputsAreAFunctionOfTheSeed) {
  Problem one(*op_, Small(5, 3, 40, 4)), same(*op_, Small(5, 3, 40, 4)),
      other(*op_, Small(5, 3, 40, 4));
  one.Generate(1), same.Generate(1), other.Generate(2);
  EXPECT_EQ(one.memory, same.memory);
  for (int input : {kQ, kKvCache, kSparseIndices, kSink, kExtraKvCache, kExtraIndices}) {
    EXPECT_NE(one.memory[input], other.memory[input]) << input;
  }
  EXPECT_FLOAT_EQ(one.Input<float>(kSmScale)[0], kDefaultSmScale);
}

TEST_P(MlaFp8, AnEvenSeedFillsEveryListWithDistinctSlots) {
  Problem problem(*op_, Small(9, 1, 100, 9));
  problem.Generate(4);
  EXPECT_THAT(problem.Input<int32_t>(kTopkLength), Each(100));
  EXPECT_THAT(problem.Input<int32_t>(kExtraTopkLength), Each(9));
  const absl::Span<int32_t> indices = problem.Input<int32_t>(kSparseIndices);
  for (int token = 0; token < 9; ++token) {
    std::set<int32_t> seen;
    for (int32_t slot : indices.subspan(token * 100, 100)) {
      ASSERT_GT(slot, 0);  // slot 0 is what a careless kernel reads for padding
      ASSERT_LT(slot, 8 * 16);
      EXPECT_TRUE(seen.insert(slot).second) << slot;
    }
  }
}

TEST_P(MlaFp8, AnOddSeedHasWhatKernelsMustSurvive) {
  Problem problem(*op_, Small(8, 1, 100, 6));
  problem.Generate(5);
  const absl::Span<int32_t> indices = problem.Input<int32_t>(kSparseIndices);
  const absl::Span<int32_t> extra = problem.Input<int32_t>(kExtraIndices);
  int full = 0, scattered = 0, cut = 0, garbage = 0, empty = 0, only_extra = 0;
  for (int token = 0; token < 8; ++token) {
    const int32_t length = problem.Input<int32_t>(kTopkLength)[token];
    ASSERT_GE(length, 0);
    ASSERT_LE(length, 100);
    const absl::Span<int32_t> list = indices.subspan(token * 100, 100);
    const auto padding = std::count(list.begin(), list.begin() + length, -1);
    full += padding == 0 && length == 100;
    scattered += padding > 0 && padding < 100;
    cut += length > 0 && length < 100;
    garbage += std::any_of(list.begin() + length, list.end(), [](int32_t s) { return s >= 128; });
    const absl::Span<int32_t> window = extra.subspan(token * 6, 6);
    const bool no_window =
        std::all_of(window.begin(), window.end(), [](int32_t s) { return s < 0; });
    empty += padding == 100 && no_window;
    only_extra += length == 0 && !no_window;
  }
  EXPECT_GE(full, 1);
  EXPECT_GE(scattered, 2);
  EXPECT_GE(cut, 2);
  EXPECT_GE(garbage, 2);
  EXPECT_EQ(empty, 1);
  EXPECT_EQ(only_extra, 1);
}

TEST_P(MlaFp8, OnlyRowsThatAListNamesAreNumbers) {
  Problem problem(*op_, Small(3, 1, 30));
  problem.Generate(3);
  std::set<int32_t> named;
  for (int token = 0; token < 3; ++token) {
    for (int i = 0; i < problem.Input<int32_t>(kTopkLength)[token]; ++i) {
      named.insert(problem.Input<int32_t>(kSparseIndices)[token * 30 + i]);
    }
  }
  EXPECT_EQ(named.count(0), 0u);
  double squares = 0;
  for (int32_t slot = 0; slot < 128; ++slot) {
    std::vector<double> row(layout().key_dims());
    Decode(layout(),
           RowOf<const uint8_t>(layout(), problem.Input<uint8_t>(kKvCache).data(), 16, slot),
           row.data());
    const bool numbers =
        std::none_of(row.begin(), row.end(), [](double x) { return std::isnan(x); });
    const bool all_nan =
        std::all_of(row.begin(), row.end(), [](double x) { return std::isnan(x); });
    EXPECT_EQ(numbers, named.count(slot) == 1) << slot;
    EXPECT_EQ(all_nan, named.count(slot) == 0) << slot;
    if (numbers) {
      for (double x : row) squares += x * x;
    }
  }
  EXPECT_NEAR(squares / (layout().key_dims() * (named.size() - named.count(-1))), 0.9, 0.3);
}

INSTANTIATE_TEST_SUITE_P(, MlaFp8,
                         ::testing::Values(Form{"mla_sparse_decode_fp8", kV4},
                                           Form{"mla_sparse_decode_fp8_v32", kV32}),
                         [](const auto& form) { return std::string(form.param.op); });

}  // namespace
}  // namespace kvr::mla_fp8
