// SPDX-License-Identifier: Apache-2.0
//
// A batch of moe_decode as its generator draws it: what routing reads, with the smallest experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "variants/common/moe/quality.h"
#include "variants/common/moe/route.h"
#include "variants/moe_decode/inputs.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {

using moe::Choice;
using moe::Router;
using moe::RoutingInputs;
using moe::Scoring;

struct Shape {
  int64_t tokens = 16, experts = 128, top_k = 8, correlation = 675;
  Scoring scoring = Scoring::kSoftmax;
  int64_t n_group = 1, topk_group = 1;
};

class Generated {
 public:
  Generated(const Shape& shape, uint64_t seed)
      : logits_(shape.tokens * shape.experts),
        bias_(shape.experts),
        x_(shape.tokens * kHiddenWidth),
        w13_(shape.experts * 2 * kInnerWidth * kHiddenWidth),
        w2_(shape.experts * kHiddenWidth * kInnerWidth) {
    const auto scoring = static_cast<int64_t>(shape.scoring);
    const int64_t axes[] = {shape.tokens,
                            shape.experts,
                            shape.top_k,
                            kHiddenWidth,
                            kInnerWidth,
                            2 * kInnerWidth,
                            1,
                            scoring,
                            1,
                            shape.n_group,
                            shape.topk_group,
                            shape.correlation};
    axes_.assign(std::begin(axes), std::end(axes));
    Set(kX, x_.data(), {shape.tokens, kHiddenWidth});
    Set(kRouterLogits, logits_.data(), {shape.tokens, shape.experts});
    Set(kW13, w13_.data(), {shape.experts, 2 * kInnerWidth, kHiddenWidth});
    Set(kW2, w2_.data(), {shape.experts, kHiddenWidth, kInnerWidth});
    Set(kNumValidTokens, &valid_, {1});
    Set(kBias, bias_.data(), {shape.experts});
    Set(kScoringValue, &scoring_, {});
    Set(kRenormalizeValue, &renormalize_, {});
    Set(kNumGroupsValue, &groups_, {});
    Set(kTopkGroupValue, &kept_, {});
    Set(kRoutedScalingFactor, &factor_, {});
    Generate(axes_.data(), seed, inputs_);
    ReadRouting(axes_.data(), inputs_, &routing_, nullptr, 0);
  }
  Generated(const Generated&) = delete;
  Generated& operator=(const Generated&) = delete;

  const int64_t* axes() const { return axes_.data(); }
  const kvr_tensor* inputs() const { return inputs_; }
  const RoutingInputs& routing() const { return routing_; }
  Choice At(int64_t token) const { return Route(routing_.router, routing_.LogitsOf(token)); }
  double MarginAt(int64_t token) const { return Margin(routing_.router, routing_.LogitsOf(token)); }

 private:
  static constexpr int64_t kHiddenWidth = 8, kInnerWidth = 8;

  void Set(int input, void* data, const std::vector<int64_t>& shape) {
    inputs_[input].data = data;
    inputs_[input].rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), inputs_[input].shape);
  }

  std::vector<int64_t> axes_;
  std::vector<float> logits_, bias_;
  std::vector<uint16_t> x_, w13_, w2_;
  int32_t valid_ = 0, scoring_ = 0, renormalize_ = 0, groups_ = 0, kept_ = 0;
  float factor_ = 0;
  kvr_tensor inputs_[11] = {};
  RoutingInputs routing_;
};

}  // namespace kvr::moe_decode
