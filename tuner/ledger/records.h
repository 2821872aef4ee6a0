// SPDX-License-Identifier: Apache-2.0
//
// What the ledger keeps: every build, trial, verdict, noise band and publication, losers and
// failures included, each with the environment it was made in. A record states its columns once,
// in Fields; reading, writing, exporting and importing all go through it, and schema.cc creates
// the tables.
//
// Times are RFC 3339 in UTC, as the machine's clock had them; order is that of the rows, which a
// clock that jumps does not change. Axes and configs are their text forms (core/axes.h,
// core/config.h), fingerprints full-length hex. Ids are of one ledger; `uid` is of the record
// wherever it goes.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvr::ledger {

// Where something was measured. Equal environments are one row.
struct Environment {
  static constexpr const char* kTable = "environments";
  int64_t id = 0;
  std::string uid;
  std::string device_kind, device_name, device_model, device_uuid, target;
  std::string driver, compiler, kvr_version, host;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("device_kind", self.device_kind);
    visit("device_name", self.device_name);
    visit("device_model", self.device_model);
    visit("device_uuid", self.device_uuid);
    visit("target", self.target);
    visit("driver", self.driver);
    visit("compiler", self.compiler);
    visit("kvr_version", self.kvr_version);
    visit("host", self.host);
  }
};

struct Build {
  static constexpr const char* kTable = "builds";
  int64_t id = 0, environment = 0;
  std::string uid, time;
  std::string op, variant, version, fingerprint, config, target, binary;
  std::string status;  // "built", "hit", "failed"
  std::string reason;
  double milliseconds = 0;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("environment", self.environment);
    visit("time", self.time);
    visit("op", self.op);
    visit("variant", self.variant);
    visit("version", self.version);
    visit("fingerprint", self.fingerprint);
    visit("config", self.config);
    visit("target", self.target);
    visit("binary", self.binary);
    visit("status", self.status);
    visit("reason", self.reason);
    visit("milliseconds", self.milliseconds);
  }
};

// One config at one shape in one session.
struct Trial {
  static constexpr const char* kTable = "trials";
  int64_t id = 0, environment = 0;
  std::string uid, time, session;  // session: what was measured interleaved has one name
  std::string op, variant, version, fingerprint, config, axes, binary;
  std::string mode;     // "graph cold", "eager hot", ...
  std::string stage;    // "verify", "screen", "halve", "final", "duel", "ab", "noise", ...
  std::string outcome;  // how its stage of a race ended: "kept", "dropped"; "": it was none
  std::string status;   // TrialStatusName: "PASSED", "COMPILE_ERROR", ...
  std::string reason;
  double median_us = 0, spread = 0;
  std::vector<double> samples;  // raw, in the order taken; empty: not measured
  int64_t clock_mhz = 0, throttle_bits = 0;
  std::string quality;  // of an approximate variant, core/quality.h; empty: exact, or not known

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("environment", self.environment);
    visit("time", self.time);
    visit("session", self.session);
    visit("op", self.op);
    visit("variant", self.variant);
    visit("version", self.version);
    visit("fingerprint", self.fingerprint);
    visit("config", self.config);
    visit("axes", self.axes);
    visit("binary", self.binary);
    visit("mode", self.mode);
    visit("stage", self.stage);
    visit("outcome", self.outcome);
    visit("status", self.status);
    visit("reason", self.reason);
    visit("median_us", self.median_us);
    visit("spread", self.spread);
    visit("samples", self.samples);
    visit("clock_mhz", self.clock_mhz);
    visit("throttle_bits", self.throttle_bits);
    visit("quality", self.quality);
  }
};

struct Verdict {
  static constexpr const char* kTable = "verdicts";
  int64_t id = 0, environment = 0;
  std::string uid, time, session;
  std::string op, axes, mode, kind;  // kind: "quick", "ship", "race"
  std::string incumbent, incumbent_fingerprint, incumbent_config;
  std::string challenger, challenger_fingerprint, challenger_config;
  std::string verdict, reason;
  double difference = 0, low = 0, high = 0, band = 0;  // log ratios, challenger over incumbent
  int64_t rounds = 0, sessions = 1;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("environment", self.environment);
    visit("time", self.time);
    visit("session", self.session);
    visit("op", self.op);
    visit("axes", self.axes);
    visit("mode", self.mode);
    visit("kind", self.kind);
    visit("incumbent", self.incumbent);
    visit("incumbent_fingerprint", self.incumbent_fingerprint);
    visit("incumbent_config", self.incumbent_config);
    visit("challenger", self.challenger);
    visit("challenger_fingerprint", self.challenger_fingerprint);
    visit("challenger_config", self.challenger_config);
    visit("verdict", self.verdict);
    visit("reason", self.reason);
    visit("difference", self.difference);
    visit("low", self.low);
    visit("high", self.high);
    visit("band", self.band);
    visit("rounds", self.rounds);
    visit("sessions", self.sessions);
  }
};

struct Band {
  static constexpr const char* kTable = "bands";
  int64_t id = 0, environment = 0;
  std::string uid, time;
  std::string op, axes, mode;
  double band = 0, sigma = 0, floor = 0;
  int64_t sessions = 0, rounds = 0;
  std::vector<double> session_medians;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("environment", self.environment);
    visit("time", self.time);
    visit("op", self.op);
    visit("axes", self.axes);
    visit("mode", self.mode);
    visit("band", self.band);
    visit("sigma", self.sigma);
    visit("floor", self.floor);
    visit("sessions", self.sessions);
    visit("rounds", self.rounds);
    visit("session_medians", self.session_medians);
  }
};

struct Publication {
  static constexpr const char* kTable = "publications";
  int64_t id = 0, environment = 0;
  std::string uid, time;
  std::string op, axes;  // the tuning key; empty: a whole generation
  std::string trigger;   // "tune", "swap", "rollback", ...
  std::string variant, fingerprint, config, binary;
  std::string before, after;  // generation digests
  std::string outcome;        // "published", "kept", "failed"
  std::string reason;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("environment", self.environment);
    visit("time", self.time);
    visit("op", self.op);
    visit("axes", self.axes);
    visit("trigger", self.trigger);
    visit("variant", self.variant);
    visit("fingerprint", self.fingerprint);
    visit("config", self.config);
    visit("binary", self.binary);
    visit("before", self.before);
    visit("after", self.after);
    visit("outcome", self.outcome);
    visit("reason", self.reason);
  }
};

// A result that came as percentages, without samples: somebody else's table. Read against a noise
// band alone (tuner/stats/summary.h); it never selects anything.
struct Summary {
  static constexpr const char* kTable = "summaries";
  int64_t id = 0, environment = 0;
  std::string uid, time;
  std::string op, axes, incumbent, incumbent_config, challenger, challenger_config;
  std::string unit;              // of what; higher is better: "aggregate tok/s"
  std::vector<double> percents;  // challenger over incumbent, as reported; several: measured again
  double band_percent = 0;       // the band's upper edge
  std::string reason, source;    // what its authors say, and where

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("environment", self.environment);
    visit("time", self.time);
    visit("op", self.op);
    visit("axes", self.axes);
    visit("incumbent", self.incumbent);
    visit("incumbent_config", self.incumbent_config);
    visit("challenger", self.challenger);
    visit("challenger_config", self.challenger_config);
    visit("unit", self.unit);
    visit("percents", self.percents);
    visit("band_percent", self.band_percent);
    visit("reason", self.reason);
    visit("source", self.source);
  }
};

}  // namespace kvr::ledger
