// SPDX-License-Identifier: Apache-2.0
//
// Every variant of an operation at every shape that the benchmark knows, beside the roofline kernel
// of the same bytes:
//
//   kvr-kernels-bench mla_sparse_decode --tune --out results      OUT/mla_sparse_decode.json, .txt,
//                                                                 and a plot for each row of shapes
//   kvr-kernels-bench moe_decode --tune --model qwen3-30b-a3b --out results
//
// As deployed: graph replay, cold L2, inputs drawn for each round, all subjects of a shape by turns
// in one session (bench/kernels/meter.h).
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/bench.h"
#include "api/tune.h"
#include "bench/kernels/active.h"
#include "bench/kernels/entrants.h"
#include "bench/kernels/result.h"
#include "core/install_layout.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::bench {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string op, out = ".", device = "auto", only, model;
  std::vector<std::string> plugins;
  EntrantOptions entrants;
  int rounds = 40, input_sets = 2;
  uint64_t seed = 0;
  bool quick = false, append = false, json = false;
};

// Seeds, and how many experts each entrant activates on them.
struct Draw {
  std::vector<uint64_t> seeds;
  std::vector<double> active;
};

// Who is timed on an even seed reads all that its shape says: generators pad on odd ones only.
std::vector<uint64_t> EvenSeeds(uint64_t first, int count) {
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back((first + static_cast<uint64_t>(i)) * 2);
  return seeds;
}

absl::StatusOr<Draw> DrawInputs(const Suite& suite, const Operation& op, const Axes& axes,
                                const std::vector<Entrant>& entrants, uint64_t first, int sets) {
  if (suite.roofline == Roofline::kGather) return Draw{EvenSeeds(first, sets), {}};
  constexpr int kDraws = 33;
  KVR_ASSIGN_OR_RETURN(const TypicalSeeds typical,
                       FindTypicalSeeds(first, sets, kDraws, [&](uint64_t seed) {
                         return ActiveExperts(op, axes, seed, nullptr);
                       }));
  Draw draw{typical.seeds, {}};
  for (const Entrant& entrant : entrants) {
    double sum = 0;
    for (const uint64_t seed : draw.seeds) {
      KVR_ASSIGN_OR_RETURN(const std::optional<int64_t> active,
                           ActiveExperts(op, axes, seed, &entrant.configs.front()));
      sum += static_cast<double>(active.value_or(0));
    }
    draw.active.push_back(sum / static_cast<double>(draw.seeds.size()));
  }
  return draw;
}

// The roofline kernels of a shape, and which of them is each entrant's.
absl::Status AddRooflines(const Suite& suite, const Catalog& catalog, const Draw& draw,
                          ShapeRecord* record, ShapeJob* job) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog.FindOp(RooflineOp(suite.roofline)));
  std::map<int64_t, int> of_blocks;
  for (size_t i = 0; i < job->entrants.size(); ++i) {
    const int64_t blocks = draw.active.empty() ? 0 : std::llround(draw.active[i]);
    const auto [found, added] = of_blocks.emplace(blocks, static_cast<int>(job->rooflines.size()));
    record->roofline.push_back(found->second);
    if (!added) continue;
    RooflineJob roofline{op, {}, record->seeds};
    if (suite.roofline == Roofline::kGather) {
      KVR_ASSIGN_OR_RETURN(roofline.axes, GatherAxes(suite.op, record->axes));
    } else {
      KVR_ASSIGN_OR_RETURN(roofline.axes, StreamAxes(record->axes, blocks));
      roofline.seeds.resize(1);  // what is streamed does not matter
    }
    KVR_ASSIGN_OR_RETURN(const AxisVector all, ResolveAxes(op->spec(), roofline.axes));
    roofline.axes = NamedAxes(op->spec(), all);
    job->rooflines.push_back(std::move(roofline));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShapeRecord> MeasureShape(const Options& options, const Suite& suite,
                                         const Catalog& catalog, const EntrantList& list,
                                         const KernelShape& shape, uint64_t first, Meter& meter) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog.FindOp(suite.op));
  KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(op->spec(), shape.axes));
  ShapeRecord record;
  record.shape = shape;
  record.axes = NamedAxes(op->spec(), axes);
  KVR_ASSIGN_OR_RETURN(EntrantList::AtShape at, list.At(record.axes));
  KVR_ASSIGN_OR_RETURN(const Draw draw, DrawInputs(suite, *op->operation, record.axes, at.entrants,
                                                   first, options.input_sets));
  record.seeds = draw.seeds;
  record.active = draw.active;
  record.entrants = at.entrants;
  ShapeJob job{op, record.axes, record.seeds, std::move(at.entrants), std::max(at.selected, 0), {}};
  KVR_RETURN_IF_ERROR(AddRooflines(suite, catalog, draw, &record, &job));
  KVR_ASSIGN_OR_RETURN(record.result, meter.Measure(job));
  record.selected = record.result.winner >= 0 ? record.result.winner : at.selected;
  return record;
}

absl::Status WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, StrCat("cannot write ", path.string()),
               "give --out a directory that can be written");
}

