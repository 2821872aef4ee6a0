// SPDX-License-Identifier: Apache-2.0
//
// Two contestants on a device: named, built, held against the reference, and measured by turns in
// kvr-worker. What kvr ab and kvr noise share; a noise run is a contest of one with itself.
//
// Threading: as TuneOp (tuner/tune.h): one thread, which outlives the contest. Errors: a wrong
// request, no worker, "insufficient memory". What a contestant does wrong is a finding.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tuner/sessions.h"
#include "tuner/tune.h"
#include "tuner/worker/client.h"

namespace kvr {

// The two parts of "w8{TARGET_CTAS=512}"; `config` is empty where there is none.
struct ContestantParts {
  std::string_view variant, config;
};
absl::StatusOr<ContestantParts> SplitContestant(std::string_view text);
// The variant's default config with what `assigned` says: "TARGET_CTAS=512".
absl::StatusOr<Config> ConfigWith(const Variant& variant, std::string_view assigned);

// "w8" (its default config) or "w8{TARGET_CTAS=512}" (what is not named at its default). A
// contestant is what its text says: the environment's tunables do not enter. Only the quality
// tunables of an approximate variant have the opt-in's values where the text leaves them out; it is
// refused without an opt-in, and with other values than that's.
absl::StatusOr<Candidate> ParseContestant(const Catalog& catalog, std::string_view op,
                                          std::string_view text,
                                          absl::Span<const ApproximateOptIn> opt_ins = {});
// "w8", or "w8{TARGET_CTAS=512}": what ParseContestant takes, without what is default.
std::string ContestantText(const Candidate& contestant);

// The axes that are not at the op's default: "num_tokens=7,topk=37", or "defaults".
std::string ShapeText(const OpSpec& op, const Axes& axes);
// Every axis of each shape, each once; none given: the op's defaults.
absl::StatusOr<std::vector<Axes>> ResolveShapes(const OpSpec& op, const std::vector<Axes>& shapes);

// Is every output empty? Then nothing is launched, and there is nothing to measure.
bool NothingToLaunch(const OpSpec& op, const AxisVector& axes);
inline constexpr std::string_view kNothingToLaunch =
    "nothing is launched at this shape: there is nothing to measure";

// Sessions of two items in a worker. Which of the two is loaded first is drawn anew for each
// session, so that the order of loading favours neither.
class WorkerSessions : public SessionSource {
 public:
  // The client outlives it and has no other session meanwhile. Equal items are loaded twice.
  WorkerSessions(WorkerClient& client, std::string op, std::vector<uint64_t> seeds,
                 WorkItem incumbent, WorkItem challenger, SessionOptions options)
      : client_(client),
        op_(std::move(op)),
        seeds_(std::move(seeds)),
        items_{std::move(incumbent), std::move(challenger)},
        options_(std::move(options)),
        random_(seeds_.front()) {}
  absl::Status Renew() override { return client_.Restart(); }
  absl::StatusOr<std::unique_ptr<PairedSession>> Open(const Axes& axes) override;

 private:
  WorkerClient& client_;
  const std::string op_;
  const std::vector<uint64_t> seeds_;
  const std::array<WorkItem, 2> items_;
  const SessionOptions options_;
  std::mt19937_64 random_;
};

// How long a run may go on: until it is cancelled, or its budget is used up.
class RunTime {
 public:
  // `budget_s` 0: as long as it takes. `cancel` may be null.
  RunTime(const std::atomic<bool>* cancel, double budget_s);
  bool Going();
  // Something was asked whether it may go on, when there was no time left.
  bool ran_out() const { return ran_out_; }

 private:
  const std::atomic<bool>* const cancel_;
  const absl::Time deadline_;
  bool ran_out_ = false;
};

struct ContestOptions {
  MeasureMode mode;
  int input_sets = 2;
  uint64_t seed = 0;  // 0: drawn anew
};

class Contest {
 public:
  // Starts a worker and builds both contestants and the sentinel. Tells the journal the environment
  // and the builds. A contestant that does not build is no error: Prove says so.
  static absl::StatusOr<std::unique_ptr<Contest>> Start(const Workbench& bench,
                                                        const Catalog::Op& op,
                                                        std::array<Candidate, 2> sides,
                                                        const ContestOptions& options);

  const DeviceInfo& device() const { return worker_->device(); }
  uint64_t seed() const { return seed_; }
  int respawns() const { return worker_->respawns(); }
  const Candidate& side(Side side) const { return sides_[side]; }
  std::array<std::string, 2> names() const;

  // Do both fit each shape, and are their numbers right there? Where not, why not; empty: they are.
  // Where nothing is launched (an empty batch), there is nothing to measure, which is said so, too.
  // Shapes that there was no time for are missing at the end. An error when memory suffices for no
  // shape.
  absl::StatusOr<std::vector<std::string>> Prove(absl::Span<const Axes> shapes, RunTime& time);
  // What Prove measured of an approximate side, against the exact reference; else empty.
  std::vector<QualityMeasure> QualityAt(const Axes& axes, Side side) const;
  // By plan and resources alone.
  absl::Status Fits(Side side, const Axes& axes) const;
  // Challenger against incumbent, or the incumbent against itself, at shapes where Prove found
  // nothing to say. Lives no longer than the contest.
  std::unique_ptr<SessionSource> Sides();
  std::unique_ptr<SessionSource> Itself();

  // Tells the journal a session's samples, each side a trial; `stage` is "ab" or "noise", `who`
  // took which side. Gives the name of the session in the journal; empty: there is none.
  std::string Record(const Axes& axes, std::string_view stage, const SessionResult& result,
                     std::array<Side, 2> who) const;

 private:
  Contest(const Workbench& bench, const Catalog::Op& op, std::array<Candidate, 2> sides,
          const ContestOptions& options)
      : bench_(bench), op_(op), sides_(std::move(sides)), mode_(options.mode) {}
  absl::StatusOr<std::array<Finding, 2>> ProveAt(const Axes& axes);
  absl::StatusOr<bool> LaunchesNothing(const Axes& axes) const;
  std::unique_ptr<SessionSource> SourceOf(Side incumbent, Side challenger);

  const Workbench& bench_;
  const Catalog::Op& op_;
  const std::array<Candidate, 2> sides_;
  const MeasureMode mode_;
  uint64_t seed_ = 0;
  std::vector<uint64_t> seeds_;
  std::unique_ptr<WorkerClient> worker_;
  std::unique_ptr<BinaryFiles> files_;
  std::vector<absl::StatusOr<Built>> built_;  // by side
  std::array<std::string, 2> paths_;          // of the binaries
  std::string sentinel_path_;
  std::map<Axes, std::array<std::vector<QualityMeasure>, 2>> quality_;
};

}  // namespace kvr
