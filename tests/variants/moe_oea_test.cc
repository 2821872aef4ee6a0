// SPDX-License-Identifier: Apache-2.0
//
// Opportunistic expert activation by hand, and by its laws over drawn batches of every scoring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "tests/variants/moe_generated.h"
#include "variants/common/moe/oea_reference.h"

namespace kvr::moe_decode {
namespace {

using moe::Opportunism;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Router logits of a batch, from softmax scores.
std::vector<float> LogitsFor(const std::vector<std::vector<double>>& scores) {
  std::vector<float> logits;
  for (const std::vector<double>& token : scores) {
    for (const double score : token) logits.push_back(static_cast<float>(std::log(score)));
  }
  return logits;
}

TEST(Oea, TokensTakeWhatOthersHaveTaken) {
  const Router router = {.num_experts = 5, .top_k = 3};
  const std::vector<float> logits =
      LogitsFor({{0.5, 0.2, 0.15, 0.1, 0.05},    // 0, then 3 of token 1
                 {0.1, 0.2, 0.15, 0.5, 0.05}});  // 3, then 0 of token 0
  const std::vector<Choice> choices = RouteTogether(router, {.k0 = 1}, logits.data(), 2);
  EXPECT_THAT(choices[0].experts, ElementsAre(0, 3));
  EXPECT_THAT(choices[1].experts, ElementsAre(3, 0));
  EXPECT_NEAR(choices[0].weights[0], 0.5 / 0.6, 1e-6);
  EXPECT_NEAR(choices[0].weights[1], 0.1 / 0.6, 1e-6);
}

TEST(Oea, KMaxAndMaxPlaceBoundPhaseTwo) {
  const Router router = {.num_experts = 4, .top_k = 4};
  const std::vector<float> logits = LogitsFor(
      {{0.4, 0.3, 0.2, 0.1}, {0.1, 0.4, 0.3, 0.2}, {0.2, 0.1, 0.4, 0.3}, {0.1, 0.2, 0.3, 0.4}});
  const auto first = [&](const Opportunism& opportunism) {
    return RouteTogether(router, opportunism, logits.data(), 4)[0].experts;
  };
  EXPECT_THAT(first({.k0 = 1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(first({.k0 = 1, .k_max = 2}), ElementsAre(0, 1));
  EXPECT_THAT(first({.k0 = 1, .max_place = 3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(first({.k0 = 2, .max_place = 1}), ElementsAre(0, 1));  // phase 1 looks no further
}

TEST(Oea, MassMakesPhaseOneShorter) {
  const Router router = {.num_experts = 4, .top_k = 3};
  const std::vector<float> logits = LogitsFor({{0.72, 0.2, 0.05, 0.03}, {0.05, 0.3, 0.31, 0.34}});
  const auto choices = [&](int64_t mass) {
    return RouteTogether(router, {.k0 = 3, .mass = mass}, logits.data(), 2);
  };
  // 0.7 is reached by one expert of the first token, by three of the second.
  EXPECT_THAT(choices(700)[0].experts, ElementsAre(0, 1, 2));
  EXPECT_THAT(choices(700)[1].experts, ElementsAre(3, 2, 1));
  EXPECT_THAT(choices(300)[0].experts, ElementsAre(0, 3));
  EXPECT_THAT(choices(300)[1].experts, ElementsAre(3, 0));
}

TEST(Oea, PhaseTwoStaysInTheTokensGroupsUnlessToldOtherwise) {
  // Groups {0, 1} and {2, 3}; each token keeps one.
  const Router router = {.num_experts = 4, .top_k = 2, .n_group = 2, .topk_group = 1};
  const std::vector<float> logits = LogitsFor({{0.5, 0.05, 0.1, 0.35}, {0.1, 0.05, 0.25, 0.6}});
  const auto choices = [&](bool across) {
    return RouteTogether(router, {.k0 = 1, .across_groups = across}, logits.data(), 2);
  };
  EXPECT_THAT(choices(false)[0].experts, ElementsAre(0));
  EXPECT_THAT(choices(true)[0].experts, ElementsAre(0, 3));
  EXPECT_THAT(choices(true)[1].experts, ElementsAre(3, 0));
}

TEST(Oea, AnEmptyBatchTakesNothing) {
  EXPECT_THAT(moe::RouteTogether({.num_experts = 4, .top_k = 2}, {}, nullptr, 0), IsEmpty());
}

// A batch and how it may be routed, in many shapes, scorings and seeds.
struct Drawn {
  Router router;
  Opportunism opportunism;
  int64_t tokens = 0;
  std::vector<float> logits, bias;

  std::vector<Choice> Route() const { return Route(opportunism); }
  std::vector<Choice> Route(const Opportunism& with) const {
    return RouteTogether(router, with, logits.data(), tokens);
  }
  std::vector<Choice> Vanilla() const {
    std::vector<Choice> choices;
    for (int64_t token = 0; token < tokens; ++token) {
      choices.push_back(moe::Route(router, logits.data() + token * router.num_experts));
    }
    return choices;
  }
  std::vector<int32_t> RankedAt(int64_t token, Router with) const {
    return Ranked(with, Scores(with, logits.data() + token * with.num_experts));
  }
};

void ForManyBatches(const std::function<void(const Drawn&)>& check) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto upto = [&](int64_t n) { return 1 + static_cast<int64_t>(random() % n); };
    Drawn drawn;
    const int64_t groups = seed % 2 == 0 ? 1 : int64_t{1} << (random() % 3), size = 3 + upto(9);
    const int64_t kept = upto(groups);
    const int64_t top_k = upto(std::min<int64_t>(8, kept * size));
    const int64_t k_max = upto(top_k);
    drawn.tokens = upto(12);
    // With ties in every batch, and a part that the tokens share.
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> common(groups * size);
    for (float& value : common) value = normal(random);
    for (int64_t i = 0; i < drawn.tokens * groups * size; ++i) {
      const float logit = common[i % (groups * size)] + normal(random);
      drawn.logits.push_back(std::round(logit * 8) / 8);
    }
    for (int64_t e = 0; e < groups * size; ++e) drawn.bias.push_back(normal(random) / 16);
    drawn.router = {.num_experts = groups * size,
                    .top_k = top_k,
                    .scoring = static_cast<Scoring>(seed % 3),
                    .renormalize = seed % 5 != 0,
                    .n_group = groups,
                    .topk_group = kept,
                    .scaling_factor = 2.5,
                    .bias = seed % 3 == 0 ? nullptr : drawn.bias.data()};
    drawn.opportunism = {.k0 = upto(k_max),
                         .k_max = k_max,
                         .mass = seed % 4 == 0 ? 1000 : 100 * upto(9),
                         .max_place = seed % 7 == 0 ? 0 : upto(groups * size),
                         .across_groups = random() % 2 == 0};
    check(drawn);
  }
}

std::set<int32_t> ActiveOf(const std::vector<Choice>& choices) {
  std::set<int32_t> active;
  for (const Choice& choice : choices) active.insert(choice.experts.begin(), choice.experts.end());
  return active;
}

// What phase 1 takes: all, where phase 2 may not look anywhere.
std::vector<Choice> PhaseOne(const Drawn& drawn) {
  Opportunism alone = drawn.opportunism;
  std::vector<Choice> choices;
  for (int64_t token = 0; token < drawn.tokens; ++token) {
    alone.k_max = alone.k0;
    // A batch of one has no others to look to.
    choices.push_back(RouteTogether(drawn.router, alone,
                                    drawn.logits.data() + token * drawn.router.num_experts, 1)[0]);
  }
  return choices;
}

TEST(OeaLaws, PhaseOneFixesWhatIsActive) {
  ForManyBatches(
      [](const Drawn& drawn) { EXPECT_EQ(ActiveOf(drawn.Route()), ActiveOf(PhaseOne(drawn))); });
}

TEST(OeaLaws, PhaseOneStandsFirstAndPhaseTwoFollowsTheRanks) {
  ForManyBatches([](const Drawn& drawn) {
    const std::vector<Choice> all = drawn.Route(), first = PhaseOne(drawn);
    Router ranks = drawn.router;
    if (drawn.opportunism.across_groups) ranks.n_group = ranks.topk_group = 1;
    const std::set<int32_t> base = ActiveOf(first);
    for (int64_t token = 0; token < drawn.tokens; ++token) {
      std::vector<int32_t> expected = first[token].experts;
      const std::vector<int32_t> order = drawn.RankedAt(token, ranks);
      for (size_t place = 1; place <= order.size(); ++place) {
        const int32_t expert = order[place - 1];
        const bool near = drawn.opportunism.max_place == 0 ||
                          place <= static_cast<size_t>(drawn.opportunism.max_place);
        const bool room = expected.size() < static_cast<size_t>(drawn.opportunism.k_max);
        const bool taken = std::count(expected.begin(), expected.end(), expert) > 0;
        if (near && room && !taken && base.count(expert) > 0) expected.push_back(expert);
      }
      EXPECT_EQ(all[token].experts, expected);
    }
  });
}

TEST(OeaLaws, MoreOfItsOwnActivatesNoLess) {
  ForManyBatches([](const Drawn& drawn) {
    Opportunism with = drawn.opportunism;
    std::set<int32_t> before;
    for (with.k0 = 1; with.k0 <= with.k_max; ++with.k0) {
      const std::set<int32_t> active = ActiveOf(drawn.Route(with));
      EXPECT_TRUE(std::includes(active.begin(), active.end(), before.begin(), before.end()));
      before = active;
    }
  });
}

TEST(OeaLaws, AllOfItsOwnIsVanilla) {
  ForManyBatches([](const Drawn& drawn) {
    const std::vector<Choice> vanilla = drawn.Vanilla();
    const std::vector<Choice> choices =
        drawn.Route({.k0 = drawn.router.top_k, .across_groups = drawn.opportunism.across_groups});
    for (int64_t token = 0; token < drawn.tokens; ++token) {
      EXPECT_EQ(choices[token].experts, vanilla[token].experts);
      EXPECT_EQ(choices[token].weights, vanilla[token].weights);
    }
  });
}

TEST(OeaLaws, ABatchOfOneTakesItsBestK0) {
  ForManyBatches([](const Drawn& drawn) {
    Router best = drawn.router;
    best.top_k = drawn.opportunism.k0;
    const Choice expected = Route(best, drawn.logits.data());
    const Choice choice =
        RouteTogether(drawn.router, {.k0 = best.top_k}, drawn.logits.data(), 1)[0];
    EXPECT_EQ(choice.experts, expected.experts);
    EXPECT_EQ(choice.weights, expected.weights);
  });
}

TEST(OeaLaws, NobodyHasMoreThanKMaxOrAnExpertTwice) {
  ForManyBatches([](const Drawn& drawn) {
    for (const Choice& choice : drawn.Route()) {
      EXPECT_GE(choice.experts.size(), 1u);
      EXPECT_LE(choice.experts.size(), static_cast<size_t>(drawn.opportunism.k_max));
      const std::set<int32_t> once(choice.experts.begin(), choice.experts.end());
      EXPECT_EQ(once.size(), choice.experts.size());
    }
  });
}

TEST(OeaLaws, WeightsAreTheScoresAndSumToTheScale) {
  ForManyBatches([](const Drawn& drawn) {
    const std::vector<Choice> choices = drawn.Route();
    for (int64_t token = 0; token < drawn.tokens; ++token) {
      const Choice& choice = choices[token];
      const std::vector<double> scores =
          Scores(drawn.router, drawn.logits.data() + token * drawn.router.num_experts);
      double mass = 0;
      for (const int32_t expert : choice.experts) mass += scores[expert];
      const double sum = std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0);
      EXPECT_NEAR(sum, 2.5 * (drawn.router.renormalize ? 1 : mass), 1e-12);
      for (size_t i = 0; i < choice.experts.size(); ++i) {
        EXPECT_NEAR(choice.weights[i] * mass, scores[choice.experts[i]] * sum, 1e-12);
      }
    }
  });
}

TEST(OeaLaws, GroupsHoldUnlessToldOtherwise) {
  ForManyBatches([](const Drawn& drawn) {
    Opportunism with = drawn.opportunism;
    with.across_groups = false;
    const std::vector<Choice> choices = drawn.Route(with);
    for (int64_t token = 0; token < drawn.tokens; ++token) {
      const std::vector<int32_t> allowed = drawn.RankedAt(token, drawn.router);
      for (const int32_t expert : choices[token].experts) {
        EXPECT_EQ(std::count(allowed.begin(), allowed.end(), expert), 1);
      }
    }
  });
}

// Of the reference that the kernels are held to, which is told by an input what padding is.
TEST(OeaLaws, PaddingActivatesNothing) {
  constexpr int64_t kTokens = 9, kExperts = 32, kTopK = 4, kHidden = 8;
  const int64_t quality[] = {2, 0, 1000, 0, 0};
  for (uint64_t seed = 3; seed < 80; seed += 4) {  // those with a padding token
    const Generated generated({.tokens = kTokens, .experts = kExperts, .top_k = kTopK}, seed);
    const kvr_tensor* const inputs = generated.inputs();
    ASSERT_EQ(*static_cast<const int32_t*>(inputs[kNumValidTokens].data), kTokens - 1);
    const auto expected_ids = [&] {
      std::vector<double> out(kTokens * kHidden), ids(kTokens * kTopK), weights(kTokens * kTopK);
      std::vector<double> bounds(kTokens * kHidden);
      kvr_expected outputs[] = {{out.data(), bounds.data(), 0},
                                {ids.data(), bounds.data(), 0},
                                {weights.data(), bounds.data(), 0}};
      char error[256] = "";
      const int code = moe::OeaReference<ReadRouting, Expect>(generated.axes(), quality, inputs, 1,
                                                              outputs, error, sizeof error);
      EXPECT_EQ(code, KVR_OK) << error;
      return ids;
    };
    const std::vector<double> before = expected_ids();
    EXPECT_THAT(std::vector<double>(before.end() - kTopK, before.end()), Each(-1));
    // An expert that nobody else takes, for the padding token alone.
    int64_t lonely = 0;
    while (std::count(before.begin(), before.end(), lonely) > 0) ++lonely;
    ASSERT_LT(lonely, kExperts);
    auto* const padding =
        static_cast<float*>(inputs[kRouterLogits].data) + (kTokens - 1) * kExperts;
    std::fill(padding, padding + kExperts, 0.0f);
    padding[lonely] = 100;
    EXPECT_EQ(expected_ids(), before);
  }
}

TEST(Oea, ReferenceRefusesLessThanItsQualityTunables) {
  const int64_t quality[] = {2, 0, 1000, 0};
  char error[256];
  const int code = moe::OeaReference<ReadRouting, Expect>(nullptr, quality, nullptr, 1, nullptr,
                                                          error, sizeof error);
  EXPECT_EQ(code, KVR_INTERNAL);
  EXPECT_STREQ(error, "4 quality tunables; K0, K_MAX, P, MAX_P and ACROSS_GROUPS come first");
}

}  // namespace
}  // namespace kvr::moe_decode