absl::Status WriteAll(const Options& options, Json document) {
  const fs::path out(options.out);
  std::error_code ignored;
  fs::create_directories(out, ignored);
  const fs::path json = out / (options.op + ".json");
  if (std::ifstream stored(json); options.append && stored.is_open()) {
    const Json before = Json::parse(stored, nullptr, /*allow_exceptions=*/false);
    if (before.is_discarded() || !before.is_object()) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat(json.string(), " is no document of this program"),
                   "write to another directory, or leave --append out");
    }
    KVR_ASSIGN_OR_RETURN(document, Merged(before, std::move(document)));
  }
  KVR_RETURN_IF_ERROR(WriteFile(json, document.dump(1) + "\n"));
  KVR_RETURN_IF_ERROR(
      WriteFile(out / (options.op + ".txt"), ShapeTable(document) + "\n" + RowTable(document)));
  for (const Plot& plot : PlotsOf(document)) {
    KVR_RETURN_IF_ERROR(WriteFile(out / (plot.name + ".svg"), plot.svg));
  }
  std::cout << (options.json ? document.dump(1) + "\n" : ShapeTable(document));
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  KVR_ASSIGN_OR_RETURN(Suite suite, SuiteOf(options.op, options.quick));
  KVR_ASSIGN_OR_RETURN(const Axes only, options.only.empty() ? absl::StatusOr<Axes>(Axes())
                                                             : ParseAxes(options.only));
  KVR_ASSIGN_OR_RETURN(suite, Restricted(std::move(suite), only, options.model));
  TuneSettings settings;
  settings.device = options.device;
  settings.plugin_roots = options.plugins;
  settings.plugin_roots.push_back(InstallPath("lib/kvr/rooflines"));
  KVR_ASSIGN_OR_RETURN(
      const std::unique_ptr<Platform> platform,
      Platform::Open({.plugin_roots = settings.plugin_roots, .check_plugin = TryPlugin}));
  const Catalog& catalog = platform->catalog();
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog.FindOp(suite.op));
  const Workbench bench = MakeBench(*platform, settings);
  Meter::Options meter_options;
  meter_options.rounds = options.rounds;
  meter_options.race.final_rounds = 20;  // it chooses; how fast the chosen one is, is measured anew
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Meter> meter, Meter::Start(bench, meter_options));
  KVR_ASSIGN_OR_RETURN(const EntrantList list,
                       EntrantList::Create(catalog, *op, meter->device(), options.entrants));

  const absl::Time start = absl::Now();
  const uint64_t first = options.seed != 0 ? options.seed : std::random_device{}();
  Json rows = Json::array(), left_out = Json::array();
  SessionInfo session;
  absl::Status refused;
  for (size_t i = 0; i < suite.shapes.size(); ++i) {
    const KernelShape& shape = suite.shapes[i];
    std::cerr << absl::StrFormat("%5.0f s  %d/%d  %s %s\n",
                                 absl::ToDoubleSeconds(absl::Now() - start), i + 1,
                                 suite.shapes.size(), shape.model, AxesText(shape.axes));
    absl::StatusOr<ShapeRecord> record =
        MeasureShape(options, suite, catalog, list, shape, first, *meter);
    if (!record.ok()) {  // the other shapes are worth having
      std::cerr << "        " << What(record.status()) << "\n";
      refused = record.status();
      continue;
    }
    for (Json& row : RowsOf(suite, *record)) rows.push_back(std::move(row));
    for (Json& each : LeftOutOf(*record)) left_out.push_back(std::move(each));
    session = record->result.session;
  }
  if (rows.empty()) return refused;
  KVR_RETURN_IF_ERROR(WriteAll(
      options, {{"op", suite.op},
                {"environment",
                 EnvironmentOf(meter->device(), platform->jit().Identity(meter->device().target),
                               session, absl::FormatTime("%Y-%m-%d", start, absl::UTCTimeZone()))},
                {"rows", std::move(rows)},
                {"left_out", std::move(left_out)}}));
  std::cerr << absl::StrFormat("%5.0f s\n", absl::ToDoubleSeconds(absl::Now() - start));
  return refused;
}

}  // namespace
}  // namespace kvr::bench

int main(int argc, char** argv) {
  kvr::bench::Options options;
  CLI::App app("Every variant of an operation beside the roofline kernel of the same bytes");
  app.add_option("op", options.op, kvr::StrJoin(kvr::bench::SuiteOps(), ", "))->required();
  app.add_option("--out", options.out, "directory of what is written")->capture_default_str();
  app.add_option("--device", options.device, "as kvr takes it")->capture_default_str();
  app.add_option("--plugins", options.plugins, "further variants");
  app.add_option("--variant", options.entrants.variants, "all exact ones when left out");
  app.add_option("--approximate", options.entrants.approximate,
                 "VARIANT{QUALITY=N,...}: measure it, too; may be repeated");
  CLI::Option* tune = app.add_flag("--tune", options.entrants.race,
                                   "at each shape the tuner's race picks every variant's config");
  app.add_option("--selections", options.entrants.selection_files,
                 "files of kvr tune that say the configs; default configs for the rest")
      ->excludes(tune);
  app.add_option("--only", options.only, "shapes with these axes, as in topk=512,num_tokens=16");
  app.add_option("--model", options.model, "shapes of this model");
  app.add_option("--rounds", options.rounds)->check(CLI::Range(4, 100000))->capture_default_str();
  app.add_option("--input-sets", options.input_sets)
      ->check(CLI::Range(2, 16))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the inputs; drawn anew when left out");
  app.add_flag("--quick", options.quick, "tiny shapes, to see that it works");
  app.add_flag("--append", options.append, "keep the other shapes of the file in --out");
  app.add_flag("--json", options.json, "print the document instead of the table");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = kvr::bench::Run(options);
  if (status.ok()) return 0;
  std::cerr << "kvr-kernels-bench: " << kvr::What(status);
  if (!kvr::Fix(status).empty()) std::cerr << "; " << kvr::Fix(status);
  std::cerr << "\n";
  return 1;
}
