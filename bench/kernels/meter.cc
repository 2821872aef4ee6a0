// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/meter.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/sessions.h"

namespace kvr::bench {
namespace {

constexpr int kScreenRounds = 6;  // of roofline kernels: a few percent between configs is no matter

std::vector<Candidate> AllConfigs(const Catalog::Op& op) {
  std::vector<Candidate> all;
  for (const VariantPtr& variant : op.variants) {
    for (Config& config : Enumerate(variant->tunables, {})) {
      all.push_back({variant, std::move(config)});
    }
  }
  return all;
}

// Every entrant's default (or first) config, then the others by turns: whoever has no time for all
// of them has some of each.
std::vector<Candidate> InBuildingOrder(const std::vector<Entrant>& entrants) {
  std::vector<std::vector<Candidate>> lists;
  size_t longest = 0;
  for (const Entrant& entrant : entrants) {
    std::vector<Candidate>& list = lists.emplace_back(entrant.configs);
    const auto is_default = [](const Candidate& candidate) {
      const std::vector<Tunable>& tunables = candidate.variant->tunables;
      return std::all_of(tunables.begin(), tunables.end(), [&](const Tunable& tunable) {
        return tunable.scope == Scope::kQuality ||
               candidate.config.at(tunable.name) == tunable.default_value;
      });
    };
    const auto found = std::find_if(list.begin(), list.end(), is_default);
    if (found != list.end()) std::rotate(list.begin(), found, found + 1);
    longest = std::max(longest, list.size());
  }
  std::vector<Candidate> order;
  for (size_t i = 0; i < longest; ++i) {
    for (const std::vector<Candidate>& list : lists) {
      if (i < list.size()) order.push_back(list[i]);
    }
  }
  return order;
}

int ConfigsOf(const std::vector<Entrant>& entrants) {
  size_t configs = 0;
  for (const Entrant& entrant : entrants) configs += entrant.configs.size();
  return static_cast<int>(configs);
}

void Report(const Stand& stand, int contender, std::vector<LeftOut>* left_out) {
  const Candidate& candidate = stand.contender(contender).candidate;
  const Finding& finding = stand.finding(contender);
  left_out->push_back({candidate.variant->name, ConfigText(candidate.config),
                       StrCat(TrialStatusName(finding.status), ": ", finding.reason)});
}

absl::Status NothingToMeasure(const Catalog::Op& op, const std::vector<LeftOut>& left_out) {
  std::string why;
  for (const LeftOut& each : left_out) {
    StrAppend(&why, why.empty() ? "" : "; ", each.variant, ": ", each.reason);
  }
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("nothing of ", op.name(), " can be measured here: ", why),
               "ask `kvr verify` for the whole story");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Meter>> Meter::Start(const Workbench& bench,
                                                    const Options& options) {
  std::unique_ptr<Meter> meter(new Meter(options));
  meter->worker_options_ = bench.worker;
  KVR_ASSIGN_OR_RETURN(WorkerClient * first, meter->Worker(0));
  KVR_ASSIGN_OR_RETURN(meter->forge_, Forge::Create(bench, first->device()));
  return meter;
}

absl::StatusOr<WorkerClient*> Meter::Worker(size_t index) {
  while (workers_.size() <= index) {
    KVR_ASSIGN_OR_RETURN(workers_.emplace_back(), WorkerClient::Start(worker_options_));
  }
  return workers_[index].get();
}

absl::StatusOr<std::unique_ptr<Stand>> Meter::OpenRoofline(size_t index, const RooflineJob& job,
                                                           std::vector<LeftOut>* left_out) {
  KVR_RETURN_IF_ERROR(job.op->operation->Load());
  KVR_ASSIGN_OR_RETURN(WorkerClient * worker, Worker(1 + index));
  const std::vector<Candidate> configs = AllConfigs(*job.op);
  KVR_RETURN_IF_ERROR(forge_->Build(*job.op, job.axes, configs, configs.size(), nullptr));
  KVR_ASSIGN_OR_RETURN(std::vector<Contender> contenders,
                       forge_->Ready(*job.op, job.axes, configs, left_out));
  if (contenders.empty()) return NothingToMeasure(*job.op, *left_out);
  KVR_ASSIGN_OR_RETURN(
      std::unique_ptr<Stand> stand,
      Stand::Open(*worker, *forge_,
                  {job.op, job.axes, job.seeds, std::move(contenders), options_.mode}));
  stats::RaceOptions screening;
  screening.screen_rounds = kScreenRounds;
  screening.finalists = 1;
  screening.final_rounds = 1;
  KVR_ASSIGN_OR_RETURN(const stats::RaceResult race, stand->Race(screening));
  for (const int contender : race.ranking) {
    stand->Keep({contender});
    KVR_RETURN_IF_ERROR(stand->Check());
    if (stand->Passed(contender)) return stand;
    Report(*stand, contender, left_out);
  }
  return NothingToMeasure(*job.op, *left_out);
}

absl::StatusOr<std::vector<Contender>> Meter::Choose(const ShapeJob& job, ShapeResult* result,
                                                     std::vector<int>* entrant_of) {
  std::atomic<bool> on_time = true;
  KVR_RETURN_IF_ERROR(
      forge_->Build(*job.op, job.axes, InBuildingOrder(job.entrants), job.entrants.size(), [&] {
        if (absl::Now() >= job.build_until) on_time = false;
        return on_time.load();
      }));
  std::vector<Contender> all;
  std::vector<int> whose;
  bool choice = false;
  for (size_t i = 0; i < job.entrants.size(); ++i) {
    KVR_ASSIGN_OR_RETURN(
        std::vector<Contender> own,
        forge_->Ready(*job.op, job.axes, job.entrants[i].configs, &result->left_out));
    choice = choice || own.size() > 1;
    whose.insert(whose.end(), own.size(), static_cast<int>(i));
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  if (all.empty()) return NothingToMeasure(*job.op, result->left_out);
  if (!on_time) {
    result->cut_short.push_back(
        StrCat("of ", ConfigsOf(job.entrants), " configs ", all.size(), " were ready"));
  }
  if (!choice) {
    *entrant_of = std::move(whose);
    return all;
  }

  KVR_ASSIGN_OR_RETURN(WorkerClient * worker, Worker(0));
  KVR_ASSIGN_OR_RETURN(
      std::unique_ptr<Stand> stand,
      Stand::Open(*worker, *forge_, {job.op, job.axes, job.seeds, all, options_.mode}));
  // One round in any case: who has none has no place.
  int asked = 0;
  KVR_ASSIGN_OR_RETURN(const stats::RaceResult race, stand->Race(options_.race, [&] {
    return asked++ == 0 || absl::Now() < job.until.race_until;
  }));
  result->raced = static_cast<int>(all.size());
  if (race.stopped) {
    result->cut_short.push_back(StrCat("the race was ended after ", race.samples, " samples"));
  }
  std::vector<int> best(job.entrants.size(), -1);
  for (const int contender : race.ranking) {
    const auto entrant = static_cast<size_t>(whose[static_cast<size_t>(contender)]);
    if (best[entrant] >= 0) continue;
    stand->Keep({contender});
    KVR_RETURN_IF_ERROR(stand->Check());
    if (!stand->Passed(contender)) {
      Report(*stand, contender, &result->left_out);
      continue;
    }
    best[entrant] = contender;
    const Semantics semantics = all[static_cast<size_t>(contender)].candidate.variant->semantics;
    if (result->winner < 0 && semantics == Semantics::kExact) {
      result->winner = static_cast<int>(entrant);
    }
  }
  std::vector<Contender> chosen;
  for (size_t i = 0; i < best.size(); ++i) {
    if (best[i] < 0) continue;
    chosen.push_back(all[static_cast<size_t>(best[i])]);
    entrant_of->push_back(static_cast<int>(i));
  }
  if (chosen.empty()) return NothingToMeasure(*job.op, result->left_out);
  return chosen;
}

absl::Status Meter::Sample(const ShapeJob& job, std::vector<Contender> chosen,
                           const std::vector<int>& entrant_of, ShapeResult* result) {
  const auto twice = std::find(entrant_of.begin(), entrant_of.end(),
                               result->winner >= 0 ? result->winner : job.twice);
  const auto doubled =
      twice == entrant_of.end() ? size_t{0} : static_cast<size_t>(twice - entrant_of.begin());
  KVR_ASSIGN_OR_RETURN(WorkerClient * worker, Worker(0));
  std::vector<std::vector<QualityMeasure>> quality;
  for (const Contender& contender : chosen) {
    quality.emplace_back();
    if (contender.candidate.variant->semantics == Semantics::kExact) continue;
    KVR_ASSIGN_OR_RETURN(Finding finding,
                         worker->Verify({job.op->name(), job.axes, job.seeds}, contender.item));
    quality.back() = std::move(finding.quality);  // whether it is right, the stand's checks say
  }
  chosen.push_back(chosen[doubled]);
  quality.emplace_back();
  std::vector<std::unique_ptr<Stand>> stands;
  KVR_ASSIGN_OR_RETURN(
      std::unique_ptr<Stand> opened,
      Stand::Open(*worker, *forge_, {job.op, job.axes, job.seeds, chosen, options_.mode}));
  stands.push_back(std::move(opened));
  for (size_t i = 0; i < job.rooflines.size(); ++i) {
    KVR_ASSIGN_OR_RETURN(opened, OpenRoofline(i, job.rooflines[i], &result->left_out));
    stands.push_back(std::move(opened));
  }
  for (int done = 0; done < options_.rounds; done += kRoundsPerLook) {
    if (done > 0 && absl::Now() >= job.until.end) {
      result->cut_short.push_back(StrCat(done, " of ", options_.rounds, " rounds were taken"));
      break;
    }
    const int rounds = std::min(kRoundsPerLook, options_.rounds - done);
    for (const std::unique_ptr<Stand>& stand : stands) KVR_RETURN_IF_ERROR(stand->Sample(rounds));
  }
  result->trouble.clear();
  for (const std::unique_ptr<Stand>& stand : stands) {
    KVR_RETURN_IF_ERROR(stand->Check());
    if (result->trouble.empty()) result->trouble = stand->trouble();
  }

  const Stand& own = *stands.front();
  const int again = own.contenders() - 1;
  result->session = own.info();
  result->entrants.assign(job.entrants.size(), {});
  for (int i = 0; i < own.contenders(); ++i) {
    Timed timed{own.contender(i).candidate, {}, quality[static_cast<size_t>(i)]};
    if (own.Passed(i)) {
      timed.us = own.us(i);
    } else {
      Report(own, i, &result->left_out);
    }
    if (i == again) {
      result->again = std::move(timed);
    } else {
      result->entrants[static_cast<size_t>(entrant_of[static_cast<size_t>(i)])] = std::move(timed);
    }
  }
  result->twice = entrant_of[doubled];
  result->rooflines.clear();
  for (size_t i = 1; i < stands.size(); ++i) {
    const std::vector<int>& kept = stands[i]->kept();
    if (kept.empty()) return NothingToMeasure(*job.rooflines[i - 1].op, result->left_out);
    result->rooflines.push_back(
        {stands[i]->contender(kept.front()).candidate, stands[i]->us(kept.front()), {}});
  }
  return absl::OkStatus();
}

absl::StatusOr<ShapeResult> Meter::Measure(const ShapeJob& job) {
  KVR_RETURN_IF_ERROR(job.op->operation->Load());
  ShapeResult result;
  std::vector<int> entrant_of;
  KVR_ASSIGN_OR_RETURN(const std::vector<Contender> chosen, Choose(job, &result, &entrant_of));
  const std::vector<LeftOut> before = result.left_out;
  const std::vector<std::string> cut_short = result.cut_short;
  KVR_RETURN_IF_ERROR(Sample(job, chosen, entrant_of, &result));
  // Another session may be better.
  if (!result.trouble.empty() && absl::Now() < job.until.end) {
    result.left_out = before;
    result.cut_short = cut_short;
    KVR_RETURN_IF_ERROR(Sample(job, chosen, entrant_of, &result));
  }
  return result;
}

}  // namespace kvr::bench
