// SPDX-License-Identifier: Apache-2.0
#include "tuner/ledger/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "core/names.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::ledger {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::string_view kBuildStatuses[] = {"built", "hit", "failed"};
constexpr std::string_view kModes[] = {"graph cold", "graph hot", "eager cold", "eager hot"};
constexpr std::string_view kTrialOutcomes[] = {"", "kept", "dropped"};
constexpr std::string_view kTrialStatuses[] = {
    "PASSED",        "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR",
    "COMPILE_ERROR", "TIMEOUT"};
constexpr std::string_view kVerdictKinds[] = {"quick", "ship", "race", "single"};
constexpr std::string_view kVerdicts[] = {"WIN", "LOSS", "EQUIVALENT", "INCONCLUSIVE", "INVALID"};
constexpr std::string_view kPublicationOutcomes[] = {"published", "kept", "failed"};

// The first fault of a record.
class Faults {
 public:
  void Filled(const char* name, const std::string& value) {
    if (value.empty()) Add(name, Quoted(value), "filled in");
  }
  void Word(const char* name, const std::string& value, Words words) {
    if (std::find(words.begin(), words.end(), value) != words.end()) return;
    std::vector<std::string> quoted;
    for (const std::string_view word : words) quoted.push_back(Quoted(word));
    Add(name, Quoted(value), StrCat("one of ", StrJoin(quoted, ", ")));
  }
  void Time(const char* name, const std::string& value) {
    absl::Time time;
    std::string error;
    // ParseTime also takes spaces around, years of any length and "infinite-future".
    const bool shaped = value.size() >= 20 && value[4] == '-' && value[10] == 'T' &&
                        value.back() == 'Z' && value.front() >= '0' && value.front() <= '9';
    if (shaped && absl::ParseTime(absl::RFC3339_full, value, &time, &error)) return;
    Add(name, Quoted(value), "a time in UTC, as in '2026-11-30T11:22:33.444Z'");
  }
  void Least(const char* name, double value, double least) {
    if (!(value >= least)) Add(name, StrCat(value), StrCat("a number of at least ", least));
  }
  void NotNegative(const char* name, double value) { Least(name, value, 0); }
  void NotNegative(const char* name, int64_t value) {
    if (value < 0) Add(name, StrCat(value), "0 or more");
  }
  // Of what need not have been measured.
  void NotNegativeIfKnown(const char* name, double value) {
    if (!std::isnan(value)) NotNegative(name, value);
  }
  void Add(std::string_view name, std::string_view value, std::string_view must) {
    if (!first_.ok()) return;
    first_ = Error(absl::StatusCode::kInvalidArgument,
                   StrCat("has a '", name, "' of ", value, ": it must be ", must), "");
  }
  const absl::Status& first() const { return first_; }

 private:
  absl::Status first_;
};

}  // namespace

// Whatever is built for a target alone has no device.
absl::Status Check(const Environment& environment) {
  Faults faults;
  faults.Filled("uid", environment.uid);
  return faults.first();
}

absl::Status Check(const Build& build) {
  Faults faults;
  faults.Filled("uid", build.uid);
  faults.Time("time", build.time);
  faults.Filled("op", build.op);
  faults.Filled("variant", build.variant);
  faults.Word("status", build.status, kBuildStatuses);
  faults.NotNegativeIfKnown("milliseconds", build.milliseconds);
  return faults.first();
}

absl::Status Check(const Trial& trial) {
  Faults faults;
  faults.Filled("uid", trial.uid);
  faults.Time("time", trial.time);
  faults.Filled("op", trial.op);
  faults.Filled("variant", trial.variant);
  faults.Word("mode", trial.mode, kModes);
  faults.Word("outcome", trial.outcome, kTrialOutcomes);
  faults.Word("status", trial.status, kTrialStatuses);
  faults.NotNegativeIfKnown("median_us", trial.median_us);
  faults.NotNegativeIfKnown("spread", trial.spread);
  for (const double sample : trial.samples) faults.NotNegativeIfKnown("samples", sample);
  faults.NotNegative("clock_mhz", trial.clock_mhz);
  faults.NotNegative("throttle_bits", trial.throttle_bits);
  if (!ParseQuality(trial.quality).ok()) {
    faults.Add("quality", Quoted(trial.quality), "NAME=NUMBER,...");
  }
  return faults.first();
}

absl::Status Check(const Verdict& verdict) {
  Faults faults;
  faults.Filled("uid", verdict.uid);
  faults.Time("time", verdict.time);
  faults.Filled("op", verdict.op);
  faults.Word("mode", verdict.mode, kModes);
  faults.Word("kind", verdict.kind, kVerdictKinds);
  faults.Filled("challenger", verdict.challenger);
  faults.Word("verdict", verdict.verdict, kVerdicts);
  if (verdict.low > verdict.high) {
    faults.Add("low", StrCat(verdict.low), StrCat("at most 'high', ", verdict.high));
  }
  faults.NotNegativeIfKnown("band", verdict.band);
  faults.NotNegative("rounds", verdict.rounds);
  faults.NotNegative("sessions", verdict.sessions);
  return faults.first();
}

absl::Status Check(const Band& band) {
  Faults faults;
  faults.Filled("uid", band.uid);
  faults.Time("time", band.time);
  faults.Filled("op", band.op);
  faults.Word("mode", band.mode, kModes);
  faults.NotNegative("band", band.band);
  faults.NotNegative("sigma", band.sigma);
  faults.NotNegative("floor", band.floor);
  faults.NotNegative("sessions", band.sessions);
  faults.NotNegative("rounds", band.rounds);
  for (const double median : band.session_medians) {
    if (std::isnan(median)) faults.Add("session_medians", "null", "numbers");
  }
  return faults.first();
}

absl::Status Check(const Publication& publication) {
  Faults faults;
  faults.Filled("uid", publication.uid);
  faults.Time("time", publication.time);
  faults.Filled("trigger", publication.trigger);
  faults.Word("outcome", publication.outcome, kPublicationOutcomes);
  return faults.first();
}

absl::Status Check(const Summary& summary) {
  Faults faults;
  faults.Filled("uid", summary.uid);
  // Tables of others do not always say when.
  if (!summary.time.empty()) faults.Time("time", summary.time);
  faults.Filled("op", summary.op);
  faults.Filled("challenger", summary.challenger);
  for (const double percent : summary.percents) faults.Least("percents", percent, -100);
  if (summary.percents.empty()) faults.Add("percents", "[]", "at least one number");
  faults.NotNegative("band_percent", summary.band_percent);
  return faults.first();
}

}  // namespace kvr::ledger
