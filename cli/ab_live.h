// SPDX-License-Identifier: Apache-2.0
//
// kvr ab --live SOCKET A B: the comparison in a running program.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "tuner/live_ab.h"

namespace kvr::cli {

struct AbLiveOptions {
  std::string socket, a = "current", b;
  int block = 32, warmup = 2;
  double seconds = 0;  // 0: until it is decided
  uint64_t seed = 0;
  LiveAbRules rules;
};

absl::StatusOr<int> RunAbLive(const GlobalOptions& global, const AbLiveOptions& options);

}  // namespace kvr::cli
