// SPDX-License-Identifier: Apache-2.0
//
// kvr ledger ls: the newest records of each kind, a line each.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/ledger_command.h"
#include "cli/samples.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/names.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/selections/placed.h"
#include "tuner/stats/summary.h"

namespace kvr::cli {
namespace {

using ledger::Band;
using ledger::Build;
using ledger::Publication;
using ledger::Summary;
using ledger::Trial;
using ledger::Verdict;

constexpr int kShortUid = 8;

// A line of `ls`.
struct Line {
  std::string uid, kind, time, op, variant, config, suffix, at, result;
  std::string against, against_config;  // of a verdict: the incumbent
};

void Tell(const Trial& t, Line& line) {
  line.variant = t.variant;
  line.config = t.config;
  line.suffix = t.stage;
  line.result = t.status == "PASSED" && t.median_us > 0 ? Microseconds(t.median_us)
                : t.status == "PASSED"                  ? "passed"
                                                        : t.status;
  if (!t.outcome.empty()) StrAppend(&line.result, ", ", t.outcome);
  if (const auto quality = ParseQuality(t.quality); quality.ok() && !quality->empty()) {
    StrAppend(&line.result, ", ", WorstErrorText(*quality), " off exact");
  }
}
void Tell(const Verdict& v, Line& line) {
  line.variant = v.challenger;
  line.config = v.challenger_config;
  line.against = v.incumbent;
  line.against_config = v.incumbent_config;
  line.result = StrCat(v.kind, " ", v.verdict, " ", RelativeText(v.difference));
}
void Tell(const Band& b, Line& line) {
  line.variant = "noise";
  line.suffix = b.mode;
  line.result = absl::StrFormat("%.2f %%", 100 * b.band);
}
// A swap's reason begins with the step that failed: "verify: w8 ...".
std::string FailedStep(const Publication& p) {
  for (const std::string_view step : {"build", "verify", "canary", "publish"}) {
    if (p.outcome == "failed" && p.reason.starts_with(StrCat(step, ": "))) {
      return StrCat(" at ", step);
    }
  }
  return "";
}
std::string ShortDigest(const std::string& hex) { return hex.empty() ? "?" : hex.substr(0, 12); }

void Tell(const Publication& p, Line& line) {
  line.variant = p.variant;
  line.config = p.config;
  // Several keys, or none: the generation is what has a name.
  if (p.variant.empty()) {
    line.variant = p.after.empty() || p.after == p.before
                       ? StrCat("generation ", ShortDigest(p.before))
                       : StrCat(ShortDigest(p.before), " -> ", ShortDigest(p.after));
  }
  line.result = StrCat(p.trigger, ": ", p.outcome, FailedStep(p));
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

// Of texts "a=1,b=2", the names that do not have one value wherever they have one.
class Differing {
 public:
  void Add(const std::string& text) {
    for (const std::string_view pair : Split(text, ',')) {
      if (!pair.empty()) values_[NameOf(pair)].emplace(pair);
    }
  }
  std::string Names() const {
    std::vector<std::string> names;
    for (const auto& [name, pairs] : values_) {
      if (pairs.size() > 1) names.push_back(name);
    }
    return StrJoin(names, ",");
  }
  // The others.
  std::string Common() const {
    std::vector<std::string> common;
    for (const auto& [name, pairs] : values_) {
      if (pairs.size() == 1) common.push_back(*pairs.begin());
    }
    return StrJoin(common, ",");
  }
  // Of a text, those pairs and the ones of `also`.
  std::string operator()(const std::string& text, const std::set<std::string>& also = {}) const {
    std::vector<std::string> shown;
    for (const std::string_view pair : Split(text, ',')) {
      if (pair.empty()) continue;
      const auto values = values_.find(NameOf(pair));
      const bool differs = values != values_.end() && values->second.size() > 1;
      if (differs || also.count(NameOf(pair)) > 0) shown.emplace_back(pair);
    }
    return StrJoin(shown, ",");
  }
  // Of a text, the values under Names(); "-": it has none.
  std::string Values(const std::string& text) const {
    std::map<std::string, std::string> has;
    for (const std::string_view pair : Split(text, ',')) {
      has.emplace(NameOf(pair), pair.substr(std::min(pair.find('=') + 1, pair.size())));
    }
    std::vector<std::string> values;
    for (const auto& [name, pairs] : values_) {
      if (pairs.size() > 1) values.push_back(has.count(name) > 0 ? has.at(name) : "-");
    }
    return StrJoin(values, ",");
  }

 private:
  static std::string NameOf(std::string_view pair) {
    return std::string(pair.substr(0, pair.find('=')));
  }
  std::map<std::string, std::set<std::string>> values_;
};

// What an approximate variant's results depend on; of an exact or an unknown one: nothing.
std::set<std::string> QualityNames(const Catalog* catalog, const std::string& op,
                                   const std::string& variant) {
  std::set<std::string> names;
  if (catalog == nullptr) return names;
  const absl::StatusOr<VariantPtr> found = catalog->Find(op, variant);
  if (!found.ok()) return names;
  for (const Tunable& tunable : (*found)->tunables) {
    if (tunable.scope == Scope::kQuality) names.insert(tunable.name);
  }
  return names;
}

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
  const ledger::Samples samples;
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
    KVR_ASSIGN_OR_RETURN(std::vector<Record> records,
                         ledger->Find<Record>(filter, command.limit, samples));
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
      if (samples == ledger::Samples::kRead) json.push_back(RecordJson(record, where));
    }
    return absl::OkStatus();
  }

