// SPDX-License-Identifier: Apache-2.0
//
// Noise bands: kvr noise measures them with care, a comparison that has none takes a short one, and
// both keep them in the ledger. A band is A against A over K sessions, each in a fresh process
// (tuner/stats/noise.h), and belongs to a device (its uuid), a driver, an op, a shape and a mode.
// After thirty days it is measured again.
//
// The shape is that of the tuning key: a bucket's representative stands for the bucket. Where there
// is no such bucket (a value above the key policy's last bound, a representative that is no legal
// shape) it is the shape itself.
//
// Threading, errors: as TuneOp (tuner/tune.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tuner/contest.h"
#include "tuner/stats/noise.h"

namespace kvr {

// Of the short band. With samples that scatter by 6 % and sessions that differ by 1 %, a band must
// be 2.8 % to cover them; more than half of those from 20 rounds are narrower, and 40 cost less
// than the start of a process.
inline constexpr int kShortNoiseRounds = 40;
inline constexpr absl::Duration kBandExpires = absl::Hours(30 * 24);

// Where the band of a shape is measured; both with every axis.
struct BandShape {
  Axes axes;
  bool of_bucket = false;  // its representative; false: the shape itself
};
absl::StatusOr<BandShape> BandShapeOf(const Catalog::Op& op, const Axes& shape);

struct BandInUse {
  Axes axes;  // where it was measured
  stats::NoiseBand estimate;
  int sessions = 0, rounds = 0;
  std::string measured;    // when, RFC 3339
  bool fresh = false;      // measured by the call that gives it
  bool in_ledger = false;  // where others find it
  std::string trouble;     // not empty: there is no band, and why
};
// "±1.2 % (20 sessions, 2026-11-30)", "±2.0 % (3 sessions, measured now)".
std::string BandSourceText(const BandInUse& band);

// "kvr noise mla_sparse_decode --axes num_tokens=64 --device host": the whole command that measures
// and keeps the bands of these shapes with care. Empty: the bench has no ledger to keep them in.
std::string NoiseCommand(const Workbench& bench, const OpSpec& op, absl::Span<const Axes> shapes,
                         MeasureMode mode);

// What a band belongs to, but for its shape.
struct BandKey {
  std::string device_uuid, driver, op;
  MeasureMode mode;
};
// Of those in the ledger (null: nobody has one) that have not expired, the one with the most
// sessions, the newest among equals: a short one displaces none that was measured with care. Its
// trouble says where there is none.
absl::StatusOr<BandInUse> FindBand(const ledger::Ledger* ledger, const BandKey& key,
                                   const Axes& axes, absl::Time now);

// Those of the ledger; the missing ones are measured together, by sessions of `itself` (one
// contestant against itself), stored, and told of in a note. By shape. A shape without a band has
// its trouble: no comparison there can be trusted. One where nothing is launched has none, whatever
// the ledger says. `taken` hears of each session.
absl::StatusOr<std::vector<BandInUse>> FindOrMeasureBands(
    const Workbench& bench, const BandKey& key, SessionSource& itself,
    absl::Span<const Axes> shapes, uint64_t seed, const KeepGoing& keep_going,
    const std::function<void(const Axes&, const SessionResult&)>& taken = nullptr);

struct NoiseRequest {
  std::string op;
  std::vector<Axes> shapes;  // axes left out take the op's defaults; empty: one, all defaults
  std::string contestant;    // "w8", "w8{TARGET_CTAS=512}"; empty: the op's baseline
  MeasureMode mode;
  int input_sets = 2;
  // At least kLeastNoiseSessions and kLeastNoiseRounds.
  int sessions = stats::kNoiseSessions, rounds = stats::kNoiseRounds;
  uint64_t seed = 0;    // 0: drawn anew
  double budget_s = 0;  // 0: as long as it takes
};

struct ShapeNoise {
  std::vector<Axes> asked;  // the shapes that this band is for
  bool of_bucket = false;   // measured at their bucket's representative
  BandInUse band;
  std::vector<SessionResult> sessions;
};
struct NoiseReport {
  std::string op;
  DeviceInfo device;
  MeasureMode mode;
  std::string contestant;
  uint64_t seed = 0;
  std::vector<ShapeNoise> shapes;
  SessionInfo session;  // merged over all of them
  int respawns = 0;     // workers that were brought down
  bool cancelled = false, out_of_time = false;
};
// A run that is cut short gives, and stores, the bands of the sessions it finished, if there are at
// least kLeastNoiseSessions.
absl::StatusOr<NoiseReport> MeasureNoise(const Workbench& bench, const NoiseRequest& request);

}  // namespace kvr
