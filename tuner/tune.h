// SPDX-License-Identifier: Apache-2.0
//
// The three long commands: compile, verify, tune. Compiling happens in this process, on several
// threads; kernels run in kvr-worker, never here. Applications use api/tune.h, which brings the
// parts of a Workbench together.
//
//   tune: space → what was rejected before → static feasibility → compile → resources → verify →
//         race → its best against the incumbent → selection file
//
// Key policies. A tune is under one: what the request says, else what the variants it names bring,
// else the selection file's, else the op's. A variant that brings one takes part under that alone.
// A file that is keyed by another is keyed anew as a whole, when all keys are known: the incumbents
// are what it selects at their shapes, and its old selections go. Unless every key has a selection
// then, it stays as it is.
//
// Threading: a call belongs to one thread, which must live until it returns
// (tuner/worker/client.h); several may run at once. Cancelling: when *cancel becomes true, what is
// finished is reported (and finished keys are published, unless the file is to be keyed anew), with
// `cancelled` set. Errors: a wrong
// request, no worker, no compiler, insufficient memory. What happens to a single config is in the
// report.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/axes.h"
#include "core/config.h"
#include "core/device_info.h"
#include "jit/jit.h"
#include "registry/catalog.h"
#include "registry/opt_in.h"
#include "tuner/compare.h"
#include "tuner/journal.h"
#include "tuner/progress.h"
#include "tuner/space.h"
#include "tuner/stats/racing.h"
#include "tuner/worker/client.h"

