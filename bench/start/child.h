// SPDX-License-Identifier: Apache-2.0
//
// The processes that are timed. Each does one thing once and prints one line of JSON: when it
// reached what, in milliseconds since its parent started it.
//
//   kvr          Runtime::Open, Load of every operation, a launch of every variant; with compilers
//   prebuilt     the same from selection file and cache alone
//   compile      Jit::Build of the set on N threads
//   nvrtc        NVRTC alone: the same units under the same options, on N threads; on a GPU then
//                the driver as in `cubins`
//   cubins       the driver alone: context, modules and functions of the same cubins
//   hit          the cache: a binary from disk beside reading its file, a build that is held
//
// Stamps: `main` the process runs, `opened` Runtime::Open is done or the compiler is there, `built`
// everything is compiled, `loaded` every kernel's function is there, `launched` one launch of each
// variant has ended. What only the bench needs (reading the units) is taken out.
//
// Threading: one call a process.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/start/set.h"

namespace kvr::bench {

int64_t NowNs();  // monotonic, the same clock in every process

struct ChildJob {
  std::string mode;
  std::string directory;  // of the set
  std::string cache;
  int threads = 1;
  int64_t start_ns = 0;  // when the parent started it
  int64_t main_ns = 0;
};

absl::StatusOr<Json> RunChild(const ChildJob& job);

}  // namespace kvr::bench
