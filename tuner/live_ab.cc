// SPDX-License-Identifier: Apache-2.0
#include "tuner/live_ab.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "tuner/sampler.h"
#include "tuner/stats/quick.h"

namespace kvr {
namespace {

using stats::Verdict;

constexpr int kBlocksOfRound = 4;
constexpr size_t kLeastSteps = 4;         // of a side, for a round to have a ratio
constexpr size_t kLeastSessionSteps = 8;  // ... for a session
constexpr double kMostNotApplied = 0.1;   // of the steps

bool Any(const std::vector<LiveBucket>& buckets, Verdict verdict, bool rare_too) {
  return std::any_of(buckets.begin(), buckets.end(), [&](const LiveBucket& bucket) {
    return bucket.verdict == verdict && (rare_too || !bucket.rare);
  });
}

// 2 before 16; names after numbers.
bool Before(const LiveBucket& a, const LiveBucket& b) {
  const auto number = [](const std::string& name) {
    char* end = nullptr;
    const double value = std::strtod(name.c_str(), &end);
    return !name.empty() && *end == '\0' ? value : std::numeric_limits<double>::infinity();
  };
  const double of_a = number(a.name), of_b = number(b.name);
  return of_a != of_b ? of_a < of_b : a.name < b.name;
}

}  // namespace

LiveComparison::LiveComparison(const LiveAbRules& rules)
    : rules_([&] {
        LiveAbRules filled = rules;
        if (filled.rounds <= 0) filled.rounds = rules.ship ? kLiveSessionRounds : kLiveRounds;
        return filled;
      }()) {}

void LiveComparison::Add(const LiveBlock& block) {
  const size_t side = block.side == 0 ? 0 : 1;
  errors_[side] += block.errors;
  not_applied_ += block.not_applied;
  for (const auto& [name, times] : block.us) {
    Bucket& bucket = buckets_[name];
    steps_[side] += static_cast<int64_t>(times.size());
    for (const double us : times) {
      if (!std::isfinite(us) || us <= 0) {
        bucket.invalid = true;
        continue;
      }
      bucket.us[side].push_back(us);
      bucket.round[side].push_back(std::log(us));
    }
  }
  if (block.number % kBlocksOfRound == kBlocksOfRound - 1) EndRound();
}

void LiveComparison::EndRound() {
  ++rounds_;
  const bool session_ends = rules_.ship && rounds_ % rules_.rounds == 0;
  for (auto& [name, bucket] : buckets_) {
    if (std::min(bucket.round[0].size(), bucket.round[1].size()) >= kLeastSteps) {
      bucket.ratios.push_back(Median(bucket.round[1]) - Median(bucket.round[0]));
      if (bucket.interval) bucket.interval->Add(bucket.ratios.back());
    }
    for (const size_t side : {0, 1}) {
      std::vector<double>& round = bucket.round[side];
      bucket.session[side].insert(bucket.session[side].end(), round.begin(), round.end());
      round.clear();
    }
    if (!session_ends) continue;
    if (std::min(bucket.session[0].size(), bucket.session[1].size()) >= kLeastSessionSteps) {
      bucket.medians.push_back(Median(bucket.session[1]) - Median(bucket.session[0]));
    }
    for (std::vector<double>& session : bucket.session) session.clear();
  }
  done_ = Enough();
}

bool LiveComparison::Enough() {
  if (errors_[0] + errors_[1] > 0) return true;
  if (!rules_.ship) {
    const auto several = std::count_if(buckets_.begin(), buckets_.end(), [](const auto& entry) {
      return !entry.second.ratios.empty();
    });
    const double alpha =
        stats::QuickOptions().alpha / static_cast<double>(std::max<int64_t>(several, 1));
    if (alpha != alpha_) {  // another bucket has come
      alpha_ = alpha;
      for (auto& [name, bucket] : buckets_) {
        bucket.interval.emplace(alpha);
        for (const double ratio : bucket.ratios) bucket.interval->Add(ratio);
      }
    }
    return rounds_ >= rules_.rounds ||
           (rounds_ >= stats::kLeastSamples && Decide().verdict != Verdict::kInconclusive);
  }
  // What has been seen so far must not decide when to stop: the traffic does.
  int least = rounds_ / rules_.rounds;
  for (const auto& [name, bucket] : buckets_) {
    if (!Rare(bucket)) least = std::min(least, static_cast<int>(bucket.medians.size()));
  }
  return least >= rules_.sessions || rounds_ >= 4 * rules_.sessions * rules_.rounds;
}

bool LiveComparison::Rare(const Bucket& bucket) const {
  const auto own = static_cast<double>(bucket.us[0].size() + bucket.us[1].size());
  return own < kRareBucket * static_cast<double>(steps_[0] + steps_[1]);
}

void LiveComparison::JudgeQuick(LiveVerdict* verdict) const {
  stats::QuickOptions options;
  options.band = rules_.band;
  for (LiveBucket& bucket : verdict->buckets) {
    if (bucket.verdict == Verdict::kInvalid) continue;
    const std::optional<stats::MedianInterval>& known = buckets_.at(bucket.name).interval;
    const stats::MedianInterval interval = known ? *known : stats::MedianInterval(options.alpha);
    bucket.difference = interval.median();
    bucket.interval = interval.interval();
    bucket.verdict = stats::Judge(bucket.interval, options);
    if (stats::BandTooWide(bucket.interval, options)) {
      bucket.reason = "the band is too wide to call them equal";
    } else if (bucket.verdict == Verdict::kInconclusive && bucket.rounds < stats::kLeastSamples) {
      bucket.reason =
          StrCat("counts in ", bucket.rounds, " of ", rounds_,
                 " rounds, too few: ", 2 * bucket.rounds < rounds_ ? "longer blocks" : "more time",
                 " would tell");
    }
  }
  const std::vector<LiveBucket>& buckets = verdict->buckets;
  verdict->verdict = Any(buckets, Verdict::kLoss, true)       ? Verdict::kLoss
                     : Any(buckets, Verdict::kInvalid, false) ? Verdict::kInvalid
                     : buckets.empty() || Any(buckets, Verdict::kInconclusive, false)
                         ? Verdict::kInconclusive
                     : Any(buckets, Verdict::kWin, false) ? Verdict::kWin
                                                          : Verdict::kEquivalent;
}

void LiveComparison::JudgeShip(LiveVerdict* verdict) const {
  std::vector<std::vector<double>> medians;
  std::vector<LiveBucket*> judged;
  for (LiveBucket& bucket : verdict->buckets) {
    if (bucket.verdict == Verdict::kInvalid) continue;
    const std::vector<double>& own = buckets_.at(bucket.name).medians;
    if (!own.empty()) {
      bucket.difference =
          std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(own.size());
    }
    if (own.empty() && !bucket.rare) {
      bucket.reason = StrCat("no session has ", kLeastSessionSteps,
                             " of its steps on either side: longer blocks, or more rounds, would");
    } else if (static_cast<int>(own.size()) < stats::kShipSessions) {
      bucket.reason =
          StrCat(own.size(), " of ", stats::kShipSessions, " sessions, too few to ship");
    }
    if (bucket.rare || own.size() < 2) continue;
    medians.push_back(own);
    judged.push_back(&bucket);
  }
  const stats::ShipVerdict ship = stats::JudgeShip(medians);
  for (size_t i = 0; i < judged.size(); ++i) {
    judged[i]->verdict = ship.shapes[i].verdict;
    judged[i]->interval = ship.shapes[i].interval;
    judged[i]->regression_excluded = ship.shapes[i].regression_excluded;
  }
  const std::vector<LiveBucket>& buckets = verdict->buckets;
  const bool whole = std::all_of(buckets.begin(), buckets.end(), [&](const LiveBucket& bucket) {
    return bucket.rare || bucket.verdict == Verdict::kInvalid || bucket.sessions >= 2;
  });
  if (Any(buckets, Verdict::kLoss, true)) {
    verdict->verdict = Verdict::kLoss;
  } else if (Any(buckets, Verdict::kInvalid, false)) {
    verdict->verdict = Verdict::kInvalid;
  } else if (judged.empty() || !whole) {
    verdict->verdict = Verdict::kInconclusive;
  } else {
    verdict->verdict = ship.verdict;
    verdict->ship = ship.ship;
  }
}

LiveVerdict LiveComparison::Judge() const {
  LiveVerdict verdict = Decide();
  for (LiveBucket& bucket : verdict.buckets) {
    const Bucket& known = buckets_.at(bucket.name);
    for (const size_t side : {0, 1}) {
      if (!known.us[side].empty()) bucket.median_us[side] = Median(known.us[side]);
    }
  }
  return verdict;
}

LiveVerdict LiveComparison::Decide() const {
  LiveVerdict verdict;
  verdict.rounds = rounds_;
  verdict.steps = steps_;
  verdict.errors = errors_;
  verdict.not_applied = not_applied_;
  for (const auto& [name, known] : buckets_) {
    LiveBucket& bucket = verdict.buckets.emplace_back();
    bucket.name = name;
    bucket.rare = Rare(known);
    bucket.rounds = static_cast<int>(known.ratios.size());
    bucket.sessions = static_cast<int>(known.medians.size());
    for (const size_t side : {0, 1}) {
      bucket.steps[side] = static_cast<int64_t>(known.us[side].size());
    }
    if (known.invalid) {
      bucket.verdict = Verdict::kInvalid;
      bucket.reason = "a step has no positive time";
    }
  }
  std::sort(verdict.buckets.begin(), verdict.buckets.end(), Before);
  rules_.ship ? JudgeShip(&verdict) : JudgeQuick(&verdict);

  if (errors_[0] + errors_[1] > 0) {
    verdict.reason = StrCat(errors_[0], " steps of A and ", errors_[1], " of B went wrong");
  } else if (static_cast<double>(not_applied_) >
             kMostNotApplied * static_cast<double>(steps_[0] + steps_[1] + not_applied_)) {
    verdict.reason = StrCat(not_applied_, " steps of ", steps_[0] + steps_[1] + not_applied_,
                            " ran something else than their side: graphs need to be captured anew");
  } else if (verdict.verdict == Verdict::kInvalid) {
    verdict.reason = "a step has no positive time";
  }
  if (!verdict.reason.empty()) {
    verdict.verdict = Verdict::kInvalid;
    verdict.ship = false;
  }
  return verdict;
}

std::string LiveConclusion(const LiveVerdict& verdict, bool ship) {
  std::string text(verdict.ship ? "SHIP" : stats::VerdictName(verdict.verdict));
  const auto where = [&](Verdict wanted) {
    std::vector<std::string> names;
    for (const LiveBucket& bucket : verdict.buckets) {
      if (bucket.verdict == wanted) names.push_back(bucket.name);
    }
    return StrCat(" at ", StrJoin(names, ", "));
  };
  if (!verdict.reason.empty()) return StrCat(text, ": ", verdict.reason);
  const bool several = verdict.buckets.size() > 1;
  switch (verdict.verdict) {
    case Verdict::kWin:
      if (several) StrAppend(&text, where(Verdict::kWin));
      StrAppend(&text, verdict.ship ? "; no regression of 3 % at any" : "; --ship decides");
      break;
    case Verdict::kLoss:
      if (several) StrAppend(&text, where(Verdict::kLoss));
      StrAppend(&text, "; do not ship");
      break;
    case Verdict::kEquivalent:
      StrAppend(&text, ship ? "; no difference that matters" : "; no difference beyond the noise");
      break;
    case Verdict::kInconclusive:
      if (Any(verdict.buckets, Verdict::kWin, true))
        StrAppend(&text, ", WIN", where(Verdict::kWin));
      StrAppend(&text, "; not decided at every bucket");
      break;
    case Verdict::kInvalid:
      break;
  }
  return text;
}

}  // namespace kvr
