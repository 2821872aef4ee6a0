// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/oea.h"

#include <algorithm>
#include <numeric>

namespace kvr::moe {
namespace {

// How many of `ranked` phase 1 takes.
int64_t FirstCount(const Opportunism& opportunism, const std::vector<double>& scores,
                   const std::vector<int32_t>& ranked) {
  if (opportunism.mass == 1000) return opportunism.k0;
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  const double wanted = static_cast<double>(opportunism.mass) / 1000 * total;
  double mass = 0;
  int64_t count = 0;
  while (count < opportunism.k0 && mass < wanted) mass += scores[ranked[count++]];
  return count;
}

bool Holds(const std::vector<int32_t>& experts, int32_t expert) {
  return std::find(experts.begin(), experts.end(), expert) != experts.end();
}

}  // namespace

std::vector<Choice> RouteTogether(const Router& router, const Opportunism& opportunism,
                                  const float* logits, int64_t num_tokens) {
  std::vector<Choice> choices(num_tokens);
  std::vector<bool> base(router.num_experts);
  for (int64_t token = 0; token < num_tokens; ++token) {
    const std::vector<double> scores = Scores(router, logits + token * router.num_experts);
    std::vector<int32_t> ranked = Ranked(router, scores);
    ranked.resize(FirstCount(opportunism, scores, ranked));
    for (const int32_t expert : ranked) base[expert] = true;
    choices[token].experts = std::move(ranked);
  }

  Router ranks = router;  // whose ranks phase 2 goes through
  if (opportunism.across_groups) ranks.n_group = ranks.topk_group = 1;
  const auto most = static_cast<size_t>(opportunism.k_max == 0 ? router.top_k : opportunism.k_max);
  for (int64_t token = 0; token < num_tokens; ++token) {
    const std::vector<double> scores = Scores(router, logits + token * router.num_experts);
    std::vector<int32_t>& experts = choices[token].experts;
    const std::vector<int32_t> ranked = Ranked(ranks, scores);
    const auto places = static_cast<int64_t>(ranked.size());
    const int64_t last =
        opportunism.max_place == 0 ? places : std::min(places, opportunism.max_place);
    for (int64_t place = 0; place < last && experts.size() < most; ++place) {
      const int32_t expert = ranked[place];
      if (base[expert] && !Holds(experts, expert)) experts.push_back(expert);
    }
    choices[token].weights = Weights(router, scores, experts);
  }
  return choices;
}

}  // namespace kvr::moe
