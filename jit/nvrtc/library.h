// SPDX-License-Identifier: Apache-2.0
//
// libnvrtc, loaded by path. The declarations are KVR's own: nothing of CUDA is needed to build.
//
// Threading: NVRTC's functions may be called concurrently on different programs.
// Ownership: never unloaded; NVRTC keeps process-wide state and threads of its own.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "jit/nvrtc/nvrtc.h"

namespace kvr {

using NvrtcProgram = struct NvrtcProgramOpaque*;

enum NvrtcResult : int {
  kNvrtcSuccess = 0,
  kNvrtcOutOfMemory = 1,
  kNvrtcInvalidOption = 5,
  kNvrtcCompilation = 6,
};

struct NvrtcLibrary {
  NvrtcResult (*version)(int* major, int* minor);
  NvrtcResult (*get_num_supported_archs)(int* count);
  NvrtcResult (*get_supported_archs)(int* archs);
  NvrtcResult (*create_program)(NvrtcProgram* program, const char* source, const char* name,
                                int header_count, const char* const* headers,
                                const char* const* include_names);
  NvrtcResult (*destroy_program)(NvrtcProgram* program);
  NvrtcResult (*compile_program)(NvrtcProgram program, int option_count,
                                 const char* const* options);
  NvrtcResult (*get_cubin_size)(NvrtcProgram program, size_t* size);
  NvrtcResult (*get_cubin)(NvrtcProgram program, char* cubin);
  NvrtcResult (*get_log_size)(NvrtcProgram program, size_t* size);
  NvrtcResult (*get_log)(NvrtcProgram program, char* log);
  NvrtcResult (*add_name_expression)(NvrtcProgram program, const char* expression);
  NvrtcResult (*get_lowered_name)(NvrtcProgram program, const char* expression,
                                  const char** lowered);
  const char* (*get_error_string)(NvrtcResult result);
};

absl::StatusOr<NvrtcLibrary> LoadNvrtc(const Toolchain& toolchain);

}  // namespace kvr
