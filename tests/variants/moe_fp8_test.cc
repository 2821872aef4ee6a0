// SPDX-License-Identifier: Apache-2.0
//
// moe_decode_fp8: its reference beside a plain evaluation of the contract and by hand, what its
// generator draws, and its quality measures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/dtype.h"
#include "tests/variants/problem.h"
#include "variants/common/bfloat16.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

constexpr uint8_t kOne = 0x38, kTwo = 0x40;  // e4m3
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// `hidden` and `inner` in blocks of 128.
Axes Shape(int64_t tokens, int64_t hidden, int64_t inner, const Axes& more = {}) {
  Axes axes = {{"seq_len", tokens},
               {"hidden_size", 128 * hidden},
               {"num_hidden_blocks", hidden},
               {"intermediate_size", 128 * inner},
               {"num_intermediate_blocks", inner},
               {"gemm1_out_size", 256 * inner},
               {"num_gemm1_out_blocks", 2 * inner}};
  for (const auto& [name, value] : more) axes[name] = value;
  return axes;
}

double E4m3(const Problem& problem, int input, int64_t i) {
  return LoadAsDouble(problem.inputs[input].data, DType::kF8E4M3, i);
}

double F32(const Problem& problem, int input, int64_t i) {
  return static_cast<const float*>(problem.inputs[input].data)[i];
}

// Positions of the `count` largest, ties to the lowest.
std::vector<int64_t> Largest(const std::vector<double>& values, int64_t count) {
  std::vector<int64_t> best;
  std::vector<bool> taken(values.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t next = -1;
    for (size_t e = 0; e < values.size(); ++e) {
      if (!taken[e] && (next < 0 || values[e] > values[next])) next = static_cast<int64_t>(e);
    }
    taken[next] = true;
    best.push_back(next);
  }
  return best;
}

// The contract's definition, step by step and nothing else: every weight dequantised, a token at a
// time.
std::vector<double> Plain(const Problem& problem) {
  const AxisVector& axes = problem.axes;
  const int64_t experts = axes[kNumExperts], hidden = axes[kHidden], inner = axes[kInner];
  const int64_t group_size = experts / axes[kNumGroups];
  std::vector<double> out(axes[kSeqLen] * hidden);
  for (int64_t token = 0; token < axes[kSeqLen]; ++token) {
    std::vector<double> s(experts), biased(experts), groups(axes[kNumGroups]);
    for (int64_t e = 0; e < experts; ++e) {
      s[e] = 1 / (1 + std::exp(-F32(problem, kRoutingLogits, token * experts + e)));
      biased[e] = s[e] + LoadAsDouble(problem.inputs[kRoutingBias].data, DType::kBF16, e);
    }
    for (int64_t g = 0; g < axes[kNumGroups]; ++g) {
      std::vector<double> own(biased.begin() + g * group_size,
                              biased.begin() + (g + 1) * group_size);
      std::sort(own.rbegin(), own.rend());
      groups[g] = own[0] + own[1];
    }
    std::vector<double> pruned(experts, std::numeric_limits<float>::lowest());
    for (const int64_t g : Largest(groups, axes[kTopkGroup])) {
      for (int64_t e = g * group_size; e < (g + 1) * group_size; ++e) pruned[e] = biased[e];
    }
    const std::vector<int64_t> chosen = Largest(pruned, axes[kTopK]);
    double sum = 1e-20;
    for (const int64_t e : chosen) sum += s[e];

    for (const int64_t e : chosen) {
      const int64_t local = e - axes[kLocalOffset];
      if (local < 0 || local >= axes[kNumLocal]) continue;
      const double weight = s[e] / sum * F32(problem, kRoutedScalingFactor, 0);
      const auto first = [&](int64_t row) {
        double dot = 0;
        for (int64_t d = 0; d < hidden; ++d) {
          const double x = E4m3(problem, kHiddenStates, token * hidden + d) *
                           F32(problem, kHiddenStatesScale, d / 128 * axes[kSeqLen] + token);
          const double w = E4m3(problem, kGemm1Weights, (local * 2 * inner + row) * hidden + d) *
                           F32(problem, kGemm1WeightsScale,
                               (local * 2 * inner / 128 + row / 128) * (hidden / 128) + d / 128);
          dot += x * w;
        }
        return dot;
      };
      const double limit = F32(problem, kClampLimit, local);
      const double alpha = F32(problem, kAlpha, local), beta = F32(problem, kBeta, local);
      std::vector<double> h(inner);
      for (int64_t i = 0; i < inner; ++i) {
        const double x1 = std::max(-limit, std::min(limit, first(i)));
        const double x2 = std::min(limit, first(inner + i));
        h[i] = x2 * (1 / (1 + std::exp(-alpha * x2))) * (x1 + beta);
      }
      for (int64_t d = 0; d < hidden; ++d) {
        double dot = 0;
        for (int64_t i = 0; i < inner; ++i) {
          dot += h[i] * E4m3(problem, kGemm2Weights, (local * hidden + d) * inner + i) *
                 F32(problem, kGemm2WeightsScale,
                     (local * hidden / 128 + d / 128) * (inner / 128) + i / 128);
        }
        out[token * hidden + d] += weight * dot;
      }
    }
  }
  return out;
}

