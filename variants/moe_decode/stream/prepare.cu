// SPDX-License-Identifier: Apache-2.0
//
// moe_prepare: marks the hidden layer as absent (multiply.cuh), clears the ticket of moe_stream,
// and routes, a warp a token. moe_stream begins beside it.
#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "multiply.cuh"
#include "route.cuh"

namespace moe {

template <int kOwn>
KVR_DEVICE void RouteToken(const Router& router, int token, int valid, float* scratch,
                           Chosen* chosen, int* expert_ids, float* expert_weights) {
  Choice choice{-1, 0};
  if (token < valid) {
    float logits[kOwn];
    LoadLogits(router, token, logits);
    choice = Choose(router, logits, scratch, chosen);
  }
  const int lane = kvr::LaneIndex();
  if (lane >= router.top_k) return;
  expert_ids[token * router.top_k + lane] = choice.expert;
  expert_weights[token * router.top_k + lane] = choice.weight;
}

}  // namespace moe

// router_logits  [num_tokens, num_experts]
// bias           [num_experts] or null
// ticket         [1]
// h              [h_vectors, 8]
// expert_ids, expert_weights  [num_tokens, top_k]; -1 and 0 for padding
// Grid: at least ceil(num_tokens / warps).
__global__ void moe_prepare(const float* router_logits, const float* bias,
                            const int* num_valid_tokens, float routed_scaling_factor, int* ticket,
                            __nv_bfloat16* h, int* expert_ids, float* expert_weights, int h_vectors,
                            int num_tokens, int num_experts, int top_k, int scoring,
                            int renormalize, int n_group, int topk_group) {
  kvr::LaunchDependents();
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (thread == 0) *ticket = 0;
  for (int i = thread; i < h_vectors; i += static_cast<int>(gridDim.x * blockDim.x)) {
    reinterpret_cast<uint4*>(h)[i] = {moe::kAbsent, moe::kAbsent, moe::kAbsent, moe::kAbsent};
  }
  const int token =
      static_cast<int>(blockIdx.x * (blockDim.x / kvr::kWarpLanes)) + kvr::WarpIndex();
  if (token >= num_tokens) return;
  const moe::Router router{router_logits,
                           bias,
                           num_experts,
                           top_k,
                           scoring,
                           n_group,
                           topk_group,
                           renormalize != 0,
                           routed_scaling_factor};
  // [warps][kMostChosen], then [warps][num_experts].
  const int warps = static_cast<int>(blockDim.x) / kvr::kWarpLanes;
  auto* const all_chosen = reinterpret_cast<moe::Chosen*>(shared_memory);
  moe::Chosen* const chosen = all_chosen + kvr::WarpIndex() * moe::kMostChosen;
  float* const scratch = reinterpret_cast<float*>(all_chosen + warps * moe::kMostChosen) +
                         kvr::WarpIndex() * num_experts;
  const int valid = num_valid_tokens[0];
  if (num_experts <= 128) {
    moe::RouteToken<4>(router, token, valid, scratch, chosen, expert_ids, expert_weights);
  } else if (num_experts <= 256) {
    moe::RouteToken<8>(router, token, valid, scratch, chosen, expert_ids, expert_weights);
  } else {
    moe::RouteToken<16>(router, token, valid, scratch, chosen, expert_ids, expert_weights);
  }
}
