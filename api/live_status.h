// SPDX-License-Identifier: Apache-2.0
//
// What a running registry does at the moment, as JSON: the answer to `kvr status`. Its fields are
// listed in docs/formats.md.
//
// Threading: from any thread; takes the registry's short locks, never that of loading.
#pragma once

#include <string>

#include "api/live_protocol.h"
#include "api/live_steps.h"
#include "api/runtime.h"

namespace kvr {

class Swapper;

struct LiveProgram {
  std::string name;
  double uptime_s = 0;
  std::string live_ab;  // what alternates; empty: nothing
};

// `swapper` may be null. `selections`: also all that the generation selects, as a selection file.
LiveJson LiveStatusJson(const Runtime& runtime, const Swapper* swapper, const StepCounts& steps,
                        const LiveProgram& program, bool selections);

}  // namespace kvr
