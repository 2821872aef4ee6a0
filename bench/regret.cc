// SPDX-License-Identifier: Apache-2.0
//
// What racing costs: kvr tune picks a config of an op's space, then every config is measured long,
// interleaved, in several fresh processes. Regret is how much slower the picked one is than the
// fastest by that exhaustive measurement, whose own uncertainty is stated beside it.
//
// With --ledger both are recorded, and `kvr report` tells the regret.
//
//   kvr-regret-bench OP --axes num_tokens=64 [--plugins DIR] [--variant NAME] [--ledger DIR] >
//   regret.json
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "api/bench.h"
#include "api/tune.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/work.h"
#include "tuner/worker/client.h"
#include "tuner/worker/sentinel.h"

namespace kvr {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string device = "auto";
  std::vector<std::string> plugins;
  TuneRequest request;
  std::string axes;
  std::string ledger = "none";
  int sessions = 5, rounds = 40;
};

struct Measured {
  Candidate candidate;
  std::vector<double> session_medians;
  double median_us() const { return Median(session_medians); }
};

// Every config that passed and was not left out, in `sessions` fresh processes.
absl::StatusOr<std::vector<Measured>> MeasureAll(Platform& platform, const TuneSettings& settings,
                                                 const TuneReport& tuned, const Options& options) {
  RecordingBench recording(platform, settings);
  const Workbench& bench = recording.workbench;
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform.catalog().FindOp(options.request.op));
  std::vector<Measured> all;
  std::vector<Candidate> candidates;
  for (const Trial& trial : tuned.trials) {
    if (trial.status != TrialStatus::kPassed ||
        trial.axes != tuned.selections.front().shapes.front()) {
      continue;
    }
    KVR_ASSIGN_OR_RETURN(const VariantPtr variant,
                         platform.catalog().Find(options.request.op, trial.variant));
    candidates.push_back({variant, trial.config});
    all.push_back({candidates.back(), {}});
  }
  if (bench.journal != nullptr) {
    bench.journal->SetEnvironment(
        EnvironmentOf(tuned.device, platform.jit().Identity(tuned.device.target)));
  }
  PhaseProgress progress(nullptr, Phase::kCompile, 0);
  const std::vector<absl::StatusOr<Built>> built =
      BuildAll(bench, op->spec(), candidates, tuned.device.target, progress);
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<BinaryFiles> files, BinaryFiles::Create());
  std::vector<WorkItem> items;
  for (size_t i = 0; i < candidates.size(); ++i) {
    KVR_RETURN_IF_ERROR(built[i].status());
    KVR_ASSIGN_OR_RETURN(std::string path, files->Add(*built[i]->binary));
    items.push_back(ItemOf(candidates[i], std::move(path)));
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerClient> worker,
                       WorkerClient::Start(bench.worker));
  SessionOptions session_options;
  KVR_ASSIGN_OR_RETURN(const BinaryPtr sentinel,
                       BuildSentinel(platform.jit(), tuned.device.target));
  KVR_ASSIGN_OR_RETURN(session_options.sentinel_path, files->Add(*sentinel));
  const WorkShape shape{options.request.op, tuned.selections.front().shapes.front(), {1, 2}};
  std::vector<int> everyone(items.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  for (int session = 0; session < options.sessions; ++session) {
    KVR_RETURN_IF_ERROR(worker->Restart());
    KVR_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerSampler> sampler,
                         WorkerSampler::Open(*worker, shape, items, session_options));
    if (bench.journal != nullptr) bench.journal->BeginSession();
    KVR_ASSIGN_OR_RETURN(const SampleTable table, sampler->Sample(everyone, options.rounds));
    for (size_t i = 0; i < all.size(); ++i) {
      ledger::Trial trial =
          TrialOf(candidates[i], built[i], shape.axes, session_options.mode, "exhaustive");
      trial.samples = Column(table, static_cast<int>(i));
      trial.median_us = Median(trial.samples);
      trial.spread = RelativeSpread(trial.samples);
      trial.clock_mhz = sampler->info().clock_mhz;
      all[i].session_medians.push_back(trial.median_us);
      if (bench.journal != nullptr) bench.journal->Add(std::move(trial));
    }
  }
  return all;
}

absl::StatusOr<Json> Run(Options& options) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Platform> platform,
                       Platform::Open({.plugin_roots = options.plugins}));
  TuneSettings settings;
  settings.device = options.device;
  settings.plugin_roots = options.plugins;
  settings.ledger_directory = options.ledger;
  options.request.publish = false;
  options.request.retest = true;
  const auto begin = std::chrono::steady_clock::now();
  KVR_ASSIGN_OR_RETURN(const TuneReport tuned, Tune(*platform, settings, options.request));
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  if (tuned.selections.size() != 1 || tuned.selections.front().variant.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "nothing was selected, or several keys were",
                 "name one shape of an operation that has variants for this device");
  }
  const TunedKey& selected = tuned.selections.front();
  KVR_ASSIGN_OR_RETURN(std::vector<Measured> all, MeasureAll(*platform, settings, tuned, options));
  std::sort(all.begin(), all.end(),
            [](const Measured& a, const Measured& b) { return a.median_us() < b.median_us(); });
  Json configs = Json::array();
  double picked_us = 0;
  for (const Measured& measured : all) {
    const bool picked = measured.candidate.variant->name == selected.variant &&
                        measured.candidate.config == selected.config;
    if (picked) picked_us = measured.median_us();
    configs.push_back({{"variant", measured.candidate.variant->name},
                       {"config", ConfigText(measured.candidate.config)},
                       {"median_us", measured.median_us()},
                       {"session_medians_us", measured.session_medians},
                       {"picked", picked}});
  }
  return Json{{"device", tuned.device.name},
              {"driver", tuned.device.driver},
              {"op", options.request.op},
              {"axes", AxesText(selected.shapes.front())},
              {"configs_raced", selected.tried},
              {"tune_seconds", wall.count()},
              {"exhaustive_sessions", options.sessions},
              {"exhaustive_rounds", options.rounds},
              {"picked_us", picked_us},
              {"fastest_us", all.front().median_us()},
              {"regret", picked_us / all.front().median_us() - 1},
              {"configs", std::move(configs)}};
}

}  // namespace
}  // namespace kvr

int main(int argc, char** argv) {
  kvr::Options options;
  CLI::App app("What racing costs against an exhaustive measurement");
  app.add_option("op", options.request.op)->required();
  app.add_option("--axes", options.axes)->required();
  app.add_option("--plugins", options.plugins);
  app.add_option("--variant", options.request.variants);
  app.add_option("--device", options.device);
  app.add_option("--ledger", options.ledger);
  app.add_option("--sessions", options.sessions);
  app.add_option("--rounds", options.rounds);
  CLI11_PARSE(app, argc, argv);
  const auto axes = kvr::ParseAxes(options.axes);
  const auto result = [&]() -> absl::StatusOr<kvr::Json> {
    KVR_RETURN_IF_ERROR(axes.status());
    options.request.shapes = {*axes};
    return kvr::Run(options);
  }();
  if (!result.ok()) {
    std::cerr << "kvr-regret-bench: " << result.status().message() << "\n";
    return 1;
  }
  std::cout << result->dump(1) << "\n";
  return 0;
}
