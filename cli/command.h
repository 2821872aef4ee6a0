// SPDX-License-Identifier: Apache-2.0
//
// What every subcommand shares: its options' types, how it reports, and its exit codes.
//
//   0  done
//   1  it ran, and something is wrong: a variant failed, a component is missing, what --plugins
//      names was refused
//   2  the command line or an input file is wrong; nothing was done
//   3  no difference             kvr ab and kvr noise: the answer itself; 0 is a win, and for
//   4  the challenger loses      kvr noise, measured
//   5  the samples do not tell
//   6  the samples must not be read, or a contestant does not work
//   130  interrupted (SIGINT, SIGTERM); what was finished is reported
//
// A subcommand is one file with one function, AddX(app, commands), which declares its options and
// registers what to run. Human output goes to stdout as tables, progress and errors to stderr;
// with --json stdout is one JSON document and nothing else.
//
// Threading: the CLI's own thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/platform.h"
#include "core/device_info.h"
#include "tuner/space.h"

namespace kvr::cli {

using Json = nlohmann::ordered_json;

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongInput = 2;
inline constexpr int kNoDifference = 3;
inline constexpr int kLoss = 4;
inline constexpr int kInconclusive = 5;
inline constexpr int kInvalid = 6;
inline constexpr int kInterrupted = 130;

// Options that every subcommand takes.
struct GlobalOptions {
  bool json = false;
  std::vector<std::string> plugins;  // --plugins, repeatable
};

// Options of the subcommands that work on an op.
struct OpOptions {
  std::string op;
  std::vector<std::string> axes;         // --axes, repeatable: one shape each
  std::vector<std::string> variants;     // --variant, repeatable; empty: all
  std::vector<std::string> pins;         // --set
  std::vector<std::string> approximate;  // --approximate, repeatable
  std::string device = "auto";
  std::string profile;
  std::string targets;
  bool all = false;
  int64_t memory_mib = 0;  // 0: what there is
  double timeout_s = 0;    // 0: TuneSettings' own
  std::string ledger;      // as TuneSettings takes it
  std::string mode;        // "graph,cold"; empty: that
  std::string budget;      // "60s"; empty: as long as it takes

  // Each takes the options it needs.
  void AddOp(CLI::App* app);
  void AddAxes(CLI::App* app);
  void AddVariants(CLI::App* app);
  void AddApproximate(CLI::App* app);
  void AddDevice(CLI::App* app);
  void AddProfile(CLI::App* app);
  void AddTargets(CLI::App* app);
  void AddAll(CLI::App* app);
  void AddWorker(CLI::App* app);  // --memory, --timeout
  void AddLedger(CLI::App* app);
  void AddMeasuring(CLI::App* app);  // --mode, --budget
};

// The subcommand that the command line chose; set by CLI11's callback.
struct Commands {
  GlobalOptions global;
  std::function<absl::StatusOr<int>()> run;
};

void AddDoctor(CLI::App& app, Commands& commands);
void AddList(CLI::App& app, Commands& commands);
void AddCompile(CLI::App& app, Commands& commands);
void AddVerify(CLI::App& app, Commands& commands);
void AddTune(CLI::App& app, Commands& commands);
void AddAb(CLI::App& app, Commands& commands);
void AddBench(CLI::App& app, Commands& commands);
void AddNoise(CLI::App& app, Commands& commands);
void AddRun(CLI::App& app, Commands& commands);
void AddExplain(CLI::App& app, Commands& commands);
void AddCache(CLI::App& app, Commands& commands);
void AddConfig(CLI::App& app, Commands& commands);
void AddReport(CLI::App& app, Commands& commands);
void AddLedgerCommand(CLI::App& app, Commands& commands);
void AddWhy(CLI::App& app, Commands& commands);
void AddSelectionsCommand(CLI::App& app, Commands& commands);
void AddStatus(CLI::App& app, Commands& commands);
void AddSwap(CLI::App& app, Commands& commands);
void AddRollback(CLI::App& app, Commands& commands);

// A subcommand `name` with a description, an example and its exit codes under its --help. `codes`:
// those of a command that has others than 0 and 1 for what it found.
CLI::App* Subcommand(CLI::App& app, const std::string& name, const std::string& description,
                     const std::string& example, const std::string& codes = "0 done");

// Names what was refused, with the fix, on stderr.
void NameRefused(const Catalog& catalog);
// The exit code of a command that did its work: kFailed if that `failed`, or if something below a
// root that --plugins names was refused. What KVR_PLUGIN_PATH brings is only warned of.
int ExitCode(const GlobalOptions& global, const Catalog& catalog, bool failed);

// Plugins that were refused are named on stderr, but for a command whose output has them.
absl::StatusOr<std::unique_ptr<Platform>> OpenPlatform(const GlobalOptions& global,
                                                       bool name_refused = true);

// The op's variants that --variant names, all of them if none is named.
absl::StatusOr<std::vector<VariantPtr>> ChosenVariants(const Catalog& catalog,
                                                       const OpOptions& options);
// One AxisVector for each shape of each --axes; the op's defaults if none is given.
absl::StatusOr<std::vector<AxisVector>> ChosenShapes(const OpSpec& op, const OpOptions& options);

Json ConfigJson(const Config& config);
Json AxesJson(const Axes& axes);
Json BytesJson(int64_t bytes);  // null for what is below 0: not known
Json ErrorJson(const absl::Status& status);

// What other people's files and ledgers say, without what would steer a terminal.
std::string Shown(std::string_view text);
void Print(std::string_view text);  // stdout, shown
// Did all of stdout arrive? A full disk must not look like success.
absl::Status FlushOutput();
void PrintJson(const Json& json);
// "kvr: WHAT" and "  FIX" on stderr; as JSON on stdout when asked. Gives the exit code.
int PrintError(const absl::Status& status, bool json);

}  // namespace kvr::cli
