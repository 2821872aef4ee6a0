// SPDX-License-Identifier: Apache-2.0
//
// NVRTC's program log: the front end's messages ("split.cu(12): error: ..." with the line and a
// caret) and the assembler's ("ptxas info : Used 40 registers"), made into data.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jit/diagnostics.h"
#include "jit/unit.h"

namespace kvr {

// Of one kernel, from the verbose log; the only place that has spills.
struct AssemblerInfo {
  int64_t spill_bytes = 0;   // stores + loads
  int64_t smem_static = -1;  // -1: the log does not say
};

struct NvrtcLog {
  std::vector<Diagnostic> diagnostics;
  std::map<std::string, AssemblerInfo> kernels;  // by symbol
  std::string rest;                              // the log without the assembler's info lines
};

// `unit` serves to place the assembler's messages: they name a symbol or an instruction only.
NvrtcLog ParseNvrtcLog(std::string_view log, const Unit& unit);

}  // namespace kvr
