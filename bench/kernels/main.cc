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
// in one session (bench/kernels/meter.h). Files are written anew after each shape: who interrupts
// it keeps what was finished.
//
// Exit codes: 0 done, 1 a shape could not be measured, 2 the command line or an input is wrong.
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
  double budget_s = 0;  // 0: as long as it takes
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
  // A rank's share of a small batch may be no expert at all: that would time an empty launch.
  const auto active_of = [&](uint64_t seed) -> absl::StatusOr<std::optional<int64_t>> {
    KVR_ASSIGN_OR_RETURN(const std::optional<int64_t> active,
                         ActiveExperts(op, axes, seed, nullptr));
    return active == 0 ? std::nullopt : active;
  };
  KVR_ASSIGN_OR_RETURN(const TypicalSeeds typical,
                       FindTypicalSeeds(first, sets, kDraws, active_of));
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
      KVR_ASSIGN_OR_RETURN(roofline.axes, StreamAxes(suite.op, record->axes, blocks));
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
                                         const KernelShape& shape, uint64_t first,
                                         absl::Time build_until, const KeyShare& until,
                                         Meter& meter) {
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
  ShapeJob job{.op = op,
               .axes = record.axes,
               .seeds = record.seeds,
               .entrants = std::move(at.entrants),
               .twice = std::max(at.selected, 0),
               .rooflines = {},
               .build_until = build_until,
               .until = until};
  KVR_RETURN_IF_ERROR(AddRooflines(suite, catalog, draw, &record, &job));
  KVR_ASSIGN_OR_RETURN(record.result, meter.Measure(job));
  record.selected = record.result.winner >= 0 ? record.result.winner : at.selected;
  return record;
}

// Whole or not at all.
absl::Status WriteFile(const fs::path& path, const std::string& text) {
  const fs::path aside = StrCat(path.string(), ".new");
  std::ofstream file(aside);
  file << text;
  file.close();
  std::error_code failed;
  if (file.good()) fs::rename(aside, path, failed);
  if (file.good() && !failed) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, StrCat("cannot write ", path.string()),
               "give --out a directory that can be written");
}

// The document in --out to which shapes are added; null: there is none, or it is to be replaced.
absl::StatusOr<Json> Stored(const Options& options) {
  std::error_code failed;
  fs::create_directories(options.out, failed);
  if (failed) {
    return Error(absl::StatusCode::kInvalidArgument, StrCat("cannot make ", options.out),
                 "give --out a directory that can be written");
  }
  const fs::path path = fs::path(options.out) / (options.op + ".json");
  std::ifstream file(path);
  if (!options.append || !file.is_open()) return Json();
  Json stored = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (stored.is_object()) return stored;
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(path.string(), " is no document of this program"),
               "write to another directory, or leave --append out");
}

absl::Status WriteAll(const Options& options, const Json& document) {
  const fs::path out(options.out);
  KVR_RETURN_IF_ERROR(WriteFile(out / (options.op + ".json"), document.dump(1) + "\n"));
  KVR_RETURN_IF_ERROR(
      WriteFile(out / (options.op + ".txt"), ShapeTable(document) + "\n" + RowTable(document)));
  for (const Plot& plot : PlotsOf(document)) {
    KVR_RETURN_IF_ERROR(WriteFile(out / (plot.name + ".svg"), plot.svg));
  }
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

  std::vector<AxisVector> shapes;
  for (const KernelShape& shape : suite.shapes) {
    KVR_ASSIGN_OR_RETURN(shapes.emplace_back(), ResolveAxes(op->spec(), shape.axes));
  }
  KVR_RETURN_IF_ERROR(list.CheckStated(shapes));

  KVR_ASSIGN_OR_RETURN(const Json stored, Stored(options));
  const absl::Time start = absl::Now();
  const Budget budget(absl::Seconds(options.budget_s), start);
  const uint64_t first = options.seed != 0 ? options.seed : std::random_device{}();
  Json rows = Json::array(), left_out = Json::array(), document;
  absl::Status refused;
  for (size_t i = 0; i < suite.shapes.size(); ++i) {
    const KernelShape& shape = suite.shapes[i];
    std::cerr << absl::StrFormat("%5.0f s  %d/%d  %s %s\n",
                                 absl::ToDoubleSeconds(absl::Now() - start), i + 1,
                                 suite.shapes.size(), shape.model, AxesText(shape.axes));
    const KeyShare until = budget.ShareOf(static_cast<int>(suite.shapes.size() - i), absl::Now());
    absl::StatusOr<ShapeRecord> record = MeasureShape(options, suite, catalog, list, shape, first,
                                                      budget.build_until(), until, *meter);
    if (!record.ok()) {  // the other shapes are worth having
      std::cerr << "        " << What(record.status()) << "\n";
      refused = WithContext(StrCat("at ", AxesText(shape.axes)), record.status());
      continue;
    }
    for (const std::string& what : record->result.cut_short) {
      std::cerr << "        cut short: " << what << "\n";
    }
    for (Json& row : RowsOf(suite, *record)) rows.push_back(std::move(row));
    for (Json& each : LeftOutOf(*record)) left_out.push_back(std::move(each));
    document = {{"op", suite.op},
                {"environment",
                 EnvironmentOf(meter->device(), platform->jit().Identity(meter->device().target),
                               record->result.session,
                               absl::FormatTime("%Y-%m-%d", start, absl::UTCTimeZone()))},
                {"rows", rows},
                {"left_out", left_out}};
    if (!stored.is_null()) {
      KVR_ASSIGN_OR_RETURN(document, Merged(stored, std::move(document)));
    }
    KVR_RETURN_IF_ERROR(WriteAll(options, document));
  }
  if (document.is_null()) return refused;
  std::cout << (options.json ? document.dump(1) + "\n" : ShapeTable(document));
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
  app.add_option("--budget", options.budget_s,
                 "seconds for all shapes; what they are too few for is said of each row")
      ->check(CLI::PositiveNumber);
  app.add_option("--input-sets", options.input_sets)
      ->check(CLI::Range(2, 16))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the inputs; 0: drawn anew");
  app.add_flag("--quick", options.quick, "tiny shapes, to see that it works");
  app.add_flag("--append", options.append, "keep the other shapes of the file in --out");
  app.add_flag("--json", options.json, "print the document instead of the table");
  absl::Status status;
  try {
    app.parse(argc, argv);
    status = kvr::bench::Run(options);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    status = kvr::Error(absl::StatusCode::kInvalidArgument, error.what(), "see --help");
  }
  if (status.ok()) return 0;
  std::cerr << "kvr-kernels-bench: " << kvr::What(status);
  if (!kvr::Fix(status).empty()) std::cerr << "; " << kvr::Fix(status);
  std::cerr << "\n";
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? 2 : 1;
}
