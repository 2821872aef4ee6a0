// SPDX-License-Identifier: Apache-2.0
//
// What the clients of a running program may ask of it (api/live_protocol.h). Swaps, rollbacks and a
// live A/B exclude each other: a request that comes while another kind is at work is refused with
// the reason.
//
// Threading: Handle from any number of threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "api/live_alternation.h"
#include "api/live_server.h"
#include "api/live_steps.h"
#include "api/runtime.h"
#include "tuner/swapper.h"

namespace kvr {

class LiveCommands {
 public:
  // `swapper` may be null.
  LiveCommands(Runtime& runtime, Swapper* swapper, std::string name);

  absl::Status Handle(const LiveRequest& request, LiveTalk& talk);
  Alternation& alternation() { return alternation_; }
  StepCounts& steps() { return steps_; }

 private:
  absl::Status Status(bool selections, LiveTalk& talk);
  absl::Status Swap(const LiveRequest& request, LiveTalk& talk);
  absl::Status Follow(uint64_t id, LiveTalk& talk, const LiveJson& about, SwapResult* result);
  absl::Status RollBackHere(const std::string& digest, LiveTalk& talk);
  absl::Status Ab(const LiveAbRequest& request, LiveTalk& talk);
  absl::Status Prepare(const LiveTarget& target, const char* side, LiveTalk& talk,
                       Fingerprint* digest);
  absl::Status FindKept(const std::string& name, Fingerprint* digest);
  absl::Status Stream(const LiveAbRequest& request, const AlternationPlan& plan,
                      const std::vector<Fingerprint>& served, LiveTalk& talk);
  // `served`: digests, newest first; what a rollback goes to is again what served before.
  void EndAb(const std::vector<Fingerprint>& served);
  // What a preparation has published serves nobody any more.
  absl::Status Restore(const Fingerprint& found, const Fingerprint& prepared,
                       const std::string& who);
  absl::Status Begin(std::string what);  // of a live A/B

  Runtime& runtime_;
  Swapper* const swapper_;
  const std::string name_;
  const absl::Time started_;
  StepCounts steps_;
  Alternation alternation_;

  std::mutex control_;   // held for moments: who may change the generation
  std::string live_ab_;  // what it compares and for whom; empty: none
  int rollbacks_ = 0;    // at work here, without a swapper
};

}  // namespace kvr
