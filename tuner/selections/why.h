// SPDX-License-Identifier: Apache-2.0
//
// Which config serves a shape, and why: what the selection file says, what the environment forces,
// and what the ledger knows of it on that device model: which verdicts it won, what came next in
// its race, what was rejected and for which reason. "Newest" is by row: clocks jump.
//
// Threading: pure but for reading the ledger.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config.h"
#include "registry/catalog.h"
#include "registry/overrides.h"
#include "registry/selection_content.h"
#include "tuner/ledger/ledger.h"

namespace kvr {

struct WhyRequest {
  const Catalog::Op& op;
  Axes shape;                                      // every axis
  const SelectionContent* selections = nullptr;    // null: none; then the ledger's last publication
  const ledger::Ledger* ledger = nullptr;          // null: none
  const Overrides* overrides = nullptr;            // null: none
  std::vector<ApproximateOptIn> approximate = {};  // of the program that is to serve
  std::string device_model;  // empty: the selections', else the only one that the ledger knows
};

// A comparison that the served config took part in, seen from it: negative is faster than `other`.
struct WhyVerdict {
  std::string other, variant, config;        // the opponent: "w8 {BLOCK_H=16}", and in parts
  std::string kind, verdict, reason;         // verdict: the served config's
  double difference = 0, low = 0, high = 0;  // log ratios
  int64_t rounds = 0, sessions = 0;
  std::string mode, axes, device, time;
};

struct WhyOther {
  std::string name, variant, config;  // "w8 {BLOCK_H=16}", and in parts
  double median_us = -1;              // in that race; negative: none
  // ln(its time / the served config's in that session); NaN: that was not measured there.
  double difference = std::numeric_limits<double>::quiet_NaN();
  std::string reason;   // how far it got, or why it was rejected
  std::string quality;  // of an approximate one, core/quality.h
  std::string device, time;
};

// The session that times are told of: times of other shapes, modes and sessions are not comparable.
// Of those with the served config or a race, in this order: with the served config; at the shape
// that was asked for; a race; the newest.
struct WhySession {
  std::string axes, mode, device, time;  // empty: none
  double median_us = -1;                 // of the served config; negative: not measured there
  std::string quality;                   // of it, where it is approximate, core/quality.h
};

struct Why {
  Axes key;
  std::string key_policy, device_model;
  std::string variant;
  Config config;
  std::string by;       // "selection", "override", "publication", "baseline"
  std::string because;  // one line
  bool stale = false;   // the variant is not here, or not as it was measured: the baseline serves
  Evidence evidence;    // of the selection file; empty date: none
  WhySession measured;
  std::string published;              // when, by the ledger; empty: it does not say
  std::vector<WhyVerdict> verdicts;   // newest of each opponent, shape, kind and device
  std::vector<WhyOther> runners_up;   // of `measured`, if it was a race; fastest first
  std::vector<WhyOther> rejected;     // newest reason of each config
  std::vector<WhyVerdict> summaries;  // results without samples, of any device; they select nothing
  std::vector<std::string> elsewhere;  // other device models that the ledger has results of
};

// Errors: kInvalidArgument, a device model that neither file nor ledger knows, or that is not the
// file's; kFailedPrecondition, the ledger knows several and none is named.
absl::StatusOr<Why> ExplainSelection(const WhyRequest& request);

}  // namespace kvr