class MoeFp8 : public ::testing::Test {
 protected:
  Problem Draw(const Axes& axes, uint64_t seed) const {
    Problem problem(*op_, axes);
    problem.Generate(seed);
    return problem;
  }

  // One token, two experts, both chosen with weight 1/2 and both here; all codes 0, scales 1, no
  // bias, factor 1.
  Problem Blank(const Axes& more = {}) const {
    Axes axes = {{"num_experts", 2}, {"top_k", 2},      {"num_local_experts", 2},
                 {"n_group", 1},     {"topk_group", 1}, {"local_expert_offset", 0}};
    for (const auto& [name, value] : more) axes[name] = value;
    Problem problem(*op_, Shape(1, 1, 1, axes));
    problem.Generate(0);
    for (const int input :
         {kRoutingLogits, kRoutingBias, kHiddenStates, kGemm1Weights, kBeta, kGemm2Weights}) {
      std::fill(problem.memory[input].begin(), problem.memory[input].end(), 0);
    }
    for (const int input : {kHiddenStatesScale, kGemm1WeightsScale, kGemm2WeightsScale, kAlpha,
                            kRoutedScalingFactor}) {
      for (float& value : problem.Input<float>(input)) value = 1;
    }
    for (float& limit : problem.Input<float>(kClampLimit)) limit = kInfinity;
    return problem;
  }

  std::unique_ptr<Operation> op_ = BuiltinOperation("moe_decode_fp8");
};

TEST_F(MoeFp8, IsThePlainEvaluation) {
  const Axes routing = {{"num_experts", 12}, {"top_k", 3},      {"num_local_experts", 5},
                        {"n_group", 3},      {"topk_group", 2}, {"local_expert_offset", 4}};
  for (const auto& [seed, axes] : {std::pair{2, Shape(5, 2, 1, routing)},
                                   {1, Shape(6, 1, 2, routing)},
                                   {4, Shape(3, 3, 1, routing)}}) {
    const Problem problem = Draw(axes, seed);
    const std::vector<double> plain = Plain(problem);
    const ReferenceOutput out = problem.Reference(2)[kOutput];
    double largest = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LE(std::abs(plain[i] - out.expected[i]), 1e-9 * out.bound[i]) << seed << " " << i;
      largest = std::max(largest, std::abs(plain[i]));
    }
    EXPECT_GT(largest, 0.01);
  }
}

