// SPDX-License-Identifier: Apache-2.0
//
// kvr ledger ls | show | export | import: what was tried, measured and decided.
#include "cli/ledger.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/selections/placed.h"
#include "tuner/stats/summary.h"

namespace kvr::cli {

void AddLedger(CLI::App* app, std::string* directory) {
  app->add_option("--ledger", *directory,
                  "directory of the ledger, where everything that is measured is kept; none: keep "
                  "nothing")
      ->type_name("DIR");
}

absl::StatusOr<std::unique_ptr<ledger::Ledger>> OpenLedger(const std::string& directory,
                                                           const ledger::OpenOptions& options) {
  const std::string place = directory.empty() ? ledger::DefaultLedgerDirectory() : directory;
  if (place.empty() || place == "none") return std::unique_ptr<ledger::Ledger>();
  return ledger::Ledger::Open(place, options);
}

namespace {

using ledger::Band;
using ledger::Build;
using ledger::Publication;
using ledger::Summary;
using ledger::Trial;
using ledger::Verdict;

constexpr int kShortUid = 8;

struct LedgerCommand {
  std::string directory, op, variant, kind, uid, file;
  int limit = 10;
};

// The ledger that must be there.
absl::StatusOr<std::unique_ptr<ledger::Ledger>> OpenOrSay(const LedgerCommand& command,
                                                          std::string_view who, bool read_only) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<ledger::Ledger> ledger,
                       OpenLedger(command.directory, {.read_only = read_only}));
  if (ledger != nullptr) return ledger;
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(who, " needs a ledger: ",
                      command.directory.empty() ? "neither an option nor the environment names one"
                                                : "--ledger none names none"),
               "name its directory with --ledger");
}

template <class Record>
Json RecordJson(const Record& record, const ledger::Environment& where) {
  Json json = {{"table", Record::kTable}, {"uid", record.uid}};
  Record::Fields(record, [&](const char* name, const auto& value) { json[name] = value; });
  Json environment = {{"uid", where.uid}};
  ledger::Environment::Fields(
      where, [&](const char* name, const std::string& value) { environment[name] = value; });
  json["environment"] = std::move(environment);
  return json;
}

std::string Percent(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "?";
  return absl::StrFormat("%+.1f %%", 100 * std::expm1(log_ratio));
}

// A line of `ls`.
struct Line {
  std::string uid, kind, time, op, variant, config, suffix, at, result;
};

void Tell(const Trial& t, Line& line) {
  line.variant = t.variant;
  line.config = t.config;
  line.suffix = t.stage;
  line.result = t.status == "PASSED" && t.median_us > 0 ? Microseconds(t.median_us)
                : t.status == "PASSED"                  ? "passed"
                                                        : t.status;
  if (!t.outcome.empty()) StrAppend(&line.result, ", ", t.outcome);
}
void Tell(const Verdict& v, Line& line) {
  line.variant = v.challenger;
  line.config = v.challenger_config;
  line.suffix = StrCat("against ", v.incumbent);
  line.result = StrCat(v.kind, " ", v.verdict, " ", Percent(v.difference));
}
void Tell(const Band& b, Line& line) {
  line.variant = "noise";
  line.suffix = b.mode;
  line.result = absl::StrFormat("%.2f %%", 100 * b.band);
}
void Tell(const Publication& p, Line& line) {
  line.variant = p.variant;
  line.config = p.config;
  line.result = StrCat(p.trigger, ": ", p.outcome);
}
void Tell(const Build& b, Line& line) {
  line.variant = b.variant;
  line.config = b.config;
  line.result = b.status;
}
void Tell(const Summary& s, Line& line) {
  line.variant = s.challenger;
  line.config = s.challenger_config;
  line.suffix = StrCat("against ", s.incumbent);
  line.result =
      StrCat("table: ", stats::VerdictName(stats::JudgeSummary(s.percents, s.band_percent)));
}

// Of texts "a=1,b=2", the pairs whose name does not have that value wherever it has one.
class Differing {
 public:
  void Add(const std::string& text) {
    for (const std::string_view pair : Split(text, ',')) values_[NameOf(pair)].emplace(pair);
  }
  std::string operator()(const std::string& text) const {
    std::string shown;
    for (const std::string_view pair : Split(text, ',')) {
      if (values_.at(NameOf(pair)).size() > 1) StrAppend(&shown, shown.empty() ? "" : ",", pair);
    }
    return shown;
  }

 private:
  static std::string NameOf(std::string_view pair) {
    return std::string(pair.substr(0, pair.find('=')));
  }
  std::map<std::string, std::set<std::string>> values_;
};

template <class Record>
std::string AxesOf(const Record& record) {
  if constexpr (std::is_same_v<Record, Build>) {
    return record.target;
  } else {
    return record.axes;
  }
}

