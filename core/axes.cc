// SPDX-License-Identifier: Apache-2.0
#include "core/axes.h"

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

absl::StatusOr<Axes> ParseAxes(std::string_view text) {
  KVR_ASSIGN_OR_RETURN(auto pairs, ParseAssignments(text, "axis", /*negative=*/false));
  return Axes(pairs.begin(), pairs.end());
}

std::string AxesText(const Axes& axes) { return JoinPairs(axes); }

}  // namespace kvr