TEST_F(MoeFp8, TheSecondHalfOfTheFirstLayerIsTheGate) {
  Problem problem = Blank();
  problem.Input<uint8_t>(kHiddenStates)[0] = kOne;
  // Expert 0: up 2, gate 1, of inner row 3; expert 1 nothing.
  problem.Input<uint8_t>(kGemm1Weights)[3 * 128] = kTwo;
  problem.Input<uint8_t>(kGemm1Weights)[(128 + 3) * 128] = kOne;
  problem.Input<uint8_t>(kGemm2Weights)[7 * 128 + 3] = kOne;
  const double silu = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(problem.Reference()[kOutput].expected[7], silu * 2 / 2, 1e-12);
  // Swiglu's three: alpha, beta, the limit on both.
  problem.Input<float>(kAlpha)[0] = 3;
  problem.Input<float>(kBeta)[0] = -0.25f;
  EXPECT_NEAR(problem.Reference()[kOutput].expected[7], 1 / (1 + std::exp(-3.0)) * 1.75 / 2, 1e-12);
  problem.Input<float>(kClampLimit)[0] = 0.5f;
  EXPECT_NEAR(problem.Reference()[kOutput].expected[7],
              0.5 / (1 + std::exp(-1.5)) * (0.5 - 0.25) / 2, 1e-12);
  // Up has a lower limit as well, gate has none.
  problem.Input<uint8_t>(kGemm1Weights)[3 * 128] = kTwo | 0x80;
  problem.Input<uint8_t>(kGemm1Weights)[(128 + 3) * 128] = kTwo | 0x80;
  EXPECT_NEAR(problem.Reference()[kOutput].expected[7],
              -2 / (1 + std::exp(6.0)) * (-0.5 - 0.25) / 2, 1e-12);
}

TEST_F(MoeFp8, WeightsCountExpertsThatAreElsewhere) {
  for (const int64_t offset : {0, 1}) {
    Problem problem = Blank({{"num_local_experts", 1}, {"local_expert_offset", offset}});
    problem.Input<float>(kRoutingLogits)[1] = std::log(3.0f);  // sigmoid 3/4, beside 1/2
    problem.Input<uint8_t>(kHiddenStates)[0] = kOne;
    problem.Input<uint8_t>(kGemm1Weights)[0] = kOne;
    problem.Input<uint8_t>(kGemm1Weights)[128 * 128] = kOne;
    problem.Input<uint8_t>(kGemm2Weights)[0] = kOne;
    const std::vector<ReferenceOutput> outputs = problem.Reference();
    const double weight = offset == 0 ? 0.4 : 0.6;
    EXPECT_NEAR(outputs[kOutput].expected[0], weight / (1 + std::exp(-1.0)), 1e-7);
    EXPECT_EQ(outputs[kExpertIds].expected[0], 1);  // best first, of all ranks
    EXPECT_EQ(outputs[kExpertIds].expected[1], 0);
    EXPECT_EQ(outputs[kExpertIds].expected[2], -1);
    EXPECT_NEAR(outputs[kExpertWeights].expected[0], 0.6, 1e-7);
  }
}

TEST_F(MoeFp8, ScoresThatUnderflowWeighNothing) {
  Problem problem = Draw(Shape(1, 1, 1), 2);
  for (float& logit : problem.Input<float>(kRoutingLogits)) logit = -200;
  EXPECT_THAT(problem.Reference()[kOutput].expected, Each(::testing::DoubleNear(0, 1e-50)));
}

TEST_F(MoeFp8, TokensOfOtherRanksGetZeros) {
  // Where the experts end: some of this rank's are beyond, or all.
  const auto zeros = [&](int64_t offset) {
    const Problem problem = Draw(Shape(9, 1, 1, {{"local_expert_offset", offset}}), 4);
    const std::vector<ReferenceOutput> outputs = problem.Reference();
    int count = 0;
    for (int64_t token = 0; token < 9; ++token) {
      bool here = false;
      for (int64_t slot = 0; slot < problem.axes[kTopK]; ++slot) {
        const double id = outputs[kExpertIds].expected[token * problem.axes[kSlots] + slot];
        here |= id >= static_cast<double>(offset) && id < static_cast<double>(offset + 16);
      }
      const double* const row = outputs[kOutput].expected.data() + token * 128;
      EXPECT_EQ(std::all_of(row, row + 128, [](double v) { return v == 0; }), !here);
      count += here ? 0 : 1;
    }
    return count;
  };
  EXPECT_LT(zeros(0), 9);
  EXPECT_GT(zeros(28), 0);
  EXPECT_EQ(zeros(32), 9);
}

