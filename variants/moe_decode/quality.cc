// SPDX-License-Identifier: Apache-2.0
//
// How far a result's experts are from the exact ones, over the tokens that are not padding.
#include <algorithm>
#include <set>
#include <vector>

#include "variants/common/errors.h"
#include "variants/moe_decode/inputs.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {

int Quality(const int64_t* axes, const kvr_tensor* inputs, const kvr_tensor* outputs,
            const kvr_expected* exact, double* values, char* error, size_t error_size) {
  RoutingInputs routing;
  if (const int code = ReadRouting(axes, inputs, &routing, error, error_size)) return code;
  const int64_t top_k = routing.router.top_k;
  const auto* const ids = static_cast<const int32_t*>(outputs[kExpertIds].data);
  const double* const exact_ids = exact[kExpertIds].expected;
  std::set<int32_t> active, active_exact;
  int64_t changed = 0;
  double kept = 0;
  for (int64_t token = 0; token < routing.valid; ++token) {
    std::set<int32_t> chosen, best;
    for (int64_t slot = token * top_k; slot < (token + 1) * top_k; ++slot) {
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
    active.merge(chosen);
    active_exact.merge(best);
  }
  const auto tokens = static_cast<double>(routing.valid);
  values[kExpertsChanged] = routing.valid > 0 ? static_cast<double>(changed) / tokens : 0;
  values[kMassKept] = routing.valid > 0 ? kept / tokens : 1;
  values[kActiveExperts] = static_cast<double>(active.size());
  values[kActiveExpertsExact] = static_cast<double>(active_exact.size());
  return KVR_OK;
}

}  // namespace kvr::moe_decode
