// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvr::moe {
namespace {

// Values by which experts are chosen.
std::vector<double> Biased(const Router& router, std::span<const double> scores) {
  std::vector<double> biased(scores.begin(), scores.end());
  if (router.bias == nullptr) return biased;
  for (size_t e = 0; e < biased.size(); ++e) biased[e] += router.bias[e];
  return biased;
}

// Positions of `values`, largest first, ties to the lowest position.
std::vector<int32_t> Descending(std::span<const double> values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  return order;
}

// The best two of each group, `values` being by expert.
std::vector<double> GroupValues(const Router& router, std::span<const double> values) {
  const int64_t size = router.num_experts / router.n_group;
  std::vector<double> groups(router.n_group);
  for (int64_t g = 0; g < router.n_group; ++g) {
    const std::span<const double> group = values.subspan(g * size, size);
    const std::vector<int32_t> order = Descending(group);
    groups[g] = group[order[0]] + (size > 1 ? group[order[1]] : 0);
  }
  return groups;
}

constexpr double kNoDecision = std::numeric_limits<double>::infinity();

// Between place `taken` of the order, counted from 1, and the next. `sizes`: of what the values are
// sums of, since that is what their rounding errors grow with.
double Gap(std::span<const double> values, std::span<const double> sizes,
           std::span<const int32_t> order, int64_t taken) {
  if (taken >= static_cast<int64_t>(order.size())) return kNoDecision;
  const int32_t a = order[taken - 1], b = order[taken];
  if (values[a] == values[b]) return kNoDecision;
  return (values[a] - values[b]) / std::max(sizes[a], sizes[b]);
}

// Between a share of all scores and the nearest of 1/1000, ..., 999/1000.
double MassGap(double share) {
  const double thousandth = std::clamp(std::round(share * 1000), 1.0, 999.0) / 1000;
  return std::abs(share - thousandth);
}

}  // namespace

std::vector<double> Scores(const Router& router, const float* logits) {
  std::vector<double> scores(logits, logits + router.num_experts);
  switch (router.scoring) {
    case Scoring::kSoftmax: {
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (double& score : scores) score /= sum;
      break;
    }
    case Scoring::kSigmoid:
      for (double& score : scores) score = 1 / (1 + std::exp(-score));
      break;
    case Scoring::kSqrtSoftplus:
      for (double& score : scores) score = std::sqrt(std::log1p(std::exp(score)));
      break;
  }
  return scores;
}

std::vector<int32_t> Ranked(const Router& router, std::span<const double> scores) {
  const std::vector<double> biased = Biased(router, scores);
  std::vector<int32_t> order = Descending(biased);
  if (router.n_group == 1) return order;
  const std::vector<int32_t> groups = Descending(GroupValues(router, biased));
  std::vector<bool> kept(router.n_group);
  for (int64_t i = 0; i < router.topk_group; ++i) kept[groups[i]] = true;
  const int64_t size = router.num_experts / router.n_group;
  std::erase_if(order, [&](int32_t expert) { return !kept[expert / size]; });
  return order;
}

std::vector<double> Weights(const Router& router, std::span<const double> scores,
                            std::span<const int32_t> experts) {
  std::vector<double> weights;
  double sum = router.epsilon;
  for (const int32_t expert : experts) sum += scores[expert];
  const double factor = router.scaling_factor / (router.renormalize ? sum : 1);
  for (const int32_t expert : experts) weights.push_back(scores[expert] * factor);
  return weights;
}

Choice Route(const Router& router, const float* logits) {
  const std::vector<double> scores = Scores(router, logits);
  Choice choice{.experts = Ranked(router, scores), .weights = {}};
  choice.experts.resize(router.top_k);
  choice.weights = Weights(router, scores, choice.experts);
  return choice;
}

double Margin(const Router& router, const float* logits) {
  const std::vector<double> scores = Scores(router, logits);
  const std::vector<double> biased = Biased(router, scores);
  std::vector<double> sizes = scores;
  for (int64_t e = 0; router.bias != nullptr && e < router.num_experts; ++e) {
    sizes[e] += std::abs(router.bias[e]);
  }
  double margin = kNoDecision;
  if (router.n_group > 1) {
    const std::vector<double> groups = GroupValues(router, biased);
    margin = Gap(groups, GroupValues(router, sizes), Descending(groups), router.topk_group);
  }
  const std::vector<int32_t> all = Descending(biased);
  for (int64_t place = 1; place < router.num_experts; ++place) {
    margin = std::min(margin, Gap(biased, sizes, all, place));
  }
  const std::vector<int32_t> ranked = Ranked(router, scores);
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  double mass = 0;
  for (int64_t n = 1; n < router.top_k; ++n) {
    mass += scores[ranked[n - 1]];
    margin = std::min(margin, MassGap(mass / total));
  }
  return margin;
}

}  // namespace kvr::moe