TEST_F(MoeFp8, AllTokensMayTakeOneExpert) {
  const Problem problem = Draw(
      Shape(20, 1, 1, {{"top_k", 1}, {"n_group", 1}, {"topk_group", 1}, {"correlation", 1000}}), 6);
  const std::vector<double> plain = Plain(problem);
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  std::set<double> active;
  for (int64_t token = 0; token < 20; ++token) {
    active.insert(outputs[kExpertIds].expected[token * problem.axes[kSlots]]);
  }
  EXPECT_EQ(active.size(), 1u);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_LE(std::abs(plain[i] - outputs[kOutput].expected[i]), 1e-9 * outputs[kOutput].bound[i]);
  }
}

TEST_F(MoeFp8, RefusesMoreValidTokensThanThereAre) {
  Problem problem = Draw(Shape(2, 1, 1), 2);
  problem.Input<int32_t>(kNumValidTokens)[0] = 3;
  const auto refused = op_->Reference(problem.axes, problem.inputs, 1);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("num_valid_tokens is 3"));
}

TEST_F(MoeFp8, CodesAreNumbersOfTheWholeRangeAndEvenSeedsHavePlainScales) {
  for (const uint64_t seed : {2, 3}) {
    Problem problem = Draw(Shape(16, 2, 2), seed);
    for (const int input : {kHiddenStates, kGemm1Weights, kGemm2Weights}) {
      double largest = 0, square = 0;
      const auto codes = problem.Input<uint8_t>(input);
      for (size_t i = 0; i < codes.size(); ++i) {
        ASSERT_NE(codes[i] & 0x7f, 0x7f) << "NaN";
        largest = std::max(largest, std::abs(E4m3(problem, input, static_cast<int64_t>(i))));
        square += std::pow(E4m3(problem, input, static_cast<int64_t>(i)), 2);
      }
      EXPECT_GE(largest, 320);
      EXPECT_NEAR(std::sqrt(square / static_cast<double>(codes.size())), 448 / 4.34, 4);
    }
    const auto least = [&](int input) {
      const auto scales = problem.Input<float>(input);
      return *std::min_element(scales.begin(), scales.end());
    };
    const auto most = [&](int input) {
      const auto scales = problem.Input<float>(input);
      return *std::max_element(scales.begin(), scales.end());
    };
    for (const int input : {kHiddenStatesScale, kGemm1WeightsScale, kGemm2WeightsScale}) {
      EXPECT_GT(least(input), 0);
      if (seed % 2 == 0) {
        EXPECT_LE(most(input) / least(input), 8);
      } else {
        EXPECT_GT(most(input) / least(input), 1e5);
      }
    }
  }
}

TEST_F(MoeFp8, WhatOddSeedsMoveBetweenFactorsStaysInRange) {
  for (const uint64_t seed : {2, 5}) {
    const std::vector<ReferenceOutput> outputs = Draw(Shape(8, 2, 2), seed).Reference();
    double largest = 0;
    for (const double value : outputs[kOutput].expected) {
      largest = std::max(largest, std::abs(value));
    }
    EXPECT_GT(largest, 1e-2) << seed;
    EXPECT_LT(largest, 1e5) << seed;
  }
}

TEST_F(MoeFp8, OneSeedInFourHasAPaddingToken) {
  Problem problem = Draw(Shape(5, 1, 1), 3);
  EXPECT_EQ(problem.Input<int32_t>(kNumValidTokens)[0], 4);
  const std::vector<ReferenceOutput> outputs = problem.Reference();
  for (int64_t d = 0; d < 128; ++d) EXPECT_EQ(outputs[kOutput].expected[4 * 128 + d], 0);
  EXPECT_EQ(outputs[kExpertIds].expected[4 * problem.axes[kSlots]], -1);
  EXPECT_EQ(Draw(Shape(5, 1, 1), 4).Input<int32_t>(kNumValidTokens)[0], 5);
}