// The column that --variant means; null: the kind has none.
template <class Record>
constexpr const char* VariantColumn() {
  if constexpr (std::is_same_v<Record, Verdict> || std::is_same_v<Record, Summary>) {
    return "challenger";
  } else if constexpr (std::is_same_v<Record, Band>) {
    return nullptr;
  } else {
    return "variant";
  }
}

struct Listing {
  const ledger::Ledger* ledger;
  const LedgerCommand& command;
  std::vector<Line> lines;
  Json json = Json::array();

  template <class Record>
  absl::Status Add(std::string_view kind) {
    if (!command.kind.empty() && command.kind != kind) return absl::OkStatus();
    ledger::Filter filter;
    if (!command.op.empty()) filter.emplace_back("op", command.op);
    if (!command.variant.empty()) {
      if (VariantColumn<Record>() == nullptr) return absl::OkStatus();
      filter.emplace_back(VariantColumn<Record>(), command.variant);
    }
    KVR_ASSIGN_OR_RETURN(std::vector<Record> records, ledger->Find<Record>(filter, command.limit));
    std::reverse(records.begin(), records.end());  // newest row first
    for (const Record& record : records) {
      KVR_ASSIGN_OR_RETURN(const ledger::Environment where, ledger->EnvironmentOf(record));
      Line line{.uid = record.uid.substr(0, kShortUid),
                .kind = std::string(kind),
                .time = record.time.substr(0, 16),
                .op = record.op,
                .at = AxesOf(record)};
      std::replace(line.time.begin(), line.time.end(), 'T', ' ');
      Tell(record, line);
      lines.push_back(std::move(line));
      json.push_back(RecordJson(record, where));
    }
    return absl::OkStatus();
  }

  // What all lines have in common (the year, the operation, most axes) is left out or said once.
  std::string Text() {
    std::set<std::string> ops, years;
    Differing shapes;
    std::map<std::string, Differing> configs;
    for (const Line& line : lines) {
      ops.insert(line.op);
      if (!line.time.empty()) years.insert(line.time.substr(0, 5));
      if (line.kind != "build") shapes.Add(line.at);
      configs[line.variant].Add(line.config);
    }
    Table table({{"uid"}, {"kind"}, {"time (UTC)"}, {"of"}, {"at"}, {"result"}});
    for (const Line& line : lines) {
      const std::string config = configs[line.variant](line.config);
      table.Row(
          {line.uid, line.kind,
           years.size() > 1 || line.time.size() < 5 ? line.time : line.time.substr(5),
           StrCat(ops.size() > 1 ? StrCat(line.op, ": ") : "", ConfigName(line.variant, config),
                  line.suffix.empty() ? "" : " ", line.suffix),
           line.kind == "build" ? line.at : shapes(line.at), line.result});
    }
    return StrCat(ops.size() == 1 ? StrCat(*ops.begin(), years.size() == 1 ? " " : "") : "",
                  years.size() == 1 ? years.begin()->substr(0, 4) : "", "\n",
                  table.Render(TerminalWidth()));
  }
};

constexpr std::string_view kKinds[] = {"publication", "verdict", "trial",
                                       "band",        "build",   "summary"};

absl::StatusOr<int> RunList(const GlobalOptions& global, const LedgerCommand& command) {
  if (!command.kind.empty() &&
      std::find(std::begin(kKinds), std::end(kKinds), command.kind) == std::end(kKinds)) {
    return UnknownName("kind of record", command.kind, kKinds);
  }
  absl::StatusOr<std::unique_ptr<ledger::Ledger>> ledger = OpenOrSay(command, "ls", true);
  if (absl::IsNotFound(ledger.status())) {  // nothing was measured yet: no fault
    if (global.json) {
      PrintJson({{"ledger", nullptr}, {"records", Json::array()}});
    } else {
      Print(StrCat(What(ledger.status()), "\n"));
    }
    return kDone;
  }
  KVR_RETURN_IF_ERROR(ledger.status());
  Listing listing{.ledger = ledger->get(), .command = command};
  KVR_RETURN_IF_ERROR(listing.Add<Publication>("publication"));
  KVR_RETURN_IF_ERROR(listing.Add<Verdict>("verdict"));
  KVR_RETURN_IF_ERROR(listing.Add<Trial>("trial"));
  KVR_RETURN_IF_ERROR(listing.Add<Band>("band"));
  KVR_RETURN_IF_ERROR(listing.Add<Build>("build"));
  KVR_RETURN_IF_ERROR(listing.Add<Summary>("summary"));
  if (global.json) {
    PrintJson({{"ledger", (*ledger)->path()}, {"records", listing.json}});
    return kDone;
  }
  if (!listing.lines.empty()) Print(listing.Text());
  Print(StrCat(Count(listing.json.size(), "record"), " of ", (*ledger)->path(),
               command.limit > 0 ? StrCat(", the newest ", command.limit, " of a kind") : "",
               "\n"));
  return kDone;
}

