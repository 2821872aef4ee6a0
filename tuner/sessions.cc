// SPDX-License-Identifier: Apache-2.0
#include "tuner/sessions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/compare.h"
#include "tuner/stats/verdict.h"

namespace kvr {
namespace {

bool AnyFault(const std::array<Finding, 2>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.status != TrialStatus::kPassed; });
}

void Refresh(const PairedSession& session, SessionResult& result) {
  result.info = session.info();
  result.findings = {session.finding(kIncumbent), session.finding(kChallenger)};
  if (result.trouble.empty()) result.trouble = session.trouble();
}

// Adds the rounds of a look; a sample that is no time spoils the session.
void Append(const SampleTable& table, SessionResult& result) {
  for (const std::vector<double>& round : table) {
    for (const Side side : {kIncumbent, kChallenger}) result.us[side].push_back(round.at(side));
    const double ratio = stats::LogRatio(round[kIncumbent], round[kChallenger]);
    if (!std::isfinite(ratio) && result.trouble.empty()) {
      result.trouble = StrCat("the sample of round ", result.rounds(), " is not a positive time");
    }
  }
}

// Cancelled workers end a session as KeepGoing does; other errors are errors.
absl::Status StopWhenCancelled(const absl::Status& status, SessionResult& result) {
  if (!absl::IsCancelled(status)) return status;
  result.stopped = true;
  return absl::OkStatus();
}

}  // namespace

bool SessionResult::fault() const { return AnyFault(findings); }
bool ShapeSessions::fault() const { return AnyFault(findings); }

std::vector<double> SessionResult::LogRatios() const {
  std::vector<double> ratios;
  for (size_t round = 0; round < us[kIncumbent].size(); ++round) {
    ratios.push_back(stats::LogRatio(us[kIncumbent][round], us[kChallenger][round]));
  }
  return ratios;
}

absl::StatusOr<SessionResult> TakeSession(PairedSession& session, int rounds,
                                          const KeepGoing& keep_going,
                                          const std::function<bool(const SessionResult&)>& enough) {
  SessionResult result;
  KVR_RETURN_IF_ERROR(StopWhenCancelled(session.Check(), result));
  Refresh(session, result);
  bool over = result.stopped || result.fault() || !result.trouble.empty();
  while (!over && result.rounds() < rounds) {
    if (keep_going != nullptr && !keep_going()) {
      result.stopped = true;
      break;
    }
    const absl::StatusOr<SampleTable> table =
        session.Sample(std::min(kRoundsPerLook, rounds - result.rounds()));
    KVR_RETURN_IF_ERROR(StopWhenCancelled(table.status(), result));
    if (result.stopped) break;
    // The session's own word first: a contestant that failed has samples that are no times.
    Refresh(session, result);
    if (result.fault()) break;
    Append(*table, result);
    over = !result.trouble.empty() || (enough != nullptr && enough(result));
  }
  if (result.fault() || !result.trouble.empty()) return result;
  const absl::Status checked = session.Check();
  KVR_RETURN_IF_ERROR(StopWhenCancelled(checked, result));
  Refresh(session, result);
  result.proved = checked.ok() && !result.fault();
  return result;
}

namespace {

// One run of a plan.
class Taking {
 public:
  Taking(SessionSource& source, absl::Span<const Axes> shapes, const SessionsPlan& plan)
      : source_(source), shapes_(shapes), plan_(plan), random_(plan.seed), taken_(shapes.size()) {}

  absl::StatusOr<std::vector<ShapeSessions>> Run() {
    for (int session = 0; session < plan_.sessions && Going(); ++session) {
      std::vector<size_t> due = Order();
      if (due.empty()) break;
      KVR_ASSIGN_OR_RETURN(due, Round(session, due, /*last_chance=*/false));
      if (!due.empty()) KVR_RETURN_IF_ERROR(Round(session, due, /*last_chance=*/true).status());
    }
    return std::move(taken_);
  }

 private:
  bool Going() {
    going_ = going_ && (plan_.keep_going == nullptr || plan_.keep_going());
    return going_;
  }

  std::vector<size_t> Order() {
    std::vector<size_t> order;
    for (size_t shape = 0; shape < taken_.size(); ++shape) {
      if (taken_[shape].sound()) order.push_back(shape);
    }
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  // A fresh process and `due` in it; gives those that were in trouble.
  absl::StatusOr<std::vector<size_t>> Round(int session, const std::vector<size_t>& due,
                                            bool last_chance) {
    std::vector<size_t> troubled;
    if (!Going()) return troubled;
    if (const absl::Status fresh = source_.Renew(); !fresh.ok()) {
      going_ = false;
      if (absl::IsCancelled(fresh)) return troubled;
      return fresh;
    }
    for (const size_t shape : due) {
      if (!Going()) break;
      if (plan_.starting != nullptr) plan_.starting(shape, session);
      ShapeSessions& taken = taken_[shape];
      const absl::StatusOr<std::unique_ptr<PairedSession>> opened = source_.Open(shapes_[shape]);
      if (absl::IsResourceExhausted(opened.status())) {
        taken.refused = opened.status();
        continue;
      }
      if (absl::IsCancelled(opened.status())) {
        going_ = false;
        break;
      }
      KVR_RETURN_IF_ERROR(opened.status());
      KVR_ASSIGN_OR_RETURN(SessionResult result,
                           TakeSession(**opened, plan_.rounds, plan_.keep_going));
      if (plan_.finished != nullptr) plan_.finished(shape, result);
      if (result.fault()) {
        taken.findings = result.findings;
      } else if (!result.trouble.empty()) {
        if (last_chance) taken.trouble = StrCat(result.trouble, "; again when taken once more");
        troubled.push_back(shape);
      } else if (result.usable()) {
        taken.kept.push_back(std::move(result));
      } else {
        going_ = false;  // stopped
      }
    }
    return troubled;
  }

  SessionSource& source_;
  const absl::Span<const Axes> shapes_;
  const SessionsPlan& plan_;
  std::mt19937_64 random_;
  std::vector<ShapeSessions> taken_;
  bool going_ = true;
};

}  // namespace

absl::StatusOr<std::vector<ShapeSessions>> TakeSessions(SessionSource& source,
                                                        absl::Span<const Axes> shapes,
                                                        const SessionsPlan& plan) {
  return Taking(source, shapes, plan).Run();
}

std::string FaultText(const std::array<Finding, 2>& findings,
                      const std::array<std::string, 2>& names) {
  for (const Side side : {kIncumbent, kChallenger}) {
    const Finding& finding = findings[side];
    if (finding.status == TrialStatus::kPassed) continue;
    return StrCat(side == kIncumbent ? "incumbent " : "challenger ", names[side], ": ",
                  TrialStatusName(finding.status), ": ", finding.reason);
  }
  return "";
}

}  // namespace kvr
