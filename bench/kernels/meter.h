// SPDX-License-Identifier: Apache-2.0
//
// The measurement of one shape: every entrant, one of them twice, and the roofline kernels of the
// same bytes, interleaved. Where an entrant has several configs, the tuner's race over all configs
// of all entrants at this shape chooses: its best one that computes what it should.
//
// A shape that is given little time keeps what it has by then: configs that are not built in time
// take no part (the default of each entrant does), the race ends where it is, and fewer rounds are
// taken; its result says so.
//
//   1. roofline kernels: the configs screened, the fastest that computes what it should stays
//   2. the race, if there is anything to choose
//   3. rounds in turns of kRoundsPerLook, each stand in its own worker; then checks under the very
//      launches that were timed (once: each copies all inputs anew, which takes longer than timing)
//
// The second load of the winner is A against A: how far apart the same code appears here.
//
// Threading: one thread, which outlives the meter. Errors: no worker, insufficient memory, nothing
// that can be measured. What an entrant does wrong is in the result.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/kernels/stand.h"
#include "tuner/budget.h"

namespace kvr::bench {

struct Entrant {
  std::vector<Candidate> configs;  // one: nothing to choose
  std::string config_from;         // "default", "selection", "tune"
};

struct RooflineJob {
  const Catalog::Op* op = nullptr;
  Axes axes;
  std::vector<uint64_t> seeds;
};

struct ShapeJob {
  const Catalog::Op* op = nullptr;
  Axes axes;  // every axis
  std::vector<uint64_t> seeds;
  std::vector<Entrant> entrants;
  int twice = 0;  // whose second load it is where no race says who wins
  std::vector<RooflineJob> rooflines;
  absl::Time build_until = absl::InfiniteFuture();
  KeyShare until;  // race and end
};

struct Timed {
  Candidate candidate;
  std::vector<double> us;               // samples, in the order taken; empty: it was not measured
  std::vector<QualityMeasure> quality;  // of an approximate variant, against the exact result
  double median_us() const { return Median(us); }
};

struct ShapeResult {
  std::vector<Timed> entrants;  // as the job's
  int winner = -1;              // of the race; -1: there was none
  int twice = -1;               // an entrant; -1: none could be measured
  Timed again;                  // its second load
  std::vector<Timed> rooflines;
  std::vector<LeftOut> left_out;
  std::string trouble;  // not empty: the times must not be read
  SessionInfo session;  // of the entrants'
  int raced = 0;        // configs
  // What there was no time for, "the race was ended after 5 rounds"; empty: nothing.
  std::vector<std::string> cut_short;
};

class Meter {
 public:
  struct Options {
    MeasureMode mode;
    int rounds = 40;
    stats::RaceOptions race;
  };
  // `bench` outlives it.
  static absl::StatusOr<std::unique_ptr<Meter>> Start(const Workbench& bench,
                                                      const Options& options);

  const DeviceInfo& device() const { return forge_->device(); }
  absl::StatusOr<ShapeResult> Measure(const ShapeJob& job);

 private:
  explicit Meter(const Options& options) : options_(options) {}
  // The i-th worker; those after the first are for roofline kernels.
  absl::StatusOr<WorkerClient*> Worker(size_t index);
  absl::StatusOr<std::unique_ptr<Stand>> OpenRoofline(size_t index, const RooflineJob& job,
                                                      std::vector<LeftOut>* left_out);
  // One config for each entrant, in their order; those that have none are left out.
  absl::StatusOr<std::vector<Contender>> Choose(const ShapeJob& job, ShapeResult* result,
                                                std::vector<int>* entrant_of);
  absl::Status Sample(const ShapeJob& job, std::vector<Contender> chosen,
                      const std::vector<int>& entrant_of, ShapeResult* result);

  const Options options_;
  WorkerOptions worker_options_;
  std::unique_ptr<Forge> forge_;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
};

}  // namespace kvr::bench