namespace kvr {

struct Workbench {
  const Catalog& catalog;
  Jit& jit;
  WorkerOptions worker;  // verify and tune; its `cancel` is set from ours
  Progress* progress = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  int compile_threads = 0;     // 0: all cores
  Journal* journal = nullptr;  // what is found out is told it; null: nobody
};

// What to work on.
struct WorkRequest {
  std::string op;
  std::vector<std::string> variants;  // by name; empty: all of the op
  std::vector<Axes> shapes;       // axes left out take the op's defaults; empty: one, all defaults
  std::vector<std::string> pins;  // "NAME=VALUE"; the environment's KVR_<OP>_<NAME> come below
  // Approximate variants that take part, with the values of their quality tunables.
  std::vector<ApproximateOptIn> approximate;
  Coverage coverage = Coverage::kDefault;
};

struct Skipped {
  std::string variant;
  std::string reason;
};

struct CompileTarget {
  std::string target;  // "sm_90a", "host"
  DeviceInfo device;   // a device of that target, for plans; an empty name: none is known
};
struct CompileRequest : WorkRequest {
  std::vector<CompileTarget> targets;
};
enum class Origin : uint8_t { kCompiled, kCubin, kLaunchFunction };
std::string_view OriginName(Origin origin);  // "compiled", "prebuilt cubin", "launch function"
struct CompileResult {
  std::string variant;
  Config config;
  std::string target;
  TrialStatus status = TrialStatus::kPassed;  // or kCompileError
  std::string reason;
  Origin origin = Origin::kCompiled;  // else the variant brings it
  int registers = 0;                  // the most of any kernel, per thread; 0: not known
  int64_t smem_static = 0;            // the most of any kernel
  int64_t smem_dynamic = -1;          // the most of any launch at the first shape; -1: not known
  int64_t spill_bytes = 0;            // of all kernels; -1: not known
  int64_t binary_bytes = 0;
  bool cache_hit = false;
  double ms = 0;
};
struct CompileReport {
  std::vector<CompileResult> binaries;
  std::vector<Skipped> skipped;
  bool cancelled = false;
};
// A config that does not fit at the first shape is compiled all the same: a binary serves all
// shapes. Where every variant asked for brings its binary, no compiler is needed.
absl::StatusOr<CompileReport> CompileVariants(const Workbench& bench,
                                              const CompileRequest& request);

struct VerifyRequest : WorkRequest {
  int rounds = 2;     // input sets per shape
  uint64_t seed = 0;  // of the first set; 0: drawn anew
};
struct VerifyResult {
  std::string variant;
  Config config;
  Axes axes;
  std::string device;
  TrialStatus status = TrialStatus::kPassed;
  std::string reason;                   // empty when passed
  double max_abs = 0, max_rel = 0;      // against what it is held to
  std::vector<QualityMeasure> quality;  // of an approximate variant that passed, against the exact
                                        // reference
};
struct VerifyReport {
  DeviceInfo device;
  uint64_t seed = 0;
  std::vector<VerifyResult> results;
  std::vector<Skipped> skipped;  // variants that this device cannot run, configs that do
                                 // not fit, shapes too large for the memory allowed
  int respawns = 0;              // workers that were brought down
  bool cancelled = false;
};
// An approximate variant is held to its own reference; without an opt-in, for the values of `pins`
// and else for the defaults of its quality tunables.
absl::StatusOr<VerifyReport> VerifyVariants(const Workbench& bench, const VerifyRequest& request);

struct TuneRequest : WorkRequest {
  TuneRequest() { coverage = Coverage::kAll; }
  std::string selection_file;  // incumbents are read from it, winners published to it; empty: none
  bool publish = true;
  std::string key_policy;  // empty: see above
  MeasureMode mode;
  stats::RaceOptions race;  // of each key, but for its band and look_every
  int duel_rounds = 160;    // at most, of the race's best against the incumbent
  bool retest = false;      // measure what the ledger says was rejected here, too
  double budget_s = 0;      // tuner/budget.h; 0: as long as it takes
  int input_sets = 2;
  double epoch_us = -1;  // negative: 100 on cuda, one launch elsewhere
  uint64_t seed = 0;     // 0: drawn anew
};
struct Trial {  // one config at one shape
  std::string variant;
  Config config;
  Axes axes;
  TrialStatus status = TrialStatus::kPassed;
  std::string reason;
  double max_abs = 0, max_rel = 0;
  std::vector<QualityMeasure> quality;  // as VerifyResult's
  std::string stage;      // where it left the race: "screen", "halve", "final"; empty: not in it
  double screen_us = -1;  // median of the rounds before the final; -1: not measured
  double median_us = -1;  // of the final rounds; -1: did not get there
  double spread = -1;     // relative, of the final rounds
};
struct TunedKey {
  Axes key;
  std::vector<Axes> shapes;    // measured for it: the buckets' representatives
  std::vector<Axes> verified;  // further shapes it covers, where every config had to be right too
  std::string variant;         // what is selected now; empty: nothing passed
  Config config;
  double median_us = 0;  // on fresh rounds; the geometric mean over `shapes`
  int tried = 0;         // configs measured
  bool incumbent_kept = false;
  std::string incumbent_variant;  // empty: none could be measured
  Config incumbent_config;
  double incumbent_us = 0;
  // The race's best against the incumbent, on fresh rounds; anything but a WIN keeps the incumbent.
  std::string challenger_variant;  // empty: nobody met the incumbent
  Config challenger_config;
  double challenger_us = 0;
  std::string verdict;         // stats::VerdictName; empty: nobody met the incumbent
  std::string reason;          // of INVALID, and of what was cut short
  double gain = 0;             // of the challenger: the share of the incumbent's time it saves
  stats::Interval difference;  // 95 %, of ln(challenger's time / incumbent's)
  int rounds = 0;              // of the two
  double band = 0;             // noise band: what a difference has to exceed; 0: none was asked for
  std::string band_source;     // "±1.2 % (20 sessions, 2026-11-30)"
  std::string race_trouble;    // not empty: the race's times must not be read
  SessionInfo session;         // merged over its measuring sessions
  bool published = false;
  bool refused = false;  // it was to be published and could not; `note` says why
  std::string note;      // why it is not published, or why nothing is selected
};
// What is selected for a key against the single choice, at one of the key's shapes, by turns on
// fresh samples.
struct SingleAt {
  Axes key, axes;
  std::string variant;  // what is selected for the key
  Config config;
  std::string verdict;  // its own, as of a challenger: WIN is faster than the single choice
  std::string reason;
  double own_us = -1, single_us = -1;  // negative: not measured
  double difference = 0;               // ln(own / single)
  stats::Interval interval;            // 95 %
  double band = 0;
  int rounds = 0;  // 0 of an EQUIVALENT: both do the same work there
};
// Keys that the op's own policy would not tell apart, and the one config that would serve all of
// them best by their races (tuner/single.h): what it costs each to share it.
struct SingleChoice {
  Axes key;             // of the op's own policy
  std::string variant;  // empty: nobody raced at every key
  Config config;
  std::vector<SingleAt> at;
};
struct TuneReport {
  DeviceInfo device;
  uint64_t seed = 0;
  std::string key_policy;
  std::vector<TunedKey> selections;
  std::vector<SingleChoice> singles;
  struct PrunedConfig {
    std::string variant;
    Config config;
    std::string reason;
    Axes axes;
  };
  std::vector<PrunedConfig> pruned;
  struct RejectedConfig {  // before, and not measured again
    std::string variant;
    Config config;
    std::string status;  // TrialStatusName; "PASSED": dropped by a race
    std::string reason;
    std::string time;  // RFC 3339
    Axes axes;         // the first shape of its key
  };
  std::vector<RejectedConfig> rejected;
  std::vector<std::string> cut;  // what the budget left out
  std::vector<Trial> trials;
  std::vector<Skipped> skipped;
  SessionInfo session;  // merged over all measuring sessions
  std::string digest;  // of what the selection file holds now; empty: no file, or nothing published
  std::string ledger;  // its file; empty: there is none
  std::string ledger_trouble;  // what it missed, and why
  int respawns = 0;
  bool cancelled = false;
};
absl::StatusOr<TuneReport> TuneOp(const Workbench& bench, const TuneRequest& request);

}  // namespace kvr
