// SPDX-License-Identifier: Apache-2.0
//
// How many tokens a second would a stack of decode layers give? A synthetic bench: kernels and
// launch path alone, no model, no sampling, no network. Requests are served by continuous batching
// (schedule.h) on one graph per (batch bucket, input set), a host synchronisation after each step
// as a server has it that looks at the tokens.
//
//   KVR_ASSIGN_OR_RETURN(auto bench, DecodeBench::Open(*platform, options));
//   KVR_RETURN_IF_ERROR(bench->Load());
//   KVR_RETURN_IF_ERROR(bench->Fill());
//   KVR_ASSIGN_OR_RETURN(DecodeRun run, bench->Run(/*side=*/0, /*concurrency=*/48));
//   KVR_ASSIGN_OR_RETURN(DecodeComparison ab, bench->Compare(ab_options));
//
// Open looks at the options alone, and refuses what does not fit into the device's free memory.
// Load decides and builds what serves, so that it can be told before Fill takes its time.
//
// Run: C requests at once until n have max_tokens each. Then a step of every input set is checked:
// no value that is not finite, padding empty, every byte the same in a second replay into poisoned
// outputs. What is not right counts as errors.
//
// Compare: both sides take turns in blocks of steps, ABBA or BAAB by chance, each block at every
// concurrency with a full batch; judged by tuner/live_ab.h, a bucket being a concurrency. A block
// has as many steps of each input set, so both sides see the same rows. With the ship rule each
// session has fresh loads of both sides, in random order. Afterwards one step of each concurrency
// and side is checked; what is wrong makes it INVALID. Cancelled, it is judged by its whole rounds,
// unchecked.
// Cancelled, Load and Fill give kCancelled.
//
// Threading: one thread; `cancel` may be set from any. Ownership: the platform outlives it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/decode/side.h"
#include "api/decode/stack.h"
#include "api/platform.h"
#include "tuner/live_ab.h"

namespace kvr {

struct DecodeBenchOptions {
  std::string device = "auto";
  DecodeShape shape;
  int layers = 4;
  int input_sets = 8;
  std::vector<int64_t> concurrency = {48, 64, 80, 96};  // each at most the largest bucket
  int64_t requests = 0;                                 // 0: kRequestsPerSlot for each that may run
  int64_t max_tokens = 256;
  DecodeContestant a;
  std::optional<DecodeContestant> b;
  const std::atomic<bool>* cancel = nullptr;
  Progress* progress = nullptr;
};
inline constexpr int64_t kRequestsPerSlot = 4;

struct DecodeRun {
  int64_t concurrency = 0, requests = 0, max_tokens = 0;
  int64_t tokens = 0, steps = 0;
  int64_t errors = 0;  // tokens that no step gave, and rows of checked steps that are wrong
  std::string what;    // the first of them
  double wall_s = 0;
  double tokens_per_s = 0;  // tokens / wall
  // `concurrency` times the mean of the requests' own rates: what it would be without a tail.
  double per_request = 0;
  double p50_latency_s = 0, p99_latency_s = 0;  // of requests, from their first step on
  double p50_step_us = 0;                       // at the full batch
  double active_experts = 0;                    // mean over layers and checked steps of full batch
  int checked_steps = 0;
  bool cancelled = false;
};

struct DecodeAbOptions {
  LiveAbRules rules;
  int block = 16;  // steps at each concurrency; rounded up to a multiple of the input sets
  int warmup = 2;  // steps before these that do not count
  uint64_t seed = 0;
};

struct DecodeComparison {
  LiveVerdict verdict;
  int block = 0;
  uint64_t seed = 0;
  uint64_t throttle_bits = 0;  // of core/throttle.h, whenever seen
  double seconds = 0;
  bool cancelled = false;
  std::string what;  // is wrong with the first step that is
};

class DecodeBench {
 public:
  static absl::StatusOr<std::unique_ptr<DecodeBench>> Open(const Platform& platform,
                                                           const DecodeBenchOptions& options);
  ~DecodeBench();
  absl::Status Load();
  absl::Status Fill();

  const DeviceInfo& device() const { return device_->info(); }
  const DecodeStack& stack() const { return *stack_; }
  int sides() const { return options_.b ? 2 : 1; }
  const DecodeSide& side(int side) const { return *sides_[static_cast<size_t>(side)]; }

  // Errors: the device's own, after which nothing runs on it.
  absl::StatusOr<DecodeRun> Run(int side, int64_t concurrency);
  absl::StatusOr<DecodeComparison> Compare(const DecodeAbOptions& options);

 private:
  DecodeBench(const Platform& platform, const DecodeBenchOptions& options)
      : platform_(platform), options_(options) {}
  int64_t RequestsOf(int64_t concurrency) const;
  absl::Status CheckMemory() const;
  absl::Status Load(int side);
  absl::Status Capture(int side);
  absl::Status GoOn() const;  // kCancelled: no
  // To who watches.
  void Tell(const std::string& what, int done, int total) const;
  absl::StatusOr<double> Step(int side, int64_t batch, int set);  // microseconds
  // Two replays into poisoned outputs: wrong rows, a difference being one more.
  absl::StatusOr<DecodeOutputs> Check(int side, int64_t batch, int set);
  // `block` steps of each concurrency; their times by concurrency.
  absl::Status TakeBlock(const DecodeAbOptions& options, LiveBlock* block);
  bool Cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  const Platform& platform_;
  const DecodeBenchOptions options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DecodeStack> stack_;
  std::vector<int64_t> buckets_;
  std::array<std::unique_ptr<DecodeSide>, 2> sides_;
};

}  // namespace kvr
