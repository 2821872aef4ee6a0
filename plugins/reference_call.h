// SPDX-License-Identifier: Apache-2.0
//
// A plugin's reference function, an operation's or an approximate variant's: room for what it says,
// and the checks of that.
//
// Threading: pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"
#include "plugins/library.h"
#include "sdk/kvr_plugin.h"

namespace kvr {

// Runs the function on `outputs`, one for each of the op's.
using CallReference = std::function<int(kvr_expected* outputs, uint32_t output_count, char* error,
                                        size_t error_size)>;

// `function`: "the reference function of operation scale_rows". Refused: a function that fails or
// throws, an element that is expected to be NaN, bounds that are negative or not finite.
absl::StatusOr<std::vector<ReferenceOutput>> Referred(const PluginLibrary& library,
                                                      const std::string& function, const OpSpec& op,
                                                      const AxisVector& axes,
                                                      const CallReference& call);

}  // namespace kvr
