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
#include <sstream>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/ledger_command.h"
#include "cli/table.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

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

namespace {

using ledger::Band;
using ledger::Build;
using ledger::Publication;
using ledger::Summary;
using ledger::Trial;
using ledger::Verdict;

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
                       "kvr ledger ls --kind trial --variant w8 --limit 50", ListLedger);
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
