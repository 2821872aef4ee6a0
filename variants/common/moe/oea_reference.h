// SPDX-License-Identifier: Apache-2.0
//
// What a variant that routes by opportunistic expert activation is held to: OEA's choices (oea.h),
// and what its operation's experts compute for them. The operation gives (variants/<op>/inputs.h)
//
//   int ReadRouting(const int64_t* axes, const kvr_tensor* inputs, RoutingInputs* routing,
//                   char* error, size_t error_size);
//   void Expect(const int64_t* axes, const kvr_tensor* inputs, const std::vector<Choice>& choices,
//               int threads, kvr_expected* outputs);
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvr_plugin.h"
#include "variants/common/errors.h"
#include "variants/common/moe/oea.h"
#include "variants/common/moe/quality.h"

namespace kvr::moe {

// `quality`: K0, K_MAX, P, MAX_P, ACROSS_GROUPS, and what a bundle that extends the variant may
// have after them. KVR_OK, or what ReadRouting says.
template <auto kReadRouting, auto kExpect>
int OeaReference(const int64_t* axes, std::span<const int64_t> quality, const kvr_tensor* inputs,
                 int threads, kvr_expected* outputs, char* error, size_t error_size) {
  enum { kK0, kKMax, kP, kMaxP, kAcrossGroups, kAll };
  if (quality.size() < kAll) {
    return Fail(KVR_INTERNAL, error, error_size,
                "%zu quality tunables; K0, K_MAX, P, MAX_P and ACROSS_GROUPS come first",
                quality.size());
  }
  RoutingInputs routing;
  if (const int code = kReadRouting(axes, inputs, &routing, error, error_size)) return code;
  const Opportunism opportunism = {.k0 = quality[kK0],
                                   .k_max = quality[kKMax],
                                   .mass = quality[kP],
                                   .max_place = quality[kMaxP],
                                   .across_groups = quality[kAcrossGroups] != 0};
  std::vector<Choice> choices =
      RouteTogether(routing.router, opportunism, routing.router_logits, routing.valid);
  choices.resize(routing.num_tokens);  // padding
  kExpect(axes, inputs, choices, threads, outputs);
  return KVR_OK;
}

}  // namespace kvr::moe
