// SPDX-License-Identifier: Apache-2.0
//
// kvr tune OP: compile, verify and measure the space, select a config per tuning key.
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/samples.h"
#include "cli/selections.h"
#include "cli/tune_text.h"
#include "cli/work.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

struct TuneOptions : OpOptions {
  std::string selections;
  std::string key_policy;
  bool retest = false;
};

Json ShapesJson(const std::vector<Axes>& shapes) {
  Json json = Json::array();
  for (const Axes& axes : shapes) json.push_back(AxesJson(axes));
  return json;
}

// What each key's own choice gains over one for all: shares of the single choice's time.
Json SinglesJson(const std::vector<SingleChoice>& singles) {
  Json json = Json::array();
  for (const SingleChoice& choice : singles) {
    Json keys = Json::array();
    for (const SingleAt& at : choice.at) {
      keys.push_back(
          {{"key", AxesJson(at.key)},
           {"measured_at", AxesJson(at.axes)},
           {"variant", at.variant},
           {"config", ConfigJson(at.config)},
           {"verdict", at.verdict},
           {"reason", at.reason},
           {"us", at.own_us},
           {"single_us", at.single_us},
           {"gain", NumberJson(-std::expm1(at.difference))},
           {"gain_interval",
            {NumberJson(-std::expm1(at.interval.high)), NumberJson(-std::expm1(at.interval.low))}},
           {"band", at.band},
           {"rounds", at.rounds}});
    }
    json.push_back({{"key", AxesJson(choice.key)},
                    {"variant", choice.variant},
                    {"config", ConfigJson(choice.config)},
                    {"keys", keys}});
  }
  return json;
}

Json ToJson(const TuneReport& report) {
  Json selections = Json::array(), pruned = Json::array(), trials = Json::array(),
       rejected = Json::array();
  for (const TunedKey& key : report.selections) {
    selections.push_back(
        {{"key", AxesJson(key.key)},
         {"variant", key.variant},
         {"config", ConfigJson(key.config)},
         {"median_us", key.median_us},
         {"tried", key.tried},
         {"incumbent_variant", key.incumbent_variant},
         {"incumbent_config", ConfigJson(key.incumbent_config)},
         {"incumbent_us", key.incumbent_us},
         {"incumbent_kept", key.incumbent_kept},
         {"challenger_variant", key.challenger_variant},
         {"challenger_config", ConfigJson(key.challenger_config)},
         {"challenger_us", key.challenger_us},
         {"verdict", key.verdict},
         {"reason", key.reason},
         {"gain", key.gain},
         // Of the challenger's time against the incumbent's, as gain is: 0.1 is 10 % less.
         {"gain_interval",
          {NumberJson(-std::expm1(key.difference.high)),
           NumberJson(-std::expm1(key.difference.low))}},
         {"rounds", key.rounds},
         {"band", key.band},
         {"band_source", key.band_source},
         {"race_trouble", key.race_trouble},
         {"published", key.published},
         {"refused", key.refused},
         {"session", SessionInfoJson(report.device, key.session)},
         {"measured_at", ShapesJson(key.shapes)},
         {"verified_also_at", ShapesJson(key.verified)},
         {"note", key.note}});
  }
  for (const TuneReport::PrunedConfig& config : report.pruned) {
    pruned.push_back({{"variant", config.variant},
                      {"config", ConfigJson(config.config)},
                      {"reason", config.reason},
                      {"axes", AxesJson(config.axes)}});
  }
  for (const Trial& trial : report.trials) {
    trials.push_back({{"variant", trial.variant},
                      {"config", ConfigJson(trial.config)},
                      {"axes", AxesJson(trial.axes)},
                      {"status", TrialStatusName(trial.status)},
                      {"reason", trial.reason},
                      {"max_abs", trial.max_abs},
                      {"max_rel", trial.max_rel},
                      {"quality", QualityJson(trial.quality)},
                      {"stage", trial.stage},
                      {"screen_us", trial.screen_us},
                      {"median_us", trial.median_us},
                      {"spread", trial.spread}});
  }
  for (const TuneReport::RejectedConfig& config : report.rejected) {
    rejected.push_back({{"variant", config.variant},
                        {"config", ConfigJson(config.config)},
                        {"status", config.status},
                        {"reason", config.reason},
                        {"time", config.time},
                        {"axes", AxesJson(config.axes)}});
  }
  return {{"device", report.device.name},
          {"seed", report.seed},
          {"key_policy", report.key_policy},
          {"session", SessionInfoJson(report.device, report.session)},
          {"selections", selections},
          {"singles", SinglesJson(report.singles)},
          {"pruned", pruned},
          {"rejected", rejected},
          {"trials", trials},
          {"skipped", SkippedJson(report.skipped)},
          {"cut", report.cut},
          {"digest", report.digest},
          {"ledger", report.ledger},
          {"ledger_trouble", report.ledger_trouble},
          {"respawns", report.respawns},
          {"cancelled", report.cancelled}};
}