// As many cells as samples, at most `width`: then each is the mean of its part.
std::string Sparkline(const std::vector<double>& samples, size_t width) {
  constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<double> means;
  const size_t cells = std::min(width, samples.size());
  for (size_t c = 0; c < cells; ++c) {
    double sum = 0;
    int count = 0;
    for (size_t i = c * samples.size() / cells; i < (c + 1) * samples.size() / cells; ++i) {
      if (std::isfinite(samples[i])) sum += samples[i], ++count;
    }
    means.push_back(count == 0 ? std::nan("") : sum / count);
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (std::isfinite(mean)) low = std::min(low, mean), high = std::max(high, mean);
  }
  std::string line;
  for (const double mean : means) {
    const double at = high > low ? (mean - low) / (high - low) : 0.5;
    line += std::isfinite(mean) ? kBars[std::min(7, static_cast<int>(at * 8))] : " ";
  }
  return line;
}

std::string Samples(std::vector<double> samples, std::string_view unit) {
  if (samples.empty()) return "none";
  const std::string line = Sparkline(samples, 60);
  const size_t all = samples.size();
  std::erase_if(samples, [](double sample) { return !std::isfinite(sample); });
  if (samples.empty()) return StrCat(all, ", none of them a number");
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return samples[static_cast<size_t>(part * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return absl::StrFormat("%d, median %.4g%s, quartiles %.4g and %.4g, least %.4g, most %.4g\n%s",
                         all, at(0.5), std::string(unit), at(0.25), at(0.75), samples.front(),
                         samples.back(), line);
}

struct ShowText {
  std::string text;
  void Line(std::string_view name, std::string_view value) {
    if (value.empty()) return;
    std::string_view first = value.substr(0, value.find('\n'));
    StrAppend(&text, absl::StrFormat("%-24s", std::string(name)), first, "\n");
    for (size_t at = first.size(); at < value.size();) {  // further lines under the first
      const size_t end = std::min(value.find('\n', at + 1), value.size());
      StrAppend(&text, std::string(24, ' '), value.substr(at + 1, end - at - 1), "\n");
      at = end;
    }
  }
  void operator()(const char* name, const std::string& value) { Line(name, value); }
  void operator()(const char* name, int64_t value) {
    if (std::string_view(name) != "environment") Line(name, StrCat(value));
  }
  void operator()(const char* name, double value) { Line(name, absl::StrFormat("%.6g", value)); }
  void operator()(const char* name, const std::vector<double>& values) {
    Line(name, Samples(values, std::string_view(name) == "samples" ? " us" : ""));
  }
};

struct Found {
  Json json;
  std::string text, name;
};

template <class Record>
absl::Status Look(const ledger::Ledger& ledger, const std::string& prefix,
                  std::vector<Found>& found) {
  KVR_ASSIGN_OR_RETURN(const std::vector<Record> records, ledger.FindUid<Record>(prefix));
  for (const Record& record : records) {
    ShowText show;
    show.Line("record", StrCat(record.uid, " of ", Record::kTable));
    Record::Fields(record, show);
    KVR_ASSIGN_OR_RETURN(const ledger::Environment where, ledger.EnvironmentOf(record));
    StrAppend(&show.text, "\nmeasured in the environment\n");
    ledger::Environment::Fields(where, show);
    found.push_back({RecordJson(record, where), std::move(show.text),
                     StrCat(record.uid, " (", Record::kTable, ")")});
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunShow(const GlobalOptions& global, const LedgerCommand& command) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<ledger::Ledger> ledger,
                       OpenOrSay(command, "show", true));
  std::vector<Found> found;
  KVR_RETURN_IF_ERROR(Look<Publication>(*ledger, command.uid, found));
  KVR_RETURN_IF_ERROR(Look<Verdict>(*ledger, command.uid, found));
  KVR_RETURN_IF_ERROR(Look<Trial>(*ledger, command.uid, found));
  KVR_RETURN_IF_ERROR(Look<Band>(*ledger, command.uid, found));
  KVR_RETURN_IF_ERROR(Look<Build>(*ledger, command.uid, found));
  KVR_RETURN_IF_ERROR(Look<Summary>(*ledger, command.uid, found));
  if (found.empty()) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat("no record of ", ledger->path(), " has a uid that begins with ",
                        Quoted(command.uid)),
                 "`kvr ledger ls` shows the uids");
  }
  if (found.size() > 1) {
    std::vector<std::string> names;
    for (const Found& record : found) names.push_back(record.name);
    if (names.size() > 5) names.resize(5), names.emplace_back("...");
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(found.size(), " records have a uid that begins with ", Quoted(command.uid)),
                 StrCat("give more of it: ", StrJoin(names, ", ")));
  }
  if (global.json) {
    PrintJson(found.front().json);
  } else {
    Print(found.front().text);
  }
  return kDone;
}

