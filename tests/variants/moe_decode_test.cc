// SPDX-License-Identifier: Apache-2.0
//
// Routing by hand, by its laws, and as the generator's tokens are routed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "variants/moe_decode/op.h"
#include "variants/moe_decode/route.h"

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

// The inputs of the generator that routing reads, with the smallest experts.
class Generated {
 public:
  Generated(int64_t tokens, int64_t experts, int64_t top_k, int64_t correlation, uint64_t seed)
      : logits_(tokens * experts),
        bias_(experts),
        x_(tokens * 8),
        w13_(experts * 128),
        w2_(experts * 64) {
    const int64_t axes[] = {tokens, experts, top_k, 8, 8, 16, 1, 0, 1, 1, 1, correlation};
    kvr_tensor inputs[11] = {};
    const auto set = [&](int input, void* data, std::vector<int64_t> shape) {
      inputs[input].data = data;
      inputs[input].rank = static_cast<int32_t>(shape.size());
      std::copy(shape.begin(), shape.end(), inputs[input].shape);
    };
    int32_t scoring, renormalize, groups, kept;
    float factor;
    set(kX, x_.data(), {tokens, 8});
    set(kRouterLogits, logits_.data(), {tokens, experts});
    set(kW13, w13_.data(), {experts, 16, 8});
    set(kW2, w2_.data(), {experts, 8, 8});
    set(kNumValidTokens, &valid_, {1});
    set(kBias, bias_.data(), {experts});
    set(kScoringValue, &scoring, {});
    set(kRenormalizeValue, &renormalize, {});
    set(kNumGroupsValue, &groups, {});
    set(kTopkGroupValue, &kept, {});
    set(kRoutedScalingFactor, &factor, {});
    Generate(axes, seed, inputs);
    router_ = {.num_experts = experts, .top_k = top_k, .bias = bias_.data()};
  }

  int valid() const { return valid_; }
  Choice At(int64_t token) const {
    return Route(router_, logits_.data() + token * router_.num_experts);
  }
  double MarginAt(int64_t token) const {
    return Margin(router_, logits_.data() + token * router_.num_experts);
  }
  size_t Active() const {
    std::set<int32_t> active;
    for (int token = 0; token < valid_; ++token) {
      const Choice choice = At(token);
      active.insert(choice.experts.begin(), choice.experts.end());
    }
    return active.size();
  }

 private:
  std::vector<float> logits_, bias_;
  std::vector<uint16_t> x_, w13_, w2_;
  int32_t valid_ = 0;
  Router router_;
};

double MeanActive(int64_t tokens, int64_t correlation) {
  constexpr int kSeeds = 100;
  double sum = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    sum += static_cast<double>(Generated(tokens, 128, 8, correlation, seed).Active());
  }
  return sum / kSeeds;
}

TEST(Generator, TokensActivateAsManyExpertsAsATrainedRoutersDo) {
  EXPECT_NEAR(MeanActive(16, 675), 48.8, 1);
  EXPECT_NEAR(MeanActive(16, 0), 81.8, 1.5);  // independent: 128 (1 - (15/16)^16), less padding
  EXPECT_EQ(MeanActive(1, 675), 8);
}

TEST(Generator, NoChoiceHangsOnTheLastBitsOfAScore) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Generated generated(16, 256, 8, 675, seed);
    for (int token = 0; token < generated.valid(); ++token) {
      EXPECT_GE(generated.MarginAt(token), 1e-5);
    }
  }
}

TEST(Generator, OneSeedInFourHasAPaddingToken) {
  EXPECT_EQ(Generated(16, 8, 2, 675, 3).valid(), 15);
  EXPECT_EQ(Generated(16, 8, 2, 675, 4).valid(), 16);
  EXPECT_EQ(Generated(2, 8, 2, 675, 3).valid(), 2);
}

}  // namespace
}  // namespace kvr::moe_decode