  // What all lines have in common (operation, day, shape) is said once, above them. Where the
  // terminal is narrow, who was compared is shortened first, then where; the result never.
  std::string Text(const Catalog* catalog) {
    std::set<std::string> ops, days;
    Differing shapes;
    std::map<std::string, Differing> configs;
    for (const Line& line : lines) {
      ops.insert(line.op);
      days.insert(line.time.substr(0, 10));
      if (line.kind != "build") shapes.Add(line.at);
      configs[line.variant].Add(line.config);
    }
    const std::string axes = shapes.Names();
    std::vector<std::string> shared;
    if (ops.size() == 1 && !ops.begin()->empty()) shared.push_back(*ops.begin());
    if (days.size() == 1) shared.push_back(StrCat(*days.begin(), " (UTC)"));
    const std::string common = shapes.Common();
    if (const absl::StatusOr<Axes> parsed = ParseAxes(common);
        parsed.ok() && axes.empty() && !common.empty()) {
      const std::string shape = catalog == nullptr || ops.size() > 1
                                    ? common
                                    : ShortShape(*catalog, *ops.begin(), *parsed);
      shared.push_back(StrCat("at ", StrJoin(Split(shape, ','), ", ")));
    }
    if (!axes.empty()) shared.push_back(StrCat("at: ", StrJoin(Split(axes, ','), ", ")));

    std::vector<std::vector<std::string>> rows;
    for (const Line& line : lines) {
      // A verdict on an approximate variant holds for its quality values alone.
      std::set<std::string> quality;
      std::string suffix = line.suffix;
      if (!line.against.empty()) {
        quality = QualityNames(catalog, line.op, line.variant);
        suffix = StrCat(
            "against ",
            ConfigName(line.against, Differing()(line.against_config,
                                                 QualityNames(catalog, line.op, line.against))));
      }
      const std::string config = configs[line.variant](line.config, quality);
      rows.push_back({line.uid, line.kind,
                      days.size() == 1 && line.time.size() > 11 ? line.time.substr(11) : line.time,
                      StrCat(ops.size() > 1 && !line.op.empty() ? StrCat(line.op, ": ") : "",
                             ConfigName(line.variant, config), suffix.empty() ? "" : " ", suffix),
                      line.kind == "build" ? line.at : shapes.Values(line.at), line.result});
    }
    std::vector<std::string> titles = {"uid", "kind", "time", "of", "at", "result"};
    constexpr size_t kAt = 4;
    const int width = TerminalWidth();
    const bool has_at =
        std::any_of(rows.begin(), rows.end(), [](const auto& row) { return !row[kAt].empty(); });
    std::vector<Table::Column> columns;
    for (size_t c = 0; c < titles.size(); ++c) {
      if (c != kAt || has_at) columns.push_back({titles[c]});
    }
    Table table(std::move(columns));
    for (auto& row : rows) {
      if (!has_at) row.erase(row.begin() + kAt);
      table.Row(std::move(row));
    }
    const std::string title = shared.empty() ? "" : Wrap(StrJoin(shared, ", "), width, 0);
    return StrCat(title, table.Render(width));
  }
};

constexpr std::string_view kKinds[] = {"publication", "verdict", "trial",
                                       "band",        "build",   "summary"};

// Fails for an operation that neither is here nor has left a record.
absl::Status CheckOp(const GlobalOptions& global, const std::string& op,
                     const ledger::Ledger* ledger) {
  if (op.empty()) return absl::OkStatus();
  const auto has = [&]<class Record>(const Record*) {
    const absl::StatusOr<std::vector<Record>> found =
        ledger->Find<Record>({{"op", op}}, 1, ledger::Samples::kLeaveOut);
    return found.ok() && !found->empty();
  };
  if (ledger != nullptr &&
      (has(static_cast<const Trial*>(nullptr)) || has(static_cast<const Verdict*>(nullptr)) ||
       has(static_cast<const Build*>(nullptr)) || has(static_cast<const Band*>(nullptr)) ||
       has(static_cast<const Publication*>(nullptr)) ||
       has(static_cast<const Summary*>(nullptr)))) {
    return absl::OkStatus();
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Platform> platform, OpenPlatform(global, false));
  return platform->catalog().FindOp(op).status();
}

}  // namespace

absl::StatusOr<int> ListLedger(const GlobalOptions& global, const LedgerCommand& command) {
  if (!command.kind.empty() &&
      std::find(std::begin(kKinds), std::end(kKinds), command.kind) == std::end(kKinds)) {
    return UnknownName("kind of record", command.kind, kKinds);
  }
  absl::StatusOr<std::unique_ptr<ledger::Ledger>> ledger = OpenOrSay(command, "ls", true);
  if (absl::IsNotFound(ledger.status())) {  // nothing was measured yet: no fault
    KVR_RETURN_IF_ERROR(CheckOp(global, command.op, nullptr));
    if (global.json) {
      PrintJson({{"ledger", nullptr}, {"records", Json::array()}});
    } else {
      Print(StrCat(What(ledger.status()), "\n"));
    }
    return kDone;
  }
  KVR_RETURN_IF_ERROR(ledger.status());
  KVR_RETURN_IF_ERROR(CheckOp(global, command.op, ledger->get()));
  Listing listing{.ledger = ledger->get(),
                  .command = command,
                  .samples = global.json ? ledger::Samples::kRead : ledger::Samples::kLeaveOut};
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
  if (!listing.lines.empty()) {
    const absl::StatusOr<std::unique_ptr<Platform>> platform = OpenPlatform(global, false);
    Print(listing.Text(platform.ok() ? &(*platform)->catalog() : nullptr));
  }
  Print(StrCat(Count(listing.lines.size(), "record"), " of ", (*ledger)->path(),
               command.limit > 0 ? StrCat(", the newest ", command.limit, " of a kind") : "",
               "\n"));
  return kDone;
}

}  // namespace kvr::cli
