// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/quality.h"

#include <set>
#include <vector>

#include "variants/common/errors.h"

namespace kvr::moe {

int CheckValid(const RoutingInputs& routing, char* error, size_t error_size) {
  if (routing.valid >= 0 && routing.valid <= routing.num_tokens) return KVR_OK;
  return Fail(KVR_INVALID_ARGUMENT, error, error_size,
              "num_valid_tokens is %lld; give 0 to the batch's tokens, %lld",
              static_cast<long long>(routing.valid), static_cast<long long>(routing.num_tokens));
}

std::vector<Choice> RouteEach(const RoutingInputs& routing) {
  std::vector<Choice> choices(routing.num_tokens);
  for (int64_t token = 0; token < routing.valid; ++token) {
    choices[token] = Route(routing.router, routing.LogitsOf(token));
  }
  return choices;
}

int MeasureChoices(const RoutingInputs& routing, const int32_t* ids, int64_t slots,
                   const double* exact_ids, double* values, char* error, size_t error_size) {
  std::set<int32_t> active, active_exact;
  const auto add_computed = [&](const std::set<int32_t>& experts, std::set<int32_t>* to) {
    for (const int32_t expert : experts) {
      if (expert >= routing.first_expert && expert < routing.end_expert) to->insert(expert);
    }
  };
  int64_t changed = 0;
  double kept = 0;
  for (int64_t token = 0; token < routing.valid; ++token) {
    std::set<int32_t> chosen, best;
    for (int64_t slot = token * slots; slot < (token + 1) * slots; ++slot) {
      if (ids[slot] < -1 || ids[slot] >= routing.router.num_experts) {
        return Fail(KVR_INVALID_ARGUMENT, error, error_size,
                    "token %lld has expert %d; experts are 0 to %lld, and -1 for none",
                    static_cast<long long>(token), ids[slot],
                    static_cast<long long>(routing.router.num_experts - 1));
      }
      if (ids[slot] >= 0) chosen.insert(ids[slot]);
      if (exact_ids[slot] >= 0) best.insert(static_cast<int32_t>(exact_ids[slot]));
    }
    const std::vector<double> scores = Scores(routing.router, routing.LogitsOf(token));
    const auto mass = [&](const std::set<int32_t>& experts) {
      double sum = 0;
      for (const int32_t expert : experts) sum += scores[expert];
      return sum;
    };
    changed += chosen != best ? 1 : 0;
    const double exact_mass = mass(best);  // 0 where every score underflows
    kept += exact_mass > 0 ? mass(chosen) / exact_mass : 1;
    add_computed(chosen, &active);
    add_computed(best, &active_exact);
  }
  const auto tokens = static_cast<double>(routing.valid);
  values[kExpertsChanged] = routing.valid > 0 ? static_cast<double>(changed) / tokens : 0;
  values[kMassKept] = routing.valid > 0 ? kept / tokens : 1;
  values[kActiveExperts] = static_cast<double>(active.size());
  values[kActiveExpertsExact] = static_cast<double>(active_exact.size());
  return KVR_OK;
}

}  // namespace kvr::moe
