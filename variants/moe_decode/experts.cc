// SPDX-License-Identifier: Apache-2.0
#include "variants/moe_decode/experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "variants/common/bfloat16.h"
#include "variants/common/parallel.h"
#include "variants/moe_decode/op.h"

namespace kvr::moe_decode {
namespace {

constexpr double kOutBound = 1.0 / 128;
constexpr double kWeightBound = 1e-5;
constexpr int kTokens = 8;         // tokens that one pass over an expert's row serves
constexpr int64_t kRowBlock = 32;  // rows of a task

// Tokens innermost: the compiler vectorises over them and every sum keeps its plain order.
using Lanes = std::array<double, kTokens>;

struct Problem {
  int64_t num_tokens, hidden, inner;
  const uint16_t *x, *w13, *w2;
  const std::vector<Choice>& choices;  // by token
};

// One expert with up to kTokens of its tokens.
struct Batch {
  int64_t expert;
  std::vector<int64_t> tokens;
  std::vector<double> weights;
  std::vector<Lanes> h;  // [inner], once computed
};

std::vector<Batch> Batches(const Problem& problem, int64_t num_experts) {
  std::vector<Batch> batches;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    size_t room = 0;
    for (int64_t token = 0; token < problem.num_tokens; ++token) {
      const Choice& choice = problem.choices[token];
      const auto at = std::find(choice.experts.begin(), choice.experts.end(), expert);
      if (at == choice.experts.end()) continue;
      if (room == 0) {
        batches.push_back({.expert = expert, .h = std::vector<Lanes>(problem.inner)});
        room = kTokens;
      }
      batches.back().tokens.push_back(token);
      batches.back().weights.push_back(choice.weights[at - choice.experts.begin()]);
      --room;
    }
  }
  return batches;
}

Lanes Dot(const uint16_t* row, const std::vector<Lanes>& columns) {
  Lanes sum{};
  for (size_t d = 0; d < columns.size(); ++d) {
    const double w = WidenBf16(row[d]);
    for (int t = 0; t < kTokens; ++t) sum[t] += w * columns[d][t];
  }
  return sum;
}

// Rows [first, last) of `batch`'s hidden layer.
void ComputeHidden(const Problem& problem, int64_t first, int64_t last, Batch* batch) {
  std::vector<Lanes> x(problem.hidden);
  for (size_t t = 0; t < batch->tokens.size(); ++t) {
    const uint16_t* token = problem.x + batch->tokens[t] * problem.hidden;
    for (int64_t d = 0; d < problem.hidden; ++d) x[d][t] = WidenBf16(token[d]);
  }
  const uint16_t* gates = problem.w13 + batch->expert * 2 * problem.inner * problem.hidden;
  const uint16_t* ups = gates + problem.inner * problem.hidden;
  for (int64_t i = first; i < last; ++i) {
    const Lanes gate = Dot(gates + i * problem.hidden, x);
    const Lanes up = Dot(ups + i * problem.hidden, x);
    for (int t = 0; t < kTokens; ++t) batch->h[i][t] = gate[t] / (1 + std::exp(-gate[t])) * up[t];
  }
}

// Rows [first, last) of the output, over all experts, in the order of their ids.
void ComputeOut(const Problem& problem, const std::vector<Batch>& batches, int64_t first,
                int64_t last, kvr_expected* out) {
  for (const Batch& batch : batches) {
    const uint16_t* w2 = problem.w2 + batch.expert * problem.hidden * problem.inner;
    for (int64_t d = first; d < last; ++d) {
      Lanes sum{}, magnitude{};
      for (int64_t i = 0; i < problem.inner; ++i) {
        const double w = WidenBf16(w2[d * problem.inner + i]);
        for (int t = 0; t < kTokens; ++t) {
          const double term = w * batch.h[i][t];
          sum[t] += term;
          magnitude[t] += std::abs(term);
        }
      }
      for (size_t t = 0; t < batch.tokens.size(); ++t) {
        const int64_t at = batch.tokens[t] * problem.hidden + d;
        out->expected[at] += batch.weights[t] * sum[t];
        out->bound[at] += kOutBound * std::abs(batch.weights[t]) * magnitude[t];
      }
    }
  }
  for (int64_t token = 0; token < problem.num_tokens; ++token) {
    for (int64_t d = first; d < last; ++d) {
      const int64_t at = token * problem.hidden + d;
      out->bound[at] += kOutBound * std::abs(out->expected[at]);
    }
  }
}

void ExpectChoice(const Choice& choice, int64_t first, int64_t top_k, kvr_expected* outputs) {
  double largest = 0;
  for (const double weight : choice.weights) largest = std::max(largest, weight);
  for (int64_t i = 0; i < top_k; ++i) {
    const bool chosen = i < static_cast<int64_t>(choice.experts.size());
    outputs[kExpertIds].expected[first + i] = chosen ? choice.experts[i] : -1;
    outputs[kExpertWeights].expected[first + i] = chosen ? choice.weights[i] : 0;
    outputs[kExpertWeights].bound[first + i] = kWeightBound * largest;
  }
}

}  // namespace

void ComputeExperts(const int64_t* axes, const kvr_tensor* inputs,
                    const std::vector<Choice>& choices, int threads, kvr_expected* outputs) {
  const Problem problem = {.num_tokens = axes[kNumTokens],
                           .hidden = axes[kHidden],
                           .inner = axes[kInner],
                           .x = static_cast<const uint16_t*>(inputs[kX].data),
                           .w13 = static_cast<const uint16_t*>(inputs[kW13].data),
                           .w2 = static_cast<const uint16_t*>(inputs[kW2].data),
                           .choices = choices};
  for (int64_t token = 0; token < problem.num_tokens; ++token) {
    ExpectChoice(choices[token], token * axes[kTopK], axes[kTopK], outputs);
  }

  std::vector<Batch> batches = Batches(problem, axes[kNumExperts]);
  const auto blocks = [](int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; };
  const int64_t inner_blocks = blocks(problem.inner);
  ParallelFor(static_cast<int64_t>(batches.size()) * inner_blocks, threads, [&](int64_t task) {
    const int64_t first = task % inner_blocks * kRowBlock;
    ComputeHidden(problem, first, std::min(problem.inner, first + kRowBlock),
                  &batches[task / inner_blocks]);
  });
  ParallelFor(blocks(problem.hidden), threads, [&](int64_t block) {
    const int64_t first = block * kRowBlock;
    ComputeOut(problem, batches, first, std::min(problem.hidden, first + kRowBlock),
               &outputs[kOut]);
  });
}

}  // namespace kvr::moe_decode
