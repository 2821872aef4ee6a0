// SPDX-License-Identifier: Apache-2.0
#include "api/decode/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include "api/decode/memory.h"
#include "api/decode/schedule.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/sampler.h"

namespace kvr {
namespace {

constexpr int kWarmupSteps = 16;  // before a run: clocks go up, caches hold what they will

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// By nearest rank.
double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at =
      values.begin() + std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(rank) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

absl::Status CheckOptions(const DecodeBenchOptions& options) {
  const auto wrong = [](std::string_view what, std::string_view fix) {
    return Error(absl::StatusCode::kInvalidArgument, what, fix);
  };
  if (options.concurrency.empty()) return wrong("no concurrency is given", "as in 48,64");
  std::set<int64_t> said;
  for (const int64_t concurrency : options.concurrency) {
    if (!said.insert(concurrency).second) {
      return wrong(StrCat("concurrency ", concurrency, " is said twice"), "say it once");
    }
    if (concurrency < 1 || DecodeBucketOf(concurrency) == 0) {
      return wrong(StrCat("a concurrency of ", concurrency, " is out of range"),
                   StrCat("give 1 to ", *std::rbegin(kDecodeBuckets)));
    }
  }
  // So that none is rare (tuner/live_ab.h).
  constexpr size_t kMostCompared = static_cast<size_t>(1 / kRareBucket);
  if (options.b && options.concurrency.size() > kMostCompared) {
    return wrong(StrCat("a comparison at ", options.concurrency.size(), " concurrencies"),
                 StrCat("give ", kMostCompared, " at most"));
  }
  if (options.layers < 1) return wrong("a stack has at least one layer", "as in --layers 4");
  if (options.input_sets < 2) {
    return wrong("with fewer than two input sets every step repeats the rows of the last",
                 "give 2 or more");
  }
  if (options.requests < 0 || options.max_tokens < 1) {
    return wrong("requests have at least one token", "leave them out for the defaults");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeBench>> DecodeBench::Open(const Platform& platform,
                                                               const DecodeBenchOptions& options) {
  KVR_RETURN_IF_ERROR(CheckOptions(options));
  KVR_RETURN_IF_ERROR(CheckParts(options.a));
  if (options.b) KVR_RETURN_IF_ERROR(CheckParts(*options.b));
  std::unique_ptr<DecodeBench> bench(new DecodeBench(platform, options));
  KVR_ASSIGN_OR_RETURN(bench->device_, platform.OpenDevice(options.device));
  if (bench->device().kind == "null") {
    return Error(absl::StatusCode::kInvalidArgument, "the null device computes nothing",
                 "give cuda or host");
  }
  std::set<int64_t> buckets;
  for (const int64_t concurrency : options.concurrency) {
    buckets.insert(DecodeBucketOf(concurrency));
    for (const int64_t batch : BatchesOf(concurrency, bench->RequestsOf(concurrency))) {
      buckets.insert(DecodeBucketOf(batch));
    }
  }
  bench->buckets_.assign(buckets.begin(), buckets.end());
  KVR_ASSIGN_OR_RETURN(bench->stack_, DecodeStack::Create(platform.catalog(), *bench->device_,
                                                          {.shape = options.shape,
                                                           .layers = options.layers,
                                                           .input_sets = options.input_sets,
                                                           .rows = bench->buckets_.back(),
                                                           .cancel = options.cancel,
                                                           .progress = options.progress}));
  KVR_RETURN_IF_ERROR(bench->CheckMemory());
  return bench;
}

absl::Status DecodeBench::CheckMemory() const {
  // Beside the stack: workspaces, modules, graphs, and what is drawn and looked at on the host.
  const auto needs = [&](int layers) {
    const int64_t bytes = stack_->Needs(layers);
    return bytes + bytes / 16;
  };
  KVR_ASSIGN_OR_RETURN(const int64_t free, FreeMemory(*device_));
  if (needs(options_.layers) <= free) return absl::OkStatus();
  int fits = options_.layers - 1;
  while (fits > 0 && needs(fits) > free) --fits;
  const bool tiny = options_.shape.name == "tiny";
  std::string fix = fits > 0 ? StrCat("give --layers ", fits) : "";
  if (!tiny) StrAppend(&fix, fits > 0 ? " or " : "give ", "--shape tiny");
  if (fix.empty()) fix = "give smaller --axes, or a smaller --concurrency";
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(options_.shape.name, " with ", options_.layers,
                      options_.layers == 1 ? " layer" : " layers", " needs ",
                      GigabytesText(needs(options_.layers)), " on ", device().name, ", ",
                      GigabytesText(free), " are free"),
               fix);
}

absl::Status DecodeBench::GoOn() const {
  return Cancelled() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

void DecodeBench::Tell(const std::string& what, int done, int total) const {
  if (options_.progress == nullptr) return;
  options_.progress->Update(
      {.phase = Phase::kMeasure, .done = done, .total = total, .current = what});
}

absl::Status DecodeBench::Load() {
  for (int side = 0; side < sides(); ++side) {
    KVR_RETURN_IF_ERROR(GoOn());
    if (options_.progress != nullptr) {
      options_.progress->Update({.phase = Phase::kCompile, .done = side, .total = sides()});
    }
    KVR_RETURN_IF_ERROR(Load(side));
  }
  return absl::OkStatus();
}

absl::Status DecodeBench::Fill() {
  KVR_RETURN_IF_ERROR(stack_->Fill());
  for (int side = 0; side < sides(); ++side) KVR_RETURN_IF_ERROR(Capture(side));
  return absl::OkStatus();
}

DecodeBench::~DecodeBench() {
  for (std::unique_ptr<DecodeSide>& side : sides_) side.reset();
  stack_.reset();
}

int64_t DecodeBench::RequestsOf(int64_t concurrency) const {
  return options_.requests > 0 ? options_.requests : kRequestsPerSlot * concurrency;
}

absl::Status DecodeBench::Load(int side) {
  sides_[static_cast<size_t>(side)].reset();  // its memory, before more is asked for
  KVR_ASSIGN_OR_RETURN(
      sides_[static_cast<size_t>(side)],
      DecodeSide::Open(platform_, *stack_, side == 0 ? options_.a : *options_.b, buckets_));
  return absl::OkStatus();
}

absl::Status DecodeBench::Capture(int side) {
  KVR_RETURN_IF_ERROR(sides_[static_cast<size_t>(side)]->Capture());
  // An executable's first launch takes longer.
  for (const int64_t concurrency : options_.concurrency) {
    for (int set = 0; set < options_.input_sets; ++set) {
      KVR_RETURN_IF_ERROR(GoOn());
      Tell("first steps", set, options_.input_sets);
      KVR_RETURN_IF_ERROR(Step(side, concurrency, set).status());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> DecodeBench::Step(int side, int64_t batch, int set) {
  KVR_RETURN_IF_ERROR(stack_->SetBatch(set, batch));
  const double start = Now();
  KVR_RETURN_IF_ERROR(sides_[static_cast<size_t>(side)]->Replay(DecodeBucketOf(batch), set));
  KVR_RETURN_IF_ERROR(device_->Synchronize(stack_->stream()));
  return 1e6 * (Now() - start);
}

absl::StatusOr<DecodeOutputs> DecodeBench::Check(int side, int64_t batch, int set) {
  const auto replay = [&]() -> absl::StatusOr<DecodeOutputs> {
    KVR_RETURN_IF_ERROR(stack_->PoisonOutputs());
    KVR_RETURN_IF_ERROR(Step(side, batch, set).status());
    return stack_->Outputs(DecodeBucketOf(batch), batch);
  };
  KVR_ASSIGN_OR_RETURN(DecodeOutputs outputs, replay());
  KVR_ASSIGN_OR_RETURN(const DecodeOutputs again, replay());
  if (outputs.bytes != again.bytes) {
    ++outputs.wrong_rows;
    if (outputs.what.empty()) outputs.what = "a second replay gave other outputs";
  }
  return outputs;
}

absl::StatusOr<DecodeRun> DecodeBench::Run(int side, int64_t concurrency) {
  DecodeRun run{.concurrency = concurrency,
                .requests = RequestsOf(concurrency),
                .max_tokens = options_.max_tokens};
  DecodeSchedule schedule(run.concurrency, run.requests, run.max_tokens);
  const int64_t full = schedule.batch();
  int set = 0;
  const auto next_set = [&] { return set = (set + 1) % options_.input_sets; };
  for (int i = 0; i < kWarmupSteps && !Cancelled(); ++i) {
    Tell(StrCat("warm-up steps, C=", concurrency), i, kWarmupSteps);
    KVR_RETURN_IF_ERROR(Step(side, full, next_set()).status());
  }

  std::vector<double> began(static_cast<size_t>(run.requests)), latencies, step_us;
  const double start = Now();
  while (!schedule.done() && !Cancelled()) {
    const int64_t batch = schedule.batch();
    const double step_start = Now();
    for (const DecodeSchedule::Slot& slot : schedule.running()) {
      if (slot.tokens == 0) began[static_cast<size_t>(slot.request)] = step_start;
    }
    KVR_ASSIGN_OR_RETURN(const double us, Step(side, batch, next_set()));
    if (batch == full) step_us.push_back(us);
    ++run.steps;
    const double now = Now();
    for (const int64_t request : schedule.EndStep()) {
      latencies.push_back(now - began[static_cast<size_t>(request)]);
    }
    if (options_.progress != nullptr) {
      const double share = static_cast<double>(schedule.tokens()) /
                           static_cast<double>(run.requests * run.max_tokens);
      options_.progress->Update({.phase = Phase::kMeasure,
                                 .done = static_cast<int>(latencies.size()),
                                 .total = static_cast<int>(run.requests),
                                 .current = StrCat("requests, C=", run.concurrency),
                                 .eta_seconds = (now - start) * (1 / share - 1)});
    }
  }
  run.wall_s = Now() - start;
  run.tokens = schedule.tokens();
  run.cancelled = !schedule.done();
  if (run.steps == 0) return run;
  run.tokens_per_s = static_cast<double>(run.tokens) / run.wall_s;
  for (const double latency : latencies) {
    run.per_request += static_cast<double>(full * run.max_tokens) / latency /
                       static_cast<double>(latencies.size());
  }
  run.p50_latency_s = Quantile(latencies, 0.5);
  run.p99_latency_s = Quantile(latencies, 0.99);
  if (!step_us.empty()) run.p50_step_us = Median(step_us);
  const int64_t missing = run.requests * run.max_tokens - run.tokens;
  if (missing != 0 && !run.cancelled) {
    run.errors += std::abs(missing);
    run.what = StrCat(run.tokens, " tokens in place of ", run.requests * run.max_tokens);
  }

  // Every input set at the full batch, one at each other.
  if (run.cancelled) return run;
  for (const int64_t batch : BatchesOf(run.concurrency, run.requests)) {
    for (int sample = 0; sample < (batch == full ? options_.input_sets : 1); ++sample) {
      if (Cancelled()) return run;
      Tell(StrCat("checked steps, C=", concurrency), run.checked_steps, 0);
      KVR_ASSIGN_OR_RETURN(const DecodeOutputs outputs, Check(side, batch, sample));
      run.errors += outputs.wrong_rows;
      if (run.what.empty()) run.what = outputs.what;
      if (batch == full)
        run.active_experts += (outputs.active_experts - run.active_experts) / (sample + 1);
      ++run.checked_steps;
    }
  }
  return run;
}

absl::Status DecodeBench::TakeBlock(const DecodeAbOptions& options, LiveBlock* block) {
  const int sets = options_.input_sets;
  for (const int64_t concurrency : options_.concurrency) {
    std::vector<double>& us = block->us[StrCat(concurrency)];
    for (int i = -options.warmup; i < options.block && !Cancelled(); ++i) {
      const int set = ((i % sets) + sets) % sets;
      KVR_ASSIGN_OR_RETURN(const double step, Step(block->side, concurrency, set));
      ++block->steps;
      if (i >= 0) us.push_back(step);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DecodeComparison> DecodeBench::Compare(const DecodeAbOptions& given) {
  DecodeAbOptions options = given;
  const int sets = options_.input_sets;
  options.block = (options.block + sets - 1) / sets * sets;
  while (options.seed == 0) options.seed = std::random_device()();
  std::mt19937_64 random(options.seed);
  DecodeComparison result{.block = options.block, .seed = options.seed};
  LiveComparison comparison(options.rules);
  const int session_rounds = options.rules.rounds > 0 ? options.rules.rounds : kLiveSessionRounds;
  const int most = options.rules.ship         ? session_rounds * options.rules.sessions
                   : options.rules.rounds > 0 ? options.rules.rounds
                                              : kLiveRounds;
  const double start = Now();

  // A quick verdict goes on until every concurrency is decided: the first that lost would else
  // leave the others open.
  const auto decided = [&] {
    if (options.rules.ship) return comparison.done();
    const LiveVerdict so_far = comparison.Judge();
    return comparison.rounds() >= most ||
           (!so_far.buckets.empty() &&
            std::none_of(so_far.buckets.begin(), so_far.buckets.end(), [](const LiveBucket& b) {
              return b.verdict == stats::Verdict::kInconclusive;
            }));
  };
  for (int number = 0; !decided() && !(result.cancelled = Cancelled());) {
    if (options.rules.ship && comparison.rounds() % session_rounds == 0) {
      const int first = static_cast<int>(random() % 2);
      for (const int side : {first, 1 - first}) {
        KVR_RETURN_IF_ERROR(Load(side));
        KVR_RETURN_IF_ERROR(Capture(side));
      }
    }
    const bool reversed = random() % 2 == 1;
    for (const bool middle : {false, true, true, false}) {
      if (Cancelled()) break;  // a round that is not whole decides nothing
      LiveBlock block{.number = number++, .side = middle != reversed ? 1 : 0};
      KVR_RETURN_IF_ERROR(TakeBlock(options, &block));
      if (Cancelled()) break;
      result.throttle_bits |= device_->ThrottleBits();
      comparison.Add(block);
    }
    if (options_.progress != nullptr) {
      options_.progress->Update({.phase = Phase::kMeasure,
                                 .done = comparison.rounds(),
                                 .total = most,
                                 .current = "rounds of A and B"});
    }
  }
  for (int side = 0; side < 2 && !result.cancelled; ++side) {
    LiveBlock checks{.number = 0, .side = side};  // ends no round
    for (const int64_t concurrency : options_.concurrency) {
      if ((result.cancelled = Cancelled())) break;
      KVR_ASSIGN_OR_RETURN(const DecodeOutputs outputs, Check(side, concurrency, 0));
      if (outputs.wrong_rows > 0) ++checks.errors;
      if (result.what.empty()) result.what = outputs.what;
    }
    comparison.Add(checks);
  }
  result.verdict = comparison.Judge();
  result.seconds = Now() - start;
  return result;
}

}  // namespace kvr
