// SPDX-License-Identifier: Apache-2.0
//
// A batch's routing as an op's tensors state it, and how far a result's experts are from the exact
// ones. Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvr_plugin.h"
#include "variants/common/moe/route.h"

namespace kvr::moe {

// Valid as long as the tensors, and where it is.
struct RoutingInputs {
  RoutingInputs() = default;
  RoutingInputs(const RoutingInputs&) = delete;
  RoutingInputs& operator=(const RoutingInputs&) = delete;

  Router router;
  int64_t num_tokens = 0;
  int64_t valid = 0;  // tokens from here on are padding
  const float* router_logits = nullptr;
  // Experts that an op computes, by id; whoever takes others has them elsewhere.
  int64_t first_expert = 0, end_expert = 0;
  std::vector<float> bias;  // the router's, where the op's is not float32 already

  const float* LogitsOf(int64_t token) const { return router_logits + token * router.num_experts; }
};

// Quality measures; each over the tokens that are not padding.
enum Measure {
  kExpertsChanged,      // share of them whose set of experts is not the exact one
  kMassKept,            // mean of: scores of the chosen experts, over those of the exact ones
  kActiveExperts,       // experts, of those that are computed, that any of them takes
  kActiveExpertsExact,  // that any would take in an exact result
  kMeasures
};
inline constexpr const char* kMeasureNames[kMeasures] = {"experts_changed", "mass_kept",
                                                         "active_experts", "active_experts_exact"};

// values[measure] of the ids [num_tokens, slots] that a kernel wrote.
int MeasureChoices(const RoutingInputs& routing, const int32_t* ids, int64_t slots,
                   const double* exact_ids, double* values, char* error, size_t error_size);

// Each token's top_k; padding takes none.
std::vector<Choice> RouteEach(const RoutingInputs& routing);

// KVR_OK, or KVR_INVALID_ARGUMENT where `valid` is no number of its tokens.
int CheckValid(const RoutingInputs& routing, char* error, size_t error_size);

}  // namespace kvr::moe
