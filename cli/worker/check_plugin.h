// SPDX-License-Identifier: Apache-2.0
//
// What kvr-worker --check-plugin does: loads a compiled plugin and calls each of its plan functions
// once for each kind of device that it is for, at the default axes and tunables. Plan functions run
// in the process that launches, so one that crashes or hangs at once is to be found here.
//
// Threading: for a process that may die of it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace kvr {

// `doing` is told before each call: "calling the plan function of scale_rows/w8". What a plan
// function returns is no matter here; of an operation that is not known, none is called.
absl::Status CheckPlugin(const std::string& path,
                         const std::function<void(std::string doing)>& doing);

}  // namespace kvr
