// SPDX-License-Identifier: Apache-2.0
//
// Two generations that take turns in a serving loop: blocks of steps in the order ABBA or BAAB, by
// chance, so that drift falls on both alike. At the boundary between two blocks the loop's own
// thread publishes the other one, which is in the dispatcher's history and needs nothing compiled.
// It ends at a step boundary with the generation that it found, by its digest.
//
//   KVR_RETURN_IF_ERROR(alternation.Start(plan));          // the client's thread
//   alternation.BeginStep(); ... alternation.EndStep(...)  // the serving loop's
//   for (AlternationBlock& block : alternation.Take()) ... // the client's thread
//   AlternationEnd end = alternation.Finish("the client ended it");
//
// A step counts for the side that was published when it began. It counts for none if it is among
// the first of its bucket in its block (warm-up), if an executable could not be brought to that
// side's generation, or if it overlaps somebody else's publication. Somebody else's publication
// also ends the alternation, and stays.
//
// Threading: BeginStep, EndStep, CountError and CountApplied from the serving loop's thread: one
// load while nothing alternates, else a lock that is free but for a moment. Start, Take and Finish
// from one other thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "api/runtime.h"

namespace kvr {

struct AlternationPlan {
  std::array<Fingerprint, 2> sides;  // A, B: the current generation or in history(); may be equal
  int block = 32, warmup = 2;        // steps; warm-up: of each bucket, in each block
  uint64_t seed = 0;
  std::string who;  // for the journal
};

struct AlternationBlock {
  int number = 0;  // from 0; four make a round
  int side = 0;
  int steps = 0;
  int errors = 0;                                 // steps that went wrong
  int not_applied = 0;                            // steps that ran something else than their side
  std::map<std::string, std::vector<double>> us;  // by bucket, in the order taken
};

struct AlternationEnd {
  std::string reason;     // why it ended
  bool restored = false;  // the generation that was found serves again
  absl::Status status;    // why not
  int64_t steps = 0;
};

class Alternation {
 public:
  explicit Alternation(Runtime& runtime) : runtime_(runtime) {}

  void BeginStep() {
    if (active_.load(std::memory_order_acquire)) Begin();
  }
  void EndStep(std::string_view bucket, double microseconds) {
    if (active_.load(std::memory_order_acquire)) End(bucket, microseconds);
  }
  void CountError();
  void CountApplied(const Applied& applied);

  // `found` is what serves, and serves again at the end. Errors: a side that cannot be had at once;
  // kAborted: something else serves by now.
  absl::Status Start(const AlternationPlan& plan, const Fingerprint& found);
  // Blocks that ended since. Empty and ended(): there will be no more.
  std::vector<AlternationBlock> Take();
  bool ended() const;
  int64_t steps() const;  // that began since Start
  // Waits for the step at hand, not longer than a second.
  AlternationEnd Finish(std::string_view reason);

 private:
  void Begin();
  void End(std::string_view bucket, double microseconds);
  // `mutex_` is held, and no step runs but where the loop stands still.
  void NextBlock();
  bool Publish(const Fingerprint& digest, bool quiet, std::string reason);
  void Leave(std::string reason);
  int SideOf(int block);

  Runtime& runtime_;
  std::atomic<bool> active_{false};

  mutable std::mutex mutex_;
  std::condition_variable left_;
  AlternationPlan plan_;
  Fingerprint found_;
  Fingerprint serving_;  // what was published last
  std::mt19937_64 random_;
  bool reversed_ = false;  // BAAB: the round at hand
  int side_ = 0;           // of the block at hand
  bool leaving_ = false;   // Finish was called
  std::string leaving_why_;
  bool in_step_ = false, tainted_ = false;
  std::optional<AlternationBlock> block_;
  std::map<std::string, int, std::less<>> seen_;  // steps by bucket in this block
  std::vector<AlternationBlock> finished_;
  int64_t waiting_ = 0;  // steps in them
  AlternationEnd end_;
};

}  // namespace kvr
