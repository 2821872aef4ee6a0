// SPDX-License-Identifier: Apache-2.0
//
// Active experts by K0 at the calibrated generator, beside those of the paper (arXiv 2511.02237:
// Qwen3-30B-A3B, 128 experts, 8 a token, batches of 16). Prints the table that the op's README has,
// and fails when what is measured is no longer what that says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <vector>

#include "tests/variants/moe_generated.h"
#include "variants/common/moe/oea.h"

namespace kvr::moe_decode {
namespace {

using moe::Opportunism;

struct Spread {
  double mean = 0, deviation = 0;
};

Spread Of(const std::vector<double>& values) {
  Spread spread;
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  for (const double value : values) spread.deviation += std::pow(value - spread.mean, 2);
  spread.deviation = std::sqrt(spread.deviation / static_cast<double>(values.size() - 1));
  return spread;
}

struct Row {
  Spread active, experts_a_token, mass_kept;
};

// Over the batches of 300 seeds that have no padding.
Row MeasureRow(int64_t k0) {
  std::vector<double> active, experts, kept;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Generated generated(Shape{}, seed);
    const RoutingInputs& routing = generated.routing();
    if (routing.valid < routing.num_tokens) continue;
    std::set<int32_t> all;
    const std::vector<Choice> choices =
        RouteTogether(routing.router, {.k0 = k0}, routing.router_logits, routing.valid);
    double taken = 0, share = 0;
    for (int64_t token = 0; token < routing.valid; ++token) {
      const std::vector<double> scores = Scores(routing.router, routing.LogitsOf(token));
      const auto mass = [&](const Choice& choice) {
        double sum = 0;
        for (const int32_t expert : choice.experts) sum += scores[expert];
        return sum;
      };
      all.insert(choices[token].experts.begin(), choices[token].experts.end());
      taken += static_cast<double>(choices[token].experts.size());
      share += mass(choices[token]) / mass(generated.At(token));
    }
    active.push_back(static_cast<double>(all.size()));
    experts.push_back(taken / static_cast<double>(routing.valid));
    kept.push_back(share / static_cast<double>(routing.valid));
  }
  return {Of(active), Of(experts), Of(kept)};
}

TEST(BesideThePaper, ActiveExpertsByK0) {
  const struct {
    int64_t k0;
    double paper;  // average over its four benchmarks
    // As the README has it: active experts, their standard deviation, mass kept.
    double active, deviation, mass;
  } rows[] = {{3, 25.1, 24.9, 3.1, 0.928}, {4, 29.9, 30.6, 3.5, 0.965}, {5, 35.1, 35.6, 3.9, 0.983},
              {6, 40.3, 40.5, 4.2, 0.993}, {7, 44.4, 44.8, 4.3, 0.998}, {8, 48.8, 48.8, 4.5, 1}};
  std::printf("K0   paper   active experts   experts a token   mass kept\n");
  double before = 0;
  for (const auto& row : rows) {
    const Row found = MeasureRow(row.k0);
    std::printf("%lld  %6.1f   %6.2f +- %4.2f   %14.2f   %.4f +- %.4f\n",
                static_cast<long long>(row.k0), row.paper, found.active.mean,
                found.active.deviation, found.experts_a_token.mean, found.mass_kept.mean,
                found.mass_kept.deviation);
    SCOPED_TRACE(row.k0);
    EXPECT_NEAR(found.active.mean, row.active, 0.051);
    EXPECT_NEAR(found.active.deviation, row.deviation, 0.051);
    EXPECT_NEAR(found.mass_kept.mean, row.mass, 0.00051);
    EXPECT_GT(found.active.mean, before);
    before = found.active.mean;
  }
}

}  // namespace
}  // namespace kvr::moe_decode
