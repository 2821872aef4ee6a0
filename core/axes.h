// SPDX-License-Identifier: Apache-2.0
//
// Axis values by name, as the CLI, files and reports speak of them. The launch path uses the
// op's positional form instead (core/op.h, AxisVector): no strings there.
//
// Text form: "num_tokens=96,topk=512"; values are positive decimal integers, or 0 (an empty
// batch is legal where the op says so). Duplicates, blanks, signs and trailing commas are errors
// that quote the piece and say what would be right. A range, "num_tokens=1..96", stands for each
// value from the first to the last: several shapes in one text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvr {

using Axes = std::map<std::string, int64_t>;

absl::StatusOr<Axes> ParseAxes(std::string_view text);
// Every shape that `text` stands for, the last axis fastest; "" is one shape without axes.
// kOutOfRange: more than kMaxShapes.
inline constexpr int64_t kMaxShapes = 65536;
absl::StatusOr<std::vector<Axes>> ExpandAxes(std::string_view text);
std::string AxesText(const Axes& axes);  // sorted by name; ParseAxes(AxesText(a)) == a

}  // namespace kvr
