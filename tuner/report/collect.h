// SPDX-License-Identifier: Apache-2.0
//
// The report of what a ledger knows of an operation's variants: verdicts with their intervals, the
// samples behind them, races, noise bands, failures. Nothing is measured, and nothing that was
// measured is left out because of how it ended.
//
//   KVR_ASSIGN_OR_RETURN(Report report, Collect(*ledger, {.op = "mla_sparse_decode"}));
//   Write("w8.html", ToHtml(report));
//
// Results of several devices or environments stand in rows of their own, which say where; no figure
// is of two of them.
//
// Threading: reads the ledger; otherwise a pure function of what is in it: the same ledger and
// request give the same report.
// Errors: kFailedPrecondition where the ledger has nothing for the request, with what it has;
// kInvalidArgument for a time that is none, and for an axis or variant that nobody knows.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/axes.h"
#include "core/op.h"
#include "tuner/ledger/ledger.h"
#include "tuner/report/report.h"

namespace kvr::report {

struct CollectRequest {
  std::string op;
  // A record counts if one of them holds for it: an axis not named may have any value. Empty: all.
  std::vector<Axes> axes;
  std::vector<std::string> variants;  // challengers; empty: all
  std::string kind;                   // of verdicts: "quick", "ship", "race"; empty: all
  // Everything from this time on, RFC 3339 in UTC or the beginning of one, as in 2026-11-30T09.
  // Empty: of each comparison the newest run on each device.
  std::string since;
  std::string title, why;  // empty: made from the content

  // What is known beside the ledger; all of it may be missing.
  const Operation* operation = nullptr;             // for the floor
  std::map<std::string, std::string> descriptions;  // by variant
  std::map<std::string, std::string> defaults;      // by variant: the config that needs no telling
  // Bytes per second that a device's memory moves; 0: not known.
  std::function<double(const ledger::Environment&)> bandwidth;
};

absl::StatusOr<Report> Collect(const ledger::Ledger& ledger, const CollectRequest& request);

}  // namespace kvr::report
