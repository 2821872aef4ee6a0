// SPDX-License-Identifier: Apache-2.0
//
// Quality figures of an approximate result (core/op.h, QualityMeasure) as text, and their mean.
// Figures that KVR computes bear the output's name, "y.relative_error"; an operation's own have
// none, "experts_changed".
//
// Threading: values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/op.h"

namespace kvr {

// "y.cosine_difference=0.00012,rows_changed=0.5": every digit that it takes to read the same value
// back. What is not finite is "nan".
std::string QualityText(absl::Span<const QualityMeasure> measures);
absl::StatusOr<std::vector<QualityMeasure>> ParseQuality(std::string_view text);
// For people: "y.cosine_difference 0.00012, rows_changed 0.5", three digits each.
std::string QualityLine(absl::Span<const QualityMeasure> measures);

// The largest relative error of any output, in percent, for tables: "1.25 %"; "-": there is none;
// "no bound": one is not finite, as where the exact output is all zeros and this one is not.
std::string WorstErrorText(absl::Span<const QualityMeasure> measures);

// The mean of each figure over several rounds, in the order of the first.
class QualityMean {
 public:
  void Add(absl::Span<const QualityMeasure> measures);
  std::vector<QualityMeasure> mean() const;

 private:
  std::vector<QualityMeasure> sums_;
  int rounds_ = 0;
};

}  // namespace kvr
