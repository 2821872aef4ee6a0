// SPDX-License-Identifier: Apache-2.0
#include "api/compare.h"

#include "api/bench.h"

namespace kvr {

absl::StatusOr<AbReport> Compare(Platform& platform, const TuneSettings& settings,
                                 const AbRequest& request) {
  return CompareContestants(RecordingBench(platform, settings).workbench, request);
}

absl::StatusOr<NoiseReport> MeasureNoise(Platform& platform, const TuneSettings& settings,
                                         const NoiseRequest& request) {
  return MeasureNoise(RecordingBench(platform, settings).workbench, request);
}

}  // namespace kvr
