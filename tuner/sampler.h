// SPDX-License-Identifier: Apache-2.0
//
// Where timings come from, as the decision logic sees it: rounds of interleaved samples of numbered
// subjects. A sample is microseconds per launch; NaN says that the subject failed in that round.
// The worker implements it over devices (tuner/worker/client.h); tests over random numbers.
//
// Threading: one caller at a time.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvr {

// samples[round][position in the subjects asked for]
using SampleTable = std::vector<std::vector<double>>;

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int subjects() const = 0;
  // `rounds` rounds; each visits every subject once, in an order drawn anew, on inputs drawn anew
  // that all subjects of the round share. Errors are the sampler's own, not a subject's.
  virtual absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds) = 0;
  // Why what was sampled so far must not be believed (the device drifted, was throttled, was not
  // ours alone); empty: nothing is known against it. The first reason stays.
  virtual std::string trouble() const { return {}; }
};

// The median of the finite samples; NaN if there are none.
double Median(std::vector<double> samples);
// Half the interquartile range over the median: a robust relative spread. NaN below two samples.
double RelativeSpread(std::vector<double> samples);
std::vector<double> Column(const SampleTable& table, int position);

}  // namespace kvr
