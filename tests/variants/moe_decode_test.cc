// SPDX-License-Identifier: Apache-2.0
//
// Routing by hand, by its laws, and as the generator's tokens are routed; quality measures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/variants/moe_generated.h"

namespace kvr::moe_decode {
namespace {

using ::testing::ElementsAre;

std::vector<float> RandomLogits(std::mt19937& random, int64_t experts) {
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(experts);
  for (float& logit : logits) logit = std::round(normal(random) * 8) / 8;  // with ties
  return logits;
}

TEST(Routing, TakesTheLargestBestFirstAndTheLowestOfEqualOnes) {
  const Router router = {.num_experts = 5, .top_k = 3};
  EXPECT_THAT(Route(router, std::vector<float>{1, 3, 2, 3, 0}.data()).experts,
              ElementsAre(1, 3, 2));
}

TEST(Routing, SoftmaxWeightsAreSharesOfTheChosen) {
  Router router = {.num_experts = 3, .top_k = 2, .scaling_factor = 2};
  const std::vector<float> logits = {0, std::log(3.0f), -100};
  EXPECT_NEAR(Route(router, logits.data()).weights[0], 1.5, 1e-6);
  EXPECT_NEAR(Route(router, logits.data()).weights[1], 0.5, 1e-6);
  router.renormalize = false;
  router.scaling_factor = 1;
  router.top_k = 1;
  EXPECT_NEAR(Route(router, logits.data()).weights[0], 0.75, 1e-6);
}

TEST(Routing, BiasChoosesAndDoesNotWeigh) {
  const float bias[] = {0, 0, 1};
  const Router router = {.num_experts = 3,
                         .top_k = 1,
                         .scoring = Scoring::kSigmoid,
                         .renormalize = false,
                         .bias = bias};
  const Choice choice = Route(router, std::vector<float>{1, 2, 0}.data());
  EXPECT_THAT(choice.experts, ElementsAre(2));
  EXPECT_NEAR(choice.weights[0], 0.5, 1e-12);
}

TEST(Routing, GroupsAreAsGoodAsTheirTwoBest) {
  // Group 0 has the best expert, group 1 the best pair.
  const Router router = {
      .num_experts = 4, .top_k = 2, .scoring = Scoring::kSigmoid, .n_group = 2, .topk_group = 1};
  EXPECT_THAT(Route(router, std::vector<float>{4, -4, 2, 1}.data()).experts, ElementsAre(2, 3));
}

TEST(Routing, KeepsItsLaws) {
  std::mt19937 random(1);
  for (int turn = 0; turn < 500; ++turn) {
    const int64_t groups = int64_t{1} << (random() % 3), size = 2 + random() % 6;
    const int64_t kept = 1 + random() % groups, experts = groups * size;
    const std::vector<float> logits = RandomLogits(random, experts);
    const Router router = {.num_experts = experts,
                           .top_k = 1 + static_cast<int64_t>(random() % (kept * size)),
                           .scoring = static_cast<Scoring>(random() % 3),
                           .n_group = groups,
                           .topk_group = kept,
                           .scaling_factor = 2.5};
    const Choice choice = Route(router, logits.data());
    ASSERT_EQ(choice.experts.size(), static_cast<size_t>(router.top_k));
    std::set<int32_t> used_groups;
    for (size_t i = 0; i < choice.experts.size(); ++i) {
      const int32_t expert = choice.experts[i];
      used_groups.insert(expert / static_cast<int32_t>(size));
      if (i == 0) continue;
      const int32_t before = choice.experts[i - 1];
      EXPECT_TRUE(logits[before] > logits[expert] ||
                  (logits[before] == logits[expert] && before < expert));
    }
    EXPECT_LE(used_groups.size(), static_cast<size_t>(kept));
    EXPECT_NEAR(std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0), 2.5, 1e-12);
  }
}

size_t Active(const Generated& generated) {
  std::set<int32_t> active;
  for (int64_t token = 0; token < generated.routing().valid; ++token) {
    const Choice choice = generated.At(token);
    active.insert(choice.experts.begin(), choice.experts.end());
  }
  return active.size();
}

double MeanActive(int64_t tokens, int64_t correlation) {
  constexpr int kSeeds = 100;
  double sum = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Shape shape = {.tokens = tokens, .correlation = correlation};
    sum += static_cast<double>(Active(Generated(shape, seed)));
  }
  return sum / kSeeds;
}

TEST(Generator, TokensActivateAsManyExpertsAsATrainedRoutersDo) {
  EXPECT_NEAR(MeanActive(16, 675), 48.8, 1);
  EXPECT_NEAR(MeanActive(16, 0), 81.8, 1.5);  // independent: 128 (1 - (15/16)^16), less padding
  EXPECT_EQ(MeanActive(1, 675), 8);
}

TEST(Generator, NoChoiceHangsOnTheLastBitsOfAScore) {
  const Shape shapes[] = {
      {.experts = 256},
      {.experts = 512, .top_k = 32},
      {.tokens = 3, .experts = 64, .correlation = 1000},
      {.experts = 256, .scoring = Scoring::kSigmoid, .n_group = 8, .topk_group = 4},
      {.experts = 256, .correlation = 1000, .scoring = Scoring::kSigmoid},
      {.experts = 512, .scoring = Scoring::kSigmoid},
      {.experts = 256, .top_k = 6, .scoring = Scoring::kSqrtSoftplus},
      {.experts = 64, .n_group = 8, .topk_group = 2},
  };
  for (const Shape& shape : shapes) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Generated generated(shape, seed);
      for (int64_t token = 0; token < generated.routing().valid; ++token) {
        EXPECT_GE(generated.MarginAt(token), 5e-6) << shape.experts << " experts, seed " << seed;
      }
    }
  }
}

