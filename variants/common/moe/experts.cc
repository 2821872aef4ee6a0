// SPDX-License-Identifier: Apache-2.0
#include "variants/common/moe/experts.h"

#include <algorithm>

#include "variants/common/moe/lanes.h"
#include "variants/common/parallel.h"

namespace kvr::moe {
namespace {

constexpr double kOutBound = 1.0 / 128;
constexpr double kWeightBound = 1e-5;
// Rows of a task: of the hidden layer enough that widening the tokens' columns for each is little.
constexpr int64_t kHiddenRows = 128, kOutRows = 32;

// One expert with up to kLanes of its tokens.
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
        room = kLanes;
      }
      batches.back().tokens.push_back(token);
      batches.back().weights.push_back(choice.weights[at - choice.experts.begin()]);
      --room;
    }
  }
  return batches;
}

// Rows [first, first + count) of one of the expert's matrices, one after the other; what is beyond
// `last` repeats the last.
void Widen(const std::function<void(int64_t, int64_t, double*)>& matrix, int64_t expert,
           int64_t first, int64_t last, int count, int64_t width, double* rows) {
  for (int r = 0; r < count; ++r) {
    matrix(expert, std::min(first + r, last - 1), rows + r * width);
  }
}

// Rows [first, last) of `batch`'s hidden layer.
void ComputeHidden(const Experts& experts, const LaneMath& math, int64_t first, int64_t last,
                   Batch* batch) {
  constexpr int kRows = LaneMath::kDotRows;
  std::vector<Lanes> x(experts.hidden);
  std::vector<double> rows(kRows * experts.hidden);
  for (size_t t = 0; t < batch->tokens.size(); ++t) {
    experts.token(batch->tokens[t], rows.data());
    for (int64_t d = 0; d < experts.hidden; ++d) x[d].of[t] = rows[d];
  }
  for (int64_t i = first; i < last; i += kRows) {
    Lanes gate[kRows], up[kRows];
    Widen(experts.gate, batch->expert, i, last, kRows, experts.hidden, rows.data());
    math.dot(rows.data(), experts.hidden, x.data(), gate);
    Widen(experts.up, batch->expert, i, last, kRows, experts.hidden, rows.data());
    math.dot(rows.data(), experts.hidden, x.data(), up);
    for (int64_t r = 0; r < std::min<int64_t>(kRows, last - i); ++r) {
      for (size_t t = 0; t < batch->tokens.size(); ++t) {
        batch->h[i + r].of[t] = experts.activate(batch->expert, gate[r].of[t], up[r].of[t]);
      }
    }
  }
}

// Rows [first, last) of the output, over all experts, in the order of their ids.
void ComputeOut(const Experts& experts, const LaneMath& math, const std::vector<Batch>& batches,
                int64_t first, int64_t last, kvr_expected* out) {
  constexpr int kRows = LaneMath::kSumRows;
  std::vector<double> rows(kRows * experts.inner);
  for (const Batch& batch : batches) {
    for (int64_t d = first; d < last; d += kRows) {
      Lanes sum[kRows], magnitude[kRows];
      Widen(experts.down, batch.expert, d, last, kRows, experts.inner, rows.data());
      math.sum(rows.data(), experts.inner, batch.h.data(), sum, magnitude);
      for (int64_t r = 0; r < std::min<int64_t>(kRows, last - d); ++r) {
        for (size_t t = 0; t < batch.tokens.size(); ++t) {
          const int64_t at = batch.tokens[t] * experts.hidden + d + r;
          out->expected[at] += batch.weights[t] * sum[r].of[t];
          out->bound[at] += kOutBound * std::abs(batch.weights[t]) * magnitude[r].of[t];
        }
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
  const LaneMath& math = FastestLaneMath();
  const auto tasks = [](int64_t rows, int64_t of_task) { return (rows + of_task - 1) / of_task; };
  const int64_t hidden_tasks = tasks(experts.inner, kHiddenRows);
  ParallelFor(static_cast<int64_t>(batches.size()) * hidden_tasks, threads, [&](int64_t task) {
    const int64_t first = task % hidden_tasks * kHiddenRows;
    ComputeHidden(experts, math, first, std::min(experts.inner, first + kHiddenRows),
                  &batches[task / hidden_tasks]);
  });
  ParallelFor(tasks(experts.hidden, kOutRows), threads, [&](int64_t task) {
    const int64_t first = task * kOutRows;
    ComputeOut(experts, math, batches, first, std::min(experts.hidden, first + kOutRows), out);
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
