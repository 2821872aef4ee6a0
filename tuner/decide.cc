// SPDX-License-Identifier: Apache-2.0
#include "tuner/decide.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

class Decider {
 public:
  Decider(KeySampler& sampler, int incumbent, const DecideOptions& options,
          const stats::KeepRacing& duel_going, DecideObserver& observer)
      : sampler_(sampler),
        incumbent_(incumbent),
        options_(options),
        duel_going_(duel_going),
        observer_(observer) {}

  absl::StatusOr<KeyDecision> Run(const stats::KeepRacing& race_going) {
    KVR_ASSIGN_OR_RETURN(decision_.race,
                         stats::Race(sampler_, options_.race, race_going, &observer_));
    decision_.race_trouble = sampler_.trouble();
    if (!decision_.race.finalists.empty()) {
      KVR_RETURN_IF_ERROR(sampler_.Check(decision_.race.finalists));
    }
    observer_.Raced(decision_.race, decision_.race_trouble);
    if (!decision_.race_trouble.empty()) sampler_.Renew();
    for (int challenger : decision_.race.ranking) {
      if (!IncumbentStands()) break;
      if (challenger == incumbent_ || !sampler_.Passed(challenger)) continue;
      KVR_RETURN_IF_ERROR(Hold(challenger));
      if (!IncumbentStands() || !sampler_.Passed(challenger)) continue;
      const Duel& duel = decision_.duel;
      decision_.held = true;
      decision_.incumbent_kept = duel.verdict != stats::Verdict::kWin;
      decision_.winner = decision_.incumbent_kept ? incumbent_ : challenger;
      decision_.winner_us = decision_.incumbent_kept ? duel.incumbent_us : duel.challenger_us;
      return std::move(decision_);
    }
    decision_.duel = Duel();
    if (IncumbentStands()) {
      KVR_RETURN_IF_ERROR(MeasureAlone(incumbent_));
      decision_.incumbent_kept = decision_.winner >= 0;
      if (decision_.winner >= 0) return std::move(decision_);
    }
    for (int subject : decision_.race.ranking) {
      if (!sampler_.Passed(subject)) continue;
      KVR_RETURN_IF_ERROR(MeasureAlone(subject));
      if (decision_.winner >= 0) break;
    }
    return std::move(decision_);
  }

 private:
  bool IncumbentStands() const {
    return incumbent_ >= 0 && sampler_.Passed(incumbent_) &&
           std::isfinite(decision_.race.medians[incumbent_]);
  }

  absl::Status Hold(int challenger) {
    Duel& duel = decision_.duel;
    KVR_RETURN_IF_ERROR(HoldOnce(challenger));
    if (sampler_.trouble().empty()) return absl::OkStatus();
    sampler_.Renew();
    if (!IncumbentStands() || !sampler_.Passed(challenger) || !Going()) return absl::OkStatus();
    KVR_RETURN_IF_ERROR(HoldOnce(challenger));
    if (duel.verdict == stats::Verdict::kInvalid && !sampler_.trouble().empty()) sampler_.Renew();
    return absl::OkStatus();
  }

  bool Going() const { return !duel_going_ || duel_going_(); }

  absl::Status HoldOnce(int challenger) {
    Duel& duel = decision_.duel;
    duel = Duel();
    duel.incumbent = incumbent_;
    duel.challenger = challenger;
    const std::array<int, 2> pair = {incumbent_, challenger};
    observer_.DuelBegins(incumbent_, challenger);
    stats::QuickComparison comparison(options_.duel);
    if (!options_.no_verdict.empty()) comparison.Invalidate(options_.no_verdict);
    std::array<std::vector<double>, 2> us;
    bool cut = false;
    // Where there is no verdict, a few rounds say what the two take.
    const int most = options_.no_verdict.empty() ? options_.duel.max_rounds : options_.alone_rounds;
    const auto both_pass = [&] {
      return sampler_.Passed(incumbent_) && sampler_.Passed(challenger);
    };
    while (both_pass() && duel.rounds < most &&
           !(options_.no_verdict.empty() && comparison.done())) {
      if (!Going()) {
        cut = true;
        break;
      }
      const int rounds = std::min(options_.duel_look, most - duel.rounds);
      KVR_ASSIGN_OR_RETURN(const SampleTable table, sampler_.Sample(pair, rounds));
      if (!both_pass()) break;
      duel.rounds += rounds;
      for (const std::vector<double>& round : table) {
        for (size_t side : {0, 1}) us[side].push_back(round[side]);
        comparison.Add(round[0], round[1]);
      }
      if (const std::string trouble = sampler_.trouble(); !trouble.empty()) {
        comparison.Invalidate(trouble);
        if (options_.no_verdict.empty()) break;
      }
      observer_.DuelLooked(comparison);
    }
    if (both_pass()) KVR_RETURN_IF_ERROR(sampler_.Check(pair));
    if (const std::string trouble = sampler_.trouble(); !trouble.empty()) {
      comparison.Invalidate(trouble);
    }
    for (int subject : pair) {
      if (!sampler_.Passed(subject)) comparison.Invalidate("the numbers of one went wrong");
    }
    duel.verdict = comparison.verdict();
    duel.reason = comparison.why_invalid();
    if (duel.reason == options_.no_verdict && !duel.reason.empty()) duel.verdict = options_.without;
    if (cut && duel.verdict == stats::Verdict::kInconclusive) {
      duel.reason = StrCat("no time was left after ", duel.rounds, " rounds");
    }
    duel.difference = comparison.median();
    duel.interval = comparison.interval();
    if (!us[0].empty()) {
      duel.incumbent_us = Median(us[0]);
      duel.challenger_us = Median(us[1]);
    } else if (both_pass()) {  // cut before its first round: what the race has
      duel.incumbent_us = decision_.race.medians[incumbent_];
      duel.challenger_us = decision_.race.medians[challenger];
    }
    observer_.Dueled(duel);
    return absl::OkStatus();
  }

  // Fresh samples of one that has nobody to meet. It is the winner if it has any.
  absl::Status MeasureAlone(int subject) {
    const std::array<int, 1> one = {subject};
    observer_.AloneBegins(subject);
    std::vector<double> us;
    while (sampler_.Passed(subject) && static_cast<int>(us.size()) < options_.alone_rounds &&
           (us.empty() || Going())) {
      const int rounds =
          std::min(options_.duel_look, options_.alone_rounds - static_cast<int>(us.size()));
      KVR_ASSIGN_OR_RETURN(const SampleTable table, sampler_.Sample(one, rounds));
      for (const std::vector<double>& round : table) us.push_back(round[0]);
    }
    if (sampler_.Passed(subject)) KVR_RETURN_IF_ERROR(sampler_.Check(one));
    if (const double median = Median(us); sampler_.Passed(subject) && std::isfinite(median)) {
      decision_.winner = subject;
      decision_.winner_us = median;
      observer_.Alone(subject, median);
    }
    return absl::OkStatus();
  }

  KeySampler& sampler_;
  const int incumbent_;
  const DecideOptions& options_;
  const stats::KeepRacing& duel_going_;
  DecideObserver& observer_;
  KeyDecision decision_;
};

}  // namespace

absl::StatusOr<KeyDecision> DecideKey(KeySampler& sampler, int incumbent,
                                      const DecideOptions& options,
                                      const stats::KeepRacing& race_going,
                                      const stats::KeepRacing& duel_going,
                                      DecideObserver& observer) {
  return Decider(sampler, incumbent, options, duel_going, observer).Run(race_going);
}

}  // namespace kvr
