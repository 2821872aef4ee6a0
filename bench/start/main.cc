// SPDX-License-Identifier: Apache-2.0
//
// From the start of a process until every built-in variant can be launched, in fresh processes,
// beside what the driver and NVRTC alone take for the same binaries in the same run:
//
//   kvr-start-bench [--device cuda|host] [--rounds 3] [--budget 600] [--out DIR]
//   kvr-start-bench --target sm_90a                    without a device: compiling alone
//
//   cold start      Runtime::Open, Load of each operation on a thread of its own, one launch of
//                   each variant; an empty cache
//   warm start      the same, everything in the cache
//   boot            the same without compilers: from selection file and cache alone
//   compile, N      the set on N threads, once the compiler is there; an empty cache
//   hit             a binary from disk beside reading its file; a build that the process holds
//
// "Launchable" is: admitted, compiled or from the cache, loaded, its functions there, launched once
// and done (bench/start/set.h says what the set is, bench/start/child.h what is stamped). A round
// has every row, a quick one three times, one that takes long in the first alone; after each,
// DIR/start.json and DIR/start.txt are written, and none begins that the budget would not hold.
// Files lie in the page cache.
//
// Exit codes: 0 done, 1 a process failed, 2 the command line is wrong.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/start/answer.h"
#include "bench/start/child.h"
#include "core/install_layout.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::bench {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string device, target, out;
  std::vector<int> threads = {1, 4, 16};
  int rounds = 3;
  double budget_s = 600;
};

struct Row {
  std::string name;
  std::string mode;  // of the child
  int threads = 1;
  bool cold = false;       // an empty cache
  std::string from, to;    // what the row's time is: between two stamps; from: empty, process start
  std::string beside;      // the row that it is held against; empty: it is such a row
  std::vector<Json> runs;  // what the children said
  absl::Duration took;     // all of them

  std::vector<double> Ms(const std::string& stamp) const {
    std::vector<double> ms;
    for (const Json& run : runs) {
      const Json& stamps = run["stamps"];
      if (stamps.contains(stamp)) {
        ms.push_back(stamps[stamp].get<double>() - (from.empty() ? 0 : stamps[from].get<double>()));
      }
    }
    return ms;
  }
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::vector<Row> RowsFor(const StartSet& set, const std::vector<int>& threads) {
  std::vector<Row> rows;
  const bool gpu = set.target.starts_with("sm_");
  const bool launches = !set.device.empty();
  const int most = *std::max_element(threads.begin(), threads.end());
  const auto nvrtc = [](int n) {
    return StrCat("NVRTC alone, ", n, n == 1 ? " thread" : " threads");
  };
  if (launches) {
    const std::string driver = gpu ? "the driver alone" : "";
    rows.push_back({"cold start", "kvr", 1, true, "", "launched", gpu ? nvrtc(most) : "", {}});
    rows.push_back({"warm start", "kvr", 1, false, "", "launched", driver, {}});
    rows.push_back({"boot", "prebuilt", 1, false, "", "launched", driver, {}});
    if (gpu) rows.push_back({driver, "cubins", 1, false, "", "loaded", "", {}});
  }
  for (const int n : threads) {
    const std::string name = StrCat("compile, ", n, n == 1 ? " thread" : " threads");
    rows.push_back({name, "compile", n, true, "opened", "built", gpu ? nvrtc(n) : "", {}});
    if (gpu) rows.push_back({nvrtc(n), "nvrtc", n, true, "opened", "built", "", {}});
  }
  return rows;
}

// Runs this program as a child and gives what it printed.
absl::StatusOr<Json> Spawn(const std::string& mode, const StartSet& set, const std::string& cache,
                           int threads) {
  int pipes[2];
  if (pipe(pipes) != 0) return absl::InternalError("no pipe");
  std::vector<std::string> words = {OwnPath(),       "--child", mode,           "--set",
                                    set.directory,   "--cache", cache,          "--child-threads",
                                    StrCat(threads), "--start", StrCat(NowNs())};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], STDOUT_FILENO);
    close(pipes[0]);
    close(pipes[1]);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(pipes[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(pipes[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(n));
  }
  close(pipes[0]);
  int ended = 0;
  if (child < 0 || waitpid(child, &ended, 0) != child) {
    return absl::InternalError(StrCat("the process '", mode, "' cannot be run"));
  }
  KVR_RETURN_IF_ERROR(CheckEnd(mode, ended, said));
  if (mode == "prepare") return Json();
  return ParseAnswer(mode, StampsOf(mode, !set.device.empty()), said);
}

// --- What is written.

std::string FirstLineWith(const std::string& path, std::string_view begin) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (std::string_view(line).starts_with(begin)) {
      return std::string(Trim(std::string_view(line).substr(line.find(':') + 1)));
    }
  return "";
}