// What would make the selections go nowhere, said before the hours of measuring.
absl::Status CheckDestination(const TuneOptions& options) {
  if (options.selections.empty()) return absl::OkStatus();
  if (!options.pins.empty()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "--set and --selections are both given, but pinned tunables are never stored",
                 "leave one of them out");
  }
  const std::filesystem::path directory =
      std::filesystem::absolute(options.selections).parent_path();
  if (access(directory.c_str(), W_OK) != 0) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat("selections cannot be written in ", directory.string(), ": ", std::strerror(errno)),
        "name a file in a directory that exists and is yours");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunTune(const GlobalOptions& global, const TuneOptions& options) {
  KVR_RETURN_IF_ERROR(CheckDestination(options));
  KVR_RETURN_IF_ERROR(CheckLedger(options));
  TuneRequest request;
  KVR_RETURN_IF_ERROR(FillRequest(options, &request));
  request.selection_file = options.selections;
  request.publish = !options.selections.empty();
  request.key_policy = options.key_policy;
  request.retest = options.retest;
  KVR_ASSIGN_OR_RETURN(request.mode, ModeOf(options));
  KVR_ASSIGN_OR_RETURN(request.budget_s, BudgetOf(options));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_RETURN_IF_ERROR(CheckStated(platform->catalog(), options));
  TuneReport report;
  {
    ProgressBar progress(global.json);
    const TuneSettings settings = Settings(global, options, &progress);
    KVR_ASSIGN_OR_RETURN(report, Tune(*platform, settings, request));
  }
  if (global.json) {
    PrintJson(ToJson(report));
  } else {
    PrintTuneText(platform->catalog(), options.op, options.selections, options.variants, report);
  }
  bool selected = !report.selections.empty() && NonePassed(options.variants, report).empty();
  for (const TunedKey& key : report.selections) selected &= !key.variant.empty() && !key.refused;
  if (report.cancelled) return Interrupted();
  return ExitCode(global, platform->catalog(), !selected);
}

}  // namespace

void AddTune(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* sub = Subcommand(
      app, "tune",
      "Race the space and select a config per tuning key.\n\nAll configs that are right race; the "
      "best of the race then meets what is selected now (else the baseline) on fresh samples, and "
      "takes its place on a WIN only: faster beyond the noise band. Everything is kept in the "
      "ledger, and what was rejected there under the same sources, device, driver and compiler is "
      "not measured again.",
      "kvr tune mla_sparse_decode --axes num_tokens=64,topk=512 --budget 60s "
      "--selections selections.json");
  options->AddOp(sub);
  options->AddAxes(sub);
  options->AddVariants(sub);
  options->AddApproximate(sub);
  options->AddDevice(sub);
  AddSelections(sub, &options->selections);
  sub->add_option(
         "--key-policy", options->key_policy,
         "how axes become keys, as in topk:pow2; left out: what the variants of --variant bring, "
         "else the file's, else the operation's")
      ->type_name("POLICY");
  options->AddMeasuring(sub);
  sub->add_flag("--retest", options->retest, "measure what the ledger says was rejected here, too");
  options->AddLedger(sub);
  options->AddWorker(sub);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunTune(commands.global, *options); };
  });
}

}  // namespace kvr::cli