TEST_F(MoeFp8, QualityCountsTheActiveExpertsOfThisRank) {
  const Problem problem = Draw(Shape(6, 1, 1, {{"local_expert_offset", 8}}), 4);
  const std::vector<ReferenceOutput> exact = problem.Reference();
  std::vector<int32_t> ids(exact[kExpertIds].expected.begin(), exact[kExpertIds].expected.end());
  std::vector<TensorView> outputs = TensorShapes(op_->spec(), problem.axes);
  outputs.erase(outputs.begin(), outputs.begin() + static_cast<int64_t>(problem.inputs.size()));
  std::vector<char> unused(1 << 16);
  for (TensorView& output : outputs) output.data = unused.data();
  outputs[kExpertIds].data = ids.data();
  const auto measure = [&](const std::string& name) {
    const auto measures = op_->Quality(problem.axes, problem.inputs, outputs, exact);
    EXPECT_TRUE(measures.ok()) << measures.status();
    for (const QualityMeasure& one : *measures) {
      if (one.name == name) return one.value;
    }
    ADD_FAILURE() << "no measure " << name;
    return -1.0;
  };
  std::set<int32_t> here;
  for (const int32_t id : ids) {
    if (id >= 8 && id < 24) here.insert(id);
  }
  EXPECT_EQ(measure("active_experts"), static_cast<double>(here.size()));
  EXPECT_EQ(measure("experts_changed"), 0);
  EXPECT_EQ(measure("mass_kept"), 1);
  std::fill_n(ids.begin(), problem.axes[kSlots], -1);  // the first token takes none
  EXPECT_NEAR(measure("experts_changed"), 1.0 / 6, 1e-12);
  EXPECT_NEAR(measure("mass_kept"), 5.0 / 6, 1e-12);
}

// A bundle holds all its files but those of what it extends. So a file of two that have no such
// parent in common is there twice, and nothing but this keeps the two alike.
TEST(MoeBundles, FilesThatTwoHaveAreTheSame) {
  const auto text = [](const std::string& path) {
    std::ifstream file(KVR_SOURCE_DIR "/variants/" + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (const auto& [one, other, name] :
       {std::tuple("moe_decode_fp8/topk/", "moe_decode_fp8/oea_stream/", "routing.cuh"),
        {"moe_decode_fp8/oea/", "moe_decode_fp8/oea_stream/", "together.cuh"},
        {"moe_decode/topk/", "moe_decode_fp8/topk/", "segments.cuh"}}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(text(std::string(one) + name).empty());
    EXPECT_EQ(text(std::string(one) + name), text(std::string(other) + name));
  }
}

// A reference is given their values alone, in the manifest's order. Four manifests state them, and
// whoever knows one of the variants knows them all.
TEST(MoeBundles, OeaHasTheSameQualityTunablesEverywhereInTheOrderOfItsReference) {
  std::map<std::string, std::vector<Tunable>> quality;
  const Scan scan = ScanBuiltins();
  for (const VariantPtr& variant : scan.variants) {
    if (!variant->op.starts_with("moe_decode") || !variant->has_reference_function) continue;
    std::vector<Tunable>& own = quality[variant->op + "/" + variant->name];
    for (const Tunable& tunable : variant->tunables) {
      if (tunable.scope == Scope::kQuality) own.push_back(tunable);
    }
  }
  EXPECT_THAT(quality, ElementsAre(Key("moe_decode/oea"), Key("moe_decode/oea_stream"),
                                   Key("moe_decode_fp8/oea"), Key("moe_decode_fp8/oea_stream")));
  const std::vector<std::string> names = {"K0", "K_MAX", "P", "MAX_P", "ACROSS_GROUPS"};
  for (const auto& [variant, own] : quality) {
    SCOPED_TRACE(variant);
    ASSERT_EQ(own.size(), names.size());
    for (size_t i = 0; i < own.size(); ++i) {
      const Tunable& one = quality.begin()->second[i];
      EXPECT_EQ(own[i].name, names[i]);
      EXPECT_EQ(own[i].values, one.values) << names[i];
      EXPECT_EQ(own[i].default_value, one.default_value) << names[i];
      EXPECT_EQ(own[i].description, one.description) << names[i];
    }
  }
}

}  // namespace
}  // namespace kvr::moe_decode_fp8