Json EnvironmentOf(const Json& set) {
  return {{"device", set["name"]},
          {"driver", set["driver"]},
          {"target", set["target"]},
          {"compiler", set["compiler"]},
          {"cpu", FirstLineWith("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"date", absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone())}};
}

Json DocumentOf(const Json& set, const std::vector<Row>& rows, const Json& hits) {
  Json listed = Json::array();
  for (const Row& row : rows) {
    const std::vector<double> ms = row.Ms(row.to);
    Json stamps;
    for (const auto& stamp : row.runs.front()["stamps"].items()) {
      std::vector<double> values;
      for (const Json& run : row.runs) values.push_back(run["stamps"][stamp.key()]);
      stamps[stamp.key()] = Median(values);
    }
    listed.push_back({{"row", row.name},
                      {"threads", row.threads},
                      {"cold", row.cold},
                      {"from", row.from.empty() ? "process start" : row.from},
                      {"to", row.to},
                      {"n", ms.size()},
                      {"ms", Median(ms)},
                      {"low", *std::min_element(ms.begin(), ms.end())},
                      {"high", *std::max_element(ms.begin(), ms.end())},
                      {"beside", row.beside},
                      {"stamps", stamps},
                      {"runs", row.runs}});
  }
  Json cached = Json::array();
  for (const Json& hit : hits) {
    Json row = hit;
    for (const char* field : {"disk_us", "read_us", "held_us"}) {
      row[field] = Median(hit[field].get<std::vector<double>>());
    }
    cached.push_back(std::move(row));
  }
  return {{"environment", EnvironmentOf(set)},
          {"set", set["variants"]},
          {"rows", listed},
          {"hits", cached}};
}

// The row's own time; then the stamp that it shares with the row beside it, and their ratio.
std::string TableOf(const std::vector<Row>& rows, const Json& hits) {
  std::string text = absl::StrFormat("%-19s %2s %8s  %-15s %9s  %-25s %8s %6s\n", "path", "n", "ms",
                                     "min … max", "to loaded", "beside it", "ms", "ratio");
  for (const Row& row : rows) {
    if (row.beside.empty() && row.mode != "kvr" && row.mode != "prebuilt" &&
        row.mode != "compile") {
      continue;
    }
    const std::vector<double> ms = row.Ms(row.to);
    const std::string shared = row.to == "launched" ? "loaded" : row.to;
    text += absl::StrFormat(
        "%-19s %2d %8.1f  %-15s %9s", row.name, ms.size(), Median(ms),
        absl::StrFormat("%.1f … %.1f", *std::min_element(ms.begin(), ms.end()),
                        *std::max_element(ms.begin(), ms.end())),
        row.to == "launched" ? absl::StrFormat("%.1f", Median(row.Ms(shared))) : "");
    for (const Row& other : rows) {
      if (other.name != row.beside) continue;
      // Both from where the row itself begins.
      Row same = other;
      same.from = row.from;
      const double beside = Median(same.Ms(shared));
      text += absl::StrFormat("  %-25s %8.1f %6.2f", other.name, beside,
                              Median(row.Ms(shared)) / beside);
    }
    text += "\n";
  }
  if (hits.empty()) return text;
  const auto over_all = [&](const char* field) {
    std::vector<double> medians;
    for (const Json& hit : hits) medians.push_back(Median(hit[field].get<std::vector<double>>()));
    return Median(medians);
  };
  std::vector<double> bytes;
  for (const Json& hit : hits) bytes.push_back(hit["bytes"]);
  return text + absl::StrFormat(
                    "\nhit: a binary of %.1f KiB (median of %d) from disk, its checksum verified: "
                    "%.1f us;\nreading its file alone: %.1f us; a build that the process holds: "
                    "%.1f us\n",
                    Median(bytes) / 1024, hits.size(), over_all("disk_us"), over_all("read_us"),
                    over_all("held_us"));
}

absl::Status WriteAll(const Options& options, const Json& document, const std::string& table) {
  if (options.out.empty()) return absl::OkStatus();
  std::error_code failed;
  fs::create_directories(options.out, failed);
  std::ofstream json(options.out + "/start.json"), text(options.out + "/start.txt");
  json << document.dump(1) << "\n";
  text << table;
  json.close();
  text.close();
  if (json.good() && text.good()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, StrCat("cannot write below ", options.out),
               "give --out a directory that can be written");
}

// Of a row within a round: so many processes, as long as none begins after so much time. And no
// round repeats a row that has taken so long altogether.
constexpr int kPerRound = 3;
constexpr absl::Duration kRowTime = absl::Seconds(3), kRowMost = absl::Seconds(8);

absl::Status Measure(const Options& options, const std::string& directory) {
  const absl::Time begin = absl::Now();
  KVR_RETURN_IF_ERROR(WriteAll(options, Json::object(), ""));  // a bad --out is told at once
  // In a process of its own, too: no context of this one keeps the device awake.
  const StartSet wanted{.directory = directory, .device = options.device, .target = options.target};
  KVR_RETURN_IF_ERROR(
      Spawn("prepare", wanted, StrCat(options.device, "/", options.target), 1).status());
  KVR_ASSIGN_OR_RETURN(const StartSet set, ReadStartSet(directory));
  KVR_ASSIGN_OR_RETURN(const std::string text, ReadWhole(directory + "/set.json"));
  const Json described = Json::parse(text);
  KVR_ASSIGN_OR_RETURN(const Json hit, Spawn("hit", set, set.CachePath(), 1));
  const Json& hits = hit["hits"];

  std::vector<Row> rows = RowsFor(set, options.threads);
  std::string table;
  for (int round = 0; round < options.rounds; ++round) {
    const absl::Time start = absl::Now();
    for (Row& row : rows) {
      const absl::Time row_start = absl::Now();
      for (int again = 0; again < kPerRound; ++again) {
        if (again > 0 && absl::Now() - row_start > kRowTime) break;
        if (!row.runs.empty() && row.took > kRowMost) break;
        const absl::Time run_start = absl::Now();
        const std::string empty = directory + "/cold";
        fs::remove_all(empty);
        KVR_ASSIGN_OR_RETURN(Json run,
                             Spawn(row.mode, set, row.cold ? empty : set.CachePath(), row.threads));
        row.runs.push_back(std::move(run));
        row.took += absl::Now() - run_start;
      }
    }
    table = TableOf(rows, hits);
    KVR_RETURN_IF_ERROR(WriteAll(options, DocumentOf(described, rows, hits), table));
    const absl::Duration took = absl::Now() - start;
    std::cerr << absl::StrFormat("round %d of %d: %.0f s\n", round + 1, options.rounds,
                                 absl::ToDoubleSeconds(took));
    if (absl::Now() - begin + took > absl::Seconds(options.budget_s)) break;
  }
  std::cout << table;
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  std::string directory = (fs::temp_directory_path() / "kvr-start-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, StrCat("cannot make ", directory),
                 "let TMPDIR name a directory that can be written");
  }
  const absl::Status status = Measure(options, directory);
  std::error_code ignored;
  fs::remove_all(directory, ignored);
  return status;
}

// "DEVICE/TARGET", as Measure packs them.
absl::Status Prepare(const ChildJob& job) {
  const size_t slash = job.cache.find('/');
  return MakeStartSet(job.directory, job.cache.substr(0, slash), job.cache.substr(slash + 1));
}

absl::Status RunAsChild(const ChildJob& job) {
  if (job.mode == "prepare") return Prepare(job);
  KVR_ASSIGN_OR_RETURN(const Json result, RunChild(job));
  std::cout << result.dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace kvr::bench

int main(int argc, char** argv) {
  kvr::bench::ChildJob child{.main_ns = kvr::bench::NowNs()};
  kvr::bench::Options options;
  CLI::App app("From the start of a process until every built-in variant can be launched");
  CLI::Option* device =
      app.add_option("--device", options.device, "as kvr takes it; auto when left out");
  app.add_option("--target", options.target, "no device: compile for this target")
      ->excludes(device);
  app.add_option("--threads", options.threads, "to compile on")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--budget", options.budget_s, "seconds; no round begins that would exceed them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--out", options.out, "directory of start.json and start.txt");
  app.add_option("--child", child.mode)->group("");
  app.add_option("--set", child.directory)->group("");
  app.add_option("--cache", child.cache)->group("");
  app.add_option("--child-threads", child.threads)->group("");
  app.add_option("--start", child.start_ns)->group("");
  absl::Status status;
  try {
    app.parse(argc, argv);
    if (options.device.empty() && options.target.empty()) options.device = "auto";
    std::sort(options.threads.begin(), options.threads.end());  // a row each
    options.threads.erase(std::unique(options.threads.begin(), options.threads.end()),
                          options.threads.end());
    status = child.mode.empty() ? kvr::bench::Run(options) : kvr::bench::RunAsChild(child);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    status = kvr::Error(absl::StatusCode::kInvalidArgument, error.what(), "see --help");
  } catch (const std::exception& error) {  // a file of the set that is not as it was written
    status = kvr::Error(absl::StatusCode::kInternal, error.what(), "run the bench anew");
  }
  if (status.ok()) return 0;
  std::cerr << "kvr-start-bench: " << kvr::What(status);
  if (!kvr::Fix(status).empty()) std::cerr << "; " << kvr::Fix(status);
  std::cerr << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
