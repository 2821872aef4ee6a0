// SPDX-License-Identifier: Apache-2.0
//
// What compile, verify and tune share: the request from the options, settings with progress and
// interruption, and the list of what was skipped.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "api/tune.h"
#include "cli/command.h"
#include "cli/progress_bar.h"

namespace kvr::cli {

absl::Status FillRequest(const OpOptions& options, WorkRequest* request);
// What --approximate says, of the operation of the command where it names none.
absl::StatusOr<std::vector<ApproximateOptIn>> OptIns(const OpOptions& options);
// Could what --approximate and --set state be at one of the shapes of --axes? Asked before anything
// is done: kInvalidArgument.
absl::Status CheckStated(const Catalog& catalog, const OpOptions& options);
// The shapes of --axes; the mode and the seconds of --mode and --budget.
absl::StatusOr<std::vector<Axes>> ParseShapes(const OpOptions& options);
absl::StatusOr<MeasureMode> ModeOf(const OpOptions& options);
absl::StatusOr<double> BudgetOf(const OpOptions& options);  // 0: none
// A ledger that --ledger names and that cannot be written: said before anything is measured, where
// the default one only costs the record.
absl::Status CheckLedger(const OpOptions& options);
TuneSettings Settings(const GlobalOptions& global, const OpOptions& options, ProgressBar* progress);

int Interrupted();  // says so on stderr; kInterrupted

// {"y.relative_error": 0.01, ...}; empty of what is exact.
Json QualityJson(const std::vector<QualityMeasure>& quality);
Json SkippedJson(const std::vector<Skipped>& skipped);
void PrintSkipped(const std::vector<Skipped>& skipped);

// Failures for people: each variant's distinct message once, with how many had it.
class Failures {
 public:
  // `where` places the first one of its kind: "w8 at topk=37".
  void Add(std::string where, const std::string& variant, const std::string& reason);
  void Print() const;

 private:
  struct Failure {
    std::string where, variant, reason;
    int count = 0;
  };
  std::vector<Failure> failures_;
};

// The axes that are not at the op's default, for tables: "num_tokens=7,topk=37", or "defaults".
std::string ShortShape(const Catalog& catalog, const std::string& op, const Axes& axes);

// "config" for tables: what differs from the variant's default, or "default".
std::string ShortConfig(const Catalog& catalog, const std::string& op, const std::string& variant,
                        const Config& config);

}  // namespace kvr::cli
