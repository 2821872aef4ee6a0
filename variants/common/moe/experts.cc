// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "variants/common/parallel.h"

namespace kvr::moe {
namespace {

constexpr double kOutBound = 1.0 / 128;
constexpr double kWeightBound = 1e-5;
constexpr int kTokens = 8;         // tokens that one pass over an expert's row serves
constexpr int64_t kRowBlock = 32;  // rows of a task

// Tokens innermost: the compiler vectorises over them and every sum keeps its plain order.
using Lanes = std::array<double, kTokens>;

// One expert with up to kTokens of its tokens.
struct Batch {
  int64_t expert;
  std::vector<int64_t> tokens;
  std::vector<double> weights;
  std::vector<Lanes> h;  // [inner], once computed
};

std::vector<Batch> Batches(const Experts& experts, const std::vector<Choice>& choices) {
  std::vector<Batch> batches;
  for (int64_t expert = experts.first; expert < experts.first + experts.count; ++expert) {
    size_t room = 0;
    for (int64_t token = 0; token < experts.num_tokens; ++token) {
      const Choice& choice = choices[token];
      const auto at = std::find(choice.experts.begin(), choice.experts.end(), expert);
      if (at == choice.experts.end()) continue;
      if (room == 0) {
        batches.push_back({.expert = expert, .h = std::vector<Lanes>(experts.inner)});
        room = kTokens;
      }
      batches.back().tokens.push_back(token);
      batches.back().weights.push_back(choice.weights[at - choice.experts.begin()]);
      --room;
    }
  }
  return batches;
}

Lanes Dot(const std::vector<double>& row, const std::vector<Lanes>& columns) {
  Lanes sum{};
  for (size_t d = 0; d < columns.size(); ++d) {
    for (int t = 0; t < kTokens; ++t) sum[t] += row[d] * columns[d][t];
  }
  return sum;
}

// Rows [first, last) of `batch`'s hidden layer.
void ComputeHidden(const Experts& experts, int64_t first, int64_t last, Batch* batch) {
  std::vector<Lanes> x(experts.hidden);
  std::vector<double> row(experts.hidden);
  for (size_t t = 0; t < batch->tokens.size(); ++t) {
    experts.token(batch->tokens[t], row.data());
    for (int64_t d = 0; d < experts.hidden; ++d) x[d][t] = row[d];
  }
  for (int64_t i = first; i < last; ++i) {
    experts.gate(batch->expert, i, row.data());
    const Lanes gate = Dot(row, x);
    experts.up(batch->expert, i, row.data());
    const Lanes up = Dot(row, x);
    for (size_t t = 0; t < batch->tokens.size(); ++t) {
      batch->h[i][t] = experts.activate(batch->expert, gate[t], up[t]);
    }
  }
}

// Rows [first, last) of the output, over all experts, in the order of their ids.
void ComputeOut(const Experts& experts, const std::vector<Batch>& batches, int64_t first,
                int64_t last, kvr_expected* out) {
  std::vector<double> row(experts.inner);
  for (const Batch& batch : batches) {
    for (int64_t d = first; d < last; ++d) {
      experts.down(batch.expert, d, row.data());
      Lanes sum{}, magnitude{};
      for (int64_t i = 0; i < experts.inner; ++i) {
        for (int t = 0; t < kTokens; ++t) {
          const double term = row[i] * batch.h[i][t];
          sum[t] += term;
          magnitude[t] += std::abs(term);
        }
      }
      for (size_t t = 0; t < batch.tokens.size(); ++t) {
        const int64_t at = batch.tokens[t] * experts.hidden + d;
        out->expected[at] += batch.weights[t] * sum[t];
        out->bound[at] += kOutBound * std::abs(batch.weights[t]) * magnitude[t];
      }
    }
  }
  for (int64_t token = 0; token < experts.num_tokens; ++token) {
    for (int64_t d = first; d < last; ++d) {
      const int64_t at = token * experts.hidden + d;
      out->bound[at] += kOutBound * std::abs(out->expected[at]);
    }
  }
}

}  // namespace

void ComputeExperts(const Experts& experts, const std::vector<Choice>& choices, int threads,
                    kvr_expected* out) {
  std::vector<Batch> batches = Batches(experts, choices);
  const auto blocks = [](int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; };
  const int64_t inner_blocks = blocks(experts.inner);
  ParallelFor(static_cast<int64_t>(batches.size()) * inner_blocks, threads, [&](int64_t task) {
    const int64_t first = task % inner_blocks * kRowBlock;
    ComputeHidden(experts, first, std::min(experts.inner, first + kRowBlock),
                  &batches[task / inner_blocks]);
  });
  ParallelFor(blocks(experts.hidden), threads, [&](int64_t block) {
    const int64_t first = block * kRowBlock;
    ComputeOut(experts, batches, first, std::min(experts.hidden, first + kRowBlock), out);
  });
}

void ExpectChoices(const std::vector<Choice>& choices, int64_t slots, kvr_expected* ids,
                   kvr_expected* weights) {
  int64_t slot = 0;
  for (const Choice& choice : choices) {
    double largest = 0;
    for (const double weight : choice.weights) largest = std::max(largest, weight);
    for (int64_t i = 0; i < slots; ++i, ++slot) {
      const bool chosen = i < static_cast<int64_t>(choice.experts.size());
      ids->expected[slot] = chosen ? choice.experts[i] : -1;
      weights->expected[slot] = chosen ? choice.weights[i] : 0;
      weights->bound[slot] = kWeightBound * largest;
    }
  }
}

}  // namespace kvr::moe