absl::StatusOr<int> RunExport(const GlobalOptions& global, const LedgerCommand& command) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<ledger::Ledger> ledger,
                       OpenOrSay(command, "export", true));
  if (command.file.empty() || command.file == "-") {
    KVR_RETURN_IF_ERROR(ledger->Export(std::cout).status());
    return kDone;
  }
  // Aside and renamed: a full disk leaves no half of one.
  const std::string aside = command.file + ".tmp";
  std::ofstream file(aside, std::ios::trunc);
  absl::StatusOr<int64_t> exported =
      Error(absl::StatusCode::kInvalidArgument, StrCat("cannot write ", command.file),
            "name a file in a directory that exists and that you may write");
  if (file) exported = ledger->Export(file);
  absl::Status status = exported.status();
  file.close();
  std::error_code error;
  if (status.ok()) std::filesystem::rename(aside, command.file, error);
  if (status.ok() && error) {
    status =
        Error(absl::StatusCode::kUnavailable,
              StrCat("cannot replace ", command.file, ": ", error.message()), "name another file");
  }
  if (!status.ok()) std::filesystem::remove(aside, error);
  KVR_RETURN_IF_ERROR(status);
  if (global.json) {
    PrintJson({{"ledger", ledger->path()}, {"file", command.file}, {"exported", *exported}});
  } else {
    Print(StrCat(Count(static_cast<size_t>(*exported), "record"), " of ", ledger->path(), " in ",
                 command.file, ", environments included\n"));
  }
  return kDone;
}

// Is there nothing yet that an import would be added to?
bool IsFresh(const LedgerCommand& command) {
  return absl::IsNotFound(OpenLedger(command.directory, {.read_only = true}).status());
}

absl::StatusOr<int> RunImport(const GlobalOptions& global, const LedgerCommand& command) {
  std::ifstream file(command.file);
  if (!file || std::filesystem::is_directory(command.file)) {
    return Error(absl::StatusCode::kNotFound, StrCat("cannot read ", command.file),
                 "name a file that `kvr ledger export` wrote");
  }
  // What is refused makes no ledger.
  std::stringstream text;
  const bool fresh = IsFresh(command);
  if (fresh) {
    text << file.rdbuf();
    KVR_RETURN_IF_ERROR(ledger::Ledger::Rehearse(text).status());
    text.clear();
    text.seekg(0);
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<ledger::Ledger> ledger,
                       OpenOrSay(command, "import", false));
  KVR_ASSIGN_OR_RETURN(const ledger::Imported imported,
                       fresh ? ledger->Import(text) : ledger->Import(file));
  if (global.json) {
    PrintJson({{"ledger", ledger->path()}, {"added", imported.added}, {"known", imported.known}});
  } else {
    Print(StrCat(Count(static_cast<size_t>(imported.added), "record"), " added to ", ledger->path(),
                 ", ", imported.known, " known already\n"));
  }
  return kDone;
}

}  // namespace

void AddLedgerCommand(CLI::App& app, Commands& commands) {
  auto command = std::make_shared<LedgerCommand>();
  CLI::App* group = Subcommand(app, "ledger", "What was tried, measured and decided",
                               "kvr ledger ls --op mla_sparse_decode --kind verdict");
  group->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, const char* example, auto run) {
    CLI::App* sub = Subcommand(*group, name, description, example);
    AddLedger(sub, &command->directory);
    sub->callback([&commands, command, run] {
      commands.run = [&commands, command, run] { return run(commands.global, *command); };
    });
    return sub;
  };
  CLI::App* list = add("ls", "The newest records of each kind; none where there is no ledger",
                       "kvr ledger ls --kind trial --variant w8 --limit 50", RunList);
  list->add_option("--op", command->op, "only this operation")->type_name("OP");
  list->add_option("--variant", command->variant, "only this variant, as the challenger")
      ->type_name("NAME");
  list->add_option("--kind", command->kind,
                   "only publication, verdict, trial, band, build or summary")
      ->type_name("KIND");
  list->add_option("--limit", command->limit, "at most so many of a kind; 0: all")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30));
  add("show", "One record in full, with its environment", "kvr ledger show 3fa9", RunShow)
      ->add_option("UID", command->uid, "beginning of its uid, as `kvr ledger ls` shows it")
      ->required();
  add("export", "Everything, as JSON lines", "kvr ledger export h200-3.jsonl", RunExport)
      ->add_option("FILE", command->file, "where to; left out or -: standard output");
  add("import", "What another ledger exported, all of it or nothing",
      "kvr ledger import h200-3.jsonl", RunImport)
      ->add_option("FILE", command->file, "what `kvr ledger export` wrote")
      ->required();
}

}  // namespace kvr::cli
