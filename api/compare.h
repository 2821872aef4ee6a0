// SPDX-License-Identifier: Apache-2.0
//
// What an application includes to ask whether one config is faster than another, and how much noise
// its device has.
//
//   AbRequest request;
//   request.op = "mla_sparse_decode";
//   request.incumbent = "baseline";
//   request.challenger = "w8{TARGET_CTAS=512}";
//   request.shapes = {{{"num_tokens", 1}}, {{"num_tokens", 96}}};
//   KVR_ASSIGN_OR_RETURN(AbReport report, Compare(*platform, {.device = "cuda:0"}, request));
//   std::puts(Conclusion(report).c_str());
//
// Samples, verdicts and bands go to the ledger that the settings name.
//
// Threading, cancelling, errors: tuner/ab.h and tuner/noise_run.h.
#pragma once

#include "absl/status/statusor.h"
#include "api/platform.h"
#include "api/tune.h"
#include "tuner/ab.h"
#include "tuner/noise_run.h"

namespace kvr {

absl::StatusOr<AbReport> Compare(Platform& platform, const TuneSettings& settings,
                                 const AbRequest& request);
absl::StatusOr<NoiseReport> MeasureNoise(Platform& platform, const TuneSettings& settings,
                                         const NoiseRequest& request);

}  // namespace kvr
