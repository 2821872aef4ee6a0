// SPDX-License-Identifier: Apache-2.0
#include "cli/live_verdict.h"

#include <vector>

#include "cli/samples.h"
#include "cli/table.h"
#include "core/strings.h"
#include "tuner/ab.h"

namespace kvr::cli {
namespace {

Json BucketJson(const LiveBucket& bucket) {
  return {{"bucket", bucket.name},
          {"verdict", stats::VerdictName(bucket.verdict)},
          {"reason", bucket.reason},
          {"rare", bucket.rare},
          {"a_us", bucket.median_us[0]},
          {"b_us", bucket.median_us[1]},
          {"difference", RelativeJson(bucket.difference)},
          {"interval", {RelativeJson(bucket.interval.low), RelativeJson(bucket.interval.high)}},
          {"rounds", bucket.rounds},
          {"sessions", bucket.sessions},
          {"steps", bucket.steps}};
}

}  // namespace

Json LiveBucketsJson(const LiveVerdict& verdict) {
  Json buckets = Json::array();
  for (const LiveBucket& bucket : verdict.buckets) buckets.push_back(BucketJson(bucket));
  return buckets;
}

std::string LiveAnswer(const LiveVerdict& verdict) {
  return std::string(verdict.ship ? "SHIP" : stats::VerdictName(verdict.verdict));
}

void PrintLiveBuckets(const LiveVerdict& verdict, bool ship, const char* bucket_title) {
  Table table({{bucket_title},
               {"steps", Table::Align::kRight},
               {ship ? "sessions" : "rounds", Table::Align::kRight},
               {"A", Table::Align::kRight},
               {"B", Table::Align::kRight},
               {"difference (95 %)", Table::Align::kRight},
               {"verdict"}});
  std::vector<std::string> rare, reasons;
  for (const LiveBucket& bucket : verdict.buckets) {
    const auto us = [](double value) { return value < 0 ? "-" : Microseconds(value); };
    table.Row({bucket.name, StrCat(bucket.steps[0] + bucket.steps[1]),
               StrCat(ship ? bucket.sessions : bucket.rounds), us(bucket.median_us[0]),
               us(bucket.median_us[1]), DifferenceText(bucket.difference, bucket.interval),
               std::string(stats::VerdictName(bucket.verdict))});
    if (bucket.rare) rare.push_back(bucket.name);
    if (!bucket.reason.empty() && !bucket.rare) {
      reasons.push_back(StrCat(bucket.name, ": ", bucket.reason));
    }
  }
  if (!table.empty()) Print(StrCat("\n", table.Render(TerminalWidth()), "\n"));
  for (const std::string& reason : reasons) Print(Wrap(reason, TerminalWidth(), 0));
  if (!rare.empty()) {
    Print(Wrap(StrCat("too rare to wait for: ", StrJoin(rare, ", ")), TerminalWidth(), 0));
  }
}

int CodeOf(stats::Verdict verdict) {
  switch (verdict) {
    case stats::Verdict::kWin:
      return kDone;
    case stats::Verdict::kEquivalent:
      return kNoDifference;
    case stats::Verdict::kLoss:
      return kLoss;
    case stats::Verdict::kInconclusive:
      return kInconclusive;
    case stats::Verdict::kInvalid:
      return kInvalid;
  }
  return kInvalid;
}

}  // namespace kvr::cli