// Router logits that make `scores` by softmax.
std::vector<float> LogitsFor(const std::vector<double>& scores) {
  std::vector<float> logits;
  for (const double score : scores) logits.push_back(static_cast<float>(std::log(score)));
  return logits;
}

TEST(Margin, SeesEveryDecisionThatARoutingMayTake) {
  const Router router = {.num_experts = 4, .top_k = 2};
  // The third against the fourth: two places beyond the last that top-k looks at.
  EXPECT_LT(Margin(router, LogitsFor({0.5004, 0.3, 0.0998002, 0.0997998}).data()), 4.1e-6);
  EXPECT_GT(Margin(router, LogitsFor({0.5004, 0.3, 0.1002, 0.0994}).data()), 3.9e-4);
  // The best alone has 0.7 of all, or nearly: phase 1 of OEA with P = 700.
  EXPECT_LT(Margin(router, LogitsFor({0.700003, 0.2, 0.069997, 0.03}).data()), 1e-5);
  EXPECT_GT(Margin(router, LogitsFor({0.7004, 0.2, 0.0696, 0.03}).data()), 1e-4);
}

TEST(Margin, GrowsWithWhatAValueIsASumOf) {
  // Of 1e-4 relative to each other, of 1e-5 to the score and the bias that cancel.
  const float bias[] = {-0.8f, 0};
  const Router router = {.num_experts = 2, .top_k = 1, .scoring = Scoring::kSigmoid, .bias = bias};
  const auto logit = [](double score) { return static_cast<float>(std::log(score / (1 - score))); };
  EXPECT_LT(Margin(router, std::vector<float>{logit(0.9), logit(0.10001)}.data()), 1e-5);
}

TEST(Generator, OneSeedInFourHasAPaddingToken) {
  const auto valid = [](int64_t tokens, uint64_t seed) {
    return Generated({.tokens = tokens, .experts = 8, .top_k = 2}, seed).routing().valid;
  };
  EXPECT_EQ(valid(16, 3), 15);
  EXPECT_EQ(valid(16, 4), 16);
  EXPECT_EQ(valid(2, 3), 2);
}

class Measured : public ::testing::Test {
 protected:
  // values of what `ids`, by token and slot, are beside the exact choices of three tokens of four
  // experts: {0, 1}, {0, 1}, and padding.
  std::vector<double> Measure(std::vector<int32_t> ids) {
    const Generated generated({.tokens = 3, .experts = 4, .top_k = 2, .correlation = 0}, 3);
    auto* const logits = static_cast<float*>(generated.inputs()[kRouterLogits].data);
    for (int token = 0; token < 3; ++token) {
      const std::vector<float> own = LogitsFor({0.4, 0.3, 0.2, 0.1});
      std::copy(own.begin(), own.end(), logits + token * 4);
    }
    std::vector<double> exact_ids = {0, 1, 0, 1, -1, -1}, unused(24);
    kvr_tensor outputs[3] = {};
    outputs[kExpertIds].data = ids.data();
    kvr_expected exact[3] = {};
    exact[kExpertIds] = {exact_ids.data(), unused.data(), 0};
    std::vector<double> values(moe::kMeasures);
    char error[256] = {};
    const int code = Quality(generated.axes(), generated.inputs(), outputs, exact, values.data(),
                             error, sizeof error);
    error_ = error;
    return code == KVR_OK ? values : std::vector<double>();
  }
  std::string error_;
};

TEST_F(Measured, NothingChangesInAnExactResultWhateverTheOrder) {
  EXPECT_THAT(Measure({0, 1, 1, 0, -1, -1}), ElementsAre(0, 1, 2, 2));
}

TEST_F(Measured, CountsTheTokensThatChangedAndTheMassTheyKept) {
  const std::vector<double> values = Measure({0, 1, 0, 2, -1, -1});
  EXPECT_EQ(values[moe::kExpertsChanged], 0.5);
  EXPECT_NEAR(values[moe::kMassKept], (1 + 0.6 / 0.7) / 2, 1e-6);
  EXPECT_EQ(values[moe::kActiveExperts], 3);
  EXPECT_EQ(values[moe::kActiveExpertsExact], 2);
}

TEST_F(Measured, AnEmptySlotKeepsNothing) {
  const std::vector<double> values = Measure({0, -1, 0, -1, -1, -1});
  EXPECT_EQ(values[moe::kExpertsChanged], 1);
  EXPECT_NEAR(values[moe::kMassKept], 0.4 / 0.7, 1e-6);
  EXPECT_EQ(values[moe::kActiveExperts], 1);
}

TEST_F(Measured, RefusesAnExpertThatThereIsNot) {
  EXPECT_THAT(Measure({0, 4, 0, 1, -1, -1}), ElementsAre());
  EXPECT_EQ(error_, "token 0 has expert 4; experts are 0 to 3, and -1 for none");
}

}  // namespace
}  // namespace kvr::moe_decode
