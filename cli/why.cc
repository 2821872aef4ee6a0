// SPDX-License-Identifier: Apache-2.0
//
// kvr why OP: which config serves a shape, what it beat and by how much, when and on which device.
#include "tuner/selections/why.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/ledger.h"
#include "cli/selections.h"
#include "cli/table.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/selection_file.h"
#include "tuner/selections/placed.h"

namespace kvr::cli {
namespace {

struct WhyOptions : OpOptions {
  std::string selections, ledger, model;
  int limit = 10;
};

double Percent(double log_ratio) { return 100 * std::expm1(log_ratio); }

// "-11.2 % [-12.5, -9.8]"; an end that nothing bounds is "?".
std::string IntervalText(double difference, double low, double high) {
  const auto number = [](double log_ratio) {
    return std::isfinite(log_ratio) ? absl::StrFormat("%+.1f", Percent(log_ratio))
                                    : std::string("?");
  };
  return StrCat(number(difference), " % [", number(low), ", ", number(high), "]");
}

std::string Where(const std::string& device, const std::string& time) {
  return StrCat("on ", device, time.empty() ? "" : StrCat(", ", time));
}

Json VerdictJson(const WhyVerdict& v) {
  return {{"against", v.other},
          {"verdict", v.verdict},
          {"kind", v.kind},
          {"reason", v.reason},
          {"difference", v.difference},
          {"low", v.low},
          {"high", v.high},
          {"rounds", v.rounds},
          {"sessions", v.sessions},
          {"mode", v.mode},
          {"axes", v.axes},
          {"device", v.device},
          {"time", v.time}};
}

Json OthersJson(const std::vector<WhyOther>& others) {
  Json json = Json::array();
  for (const WhyOther& other : others) {
    json.push_back({{"config", other.name},
                    {"median_us", other.median_us},
                    {"reason", other.reason},
                    {"device", other.device},
                    {"time", other.time}});
  }
  return json;
}

Json ToJson(const std::string& op, const Axes& shape, const Why& why) {
  Json verdicts = Json::array(), summaries = Json::array();
  for (const WhyVerdict& verdict : why.verdicts) verdicts.push_back(VerdictJson(verdict));
  for (const WhyVerdict& summary : why.summaries) {
    summaries.push_back({{"of", summary.other},
                         {"verdict", summary.verdict},
                         {"reason", summary.reason},
                         {"axes", summary.axes},
                         {"device", summary.device}});
  }
  Json evidence = nullptr;
  if (const Evidence& e = why.evidence; !e.date.empty()) {
    evidence = {{"median_us", e.median_us}, {"tried", e.tried},       {"device", e.device},
                {"date", e.date},           {"verdict", e.verdict},   {"kind", e.kind},
                {"incumbent", e.incumbent}, {"gain_low", e.gain_low}, {"gain_high", e.gain_high}};
  }
  return {{"op", op},
          {"axes", AxesJson(shape)},
          {"key", AxesJson(why.key)},
          {"key_policy", why.key_policy},
          {"device_model", why.device_model},
          {"variant", why.variant},
          {"config", ConfigJson(why.config)},
          {"by", why.by},
          {"because", why.because},
          {"stale", why.stale},
          {"evidence", evidence},
          {"median_us", why.median_us},
          {"published", why.published},
          {"verdicts", verdicts},
          {"runners_up", OthersJson(why.runners_up)},
          {"rejected", OthersJson(why.rejected)},
          {"summaries", summaries},
          {"other_device_models", why.elsewhere}};
}

void PrintEvidence(const Why& why, int width) {
  const Evidence& e = why.evidence;
  if (e.date.empty()) return;
  std::string line = StrCat("the file says: ", Microseconds(e.median_us), " ",
                            Where(e.device, e.date), ", of ", e.tried, " tried");
  if (e.verdict == "BASELINE") {
    line += "; nothing beat the baseline";
  } else if (!e.verdict.empty()) {
    StrAppend(&line, "; ", e.kind.empty() ? "" : StrCat(e.kind, " "), e.verdict,
              e.incumbent.empty()
                  ? ""
                  : StrCat(" against ", e.incumbent,
                           absl::StrFormat(", %+.1f to %+.1f %% in time", Percent(e.gain_low),
                                           Percent(e.gain_high))));
  } else {
    line += "; nothing says what it beat";
  }
  Print(Wrap(line, width, 2));
}

void PrintOthers(std::string_view title, const std::vector<WhyOther>& others, double served_us,
                 int limit, int width) {
  if (others.empty()) return;
  Print(StrCat("\n", title, "\n"));
  int shown = 0;
  for (const WhyOther& other : others) {
    if (limit > 0 && shown++ == limit) {
      Print(StrCat("  and ", others.size() - static_cast<size_t>(limit),
                   " more; --limit 0 shows all\n"));
      return;
    }
    std::string line = other.name;
    if (other.median_us > 0) {
      StrAppend(&line, ": ", Microseconds(other.median_us));
      if (served_us > 0) {
        line += absl::StrFormat(" (%+.1f %%)", 100 * (other.median_us / served_us - 1));
      }
      StrAppend(&line, ", ", other.reason, ", ", other.time);
    } else {
      StrAppend(&line, ": ", other.reason.substr(0, other.reason.find('\n')), ", ",
                Where(other.device, other.time));
    }
    Print(Wrap(line, width, 2));
  }
}

void PrintText(const std::string& op, const Why& why, bool has_ledger, int limit) {
  const int width = TerminalWidth();
  Print(Wrap(StrCat(op, " {", AxesText(why.key), "}",
                    why.device_model.empty() ? "" : StrCat(" on ", why.device_model), ": ",
                    ConfigName(why.variant, ConfigText(why.config))),
             width, 0));
  Print(Wrap(StrCat(why.by, ": ", why.because), width, 2));
  PrintEvidence(why, width);
  if (!why.published.empty()) Print(Wrap(StrCat("published ", why.published), width, 2));
  if (why.median_us > 0) {
    Print(Wrap(StrCat("last measured by the ledger: ", Microseconds(why.median_us)), width, 2));
  }
  if (!has_ledger) Print("  there is no ledger to ask what it beat\n");
  if (!why.verdicts.empty()) Print("\ncompared (less time is negative)\n");
  int shown = 0;
  for (const WhyVerdict& v : why.verdicts) {
    if (limit > 0 && shown++ == limit) break;
    Print(Wrap(
        StrCat(v.kind, " ", v.verdict, " against ", v.other, ": ",
               IntervalText(v.difference, v.low, v.high), ", ",
               Count(static_cast<size_t>(v.rounds), "round"), " in ",
               Count(static_cast<size_t>(v.sessions), "session"), ", ", v.mode, ", at ", v.axes,
               ", ", Where(v.device, v.time), v.reason.empty() ? "" : StrCat("; ", v.reason)),
        width, 2));
  }
  PrintOthers("runners-up", why.runners_up, why.median_us, limit, width);
  PrintOthers("rejected", why.rejected, 0, limit, width);
  if (!why.summaries.empty()) Print("\nreported elsewhere, without samples: selects nothing\n");
  for (const WhyVerdict& s : why.summaries) {
    Print(Wrap(StrCat(s.verdict, ": ", s.other, " at ", s.axes, ": ", s.reason, "; on ", s.device),
               width, 2));
  }
  if (!why.elsewhere.empty()) {
    Print(Wrap(StrCat("\nThe ledger also has results of ", StrJoin(why.elsewhere, ", "),
                      ", which select nothing here; --model shows them."),
               width, 0));
  }
}

absl::StatusOr<int> RunWhy(const GlobalOptions& global, const WhyOptions& options) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
  KVR_ASSIGN_OR_RETURN(const Overrides overrides, Overrides::FromEnvironment(platform->catalog()));
  std::optional<SelectionContent> selections;
  if (!options.selections.empty()) {
    KVR_ASSIGN_OR_RETURN(selections, ReadSelectionContent(options.selections));
  }
  absl::StatusOr<std::unique_ptr<ledger::Ledger>> ledger =
      OpenLedger(options.ledger, {.read_only = true});
  // Without one there is still what the file says; with neither, what runs by default.
  if (!ledger.ok() && !absl::IsNotFound(ledger.status())) return ledger.status();
  const ledger::Ledger* const asked = ledger.ok() ? ledger->get() : nullptr;
  KVR_ASSIGN_OR_RETURN(const std::vector<AxisVector> shapes, ChosenShapes(op->spec(), options));
  Json all = Json::array();
  for (const AxisVector& axes : shapes) {
    const Axes shape = NamedAxes(op->spec(), axes);
    KVR_ASSIGN_OR_RETURN(const Why why,
                         ExplainSelection({.op = *op,
                                           .shape = shape,
                                           .selections = selections ? &*selections : nullptr,
                                           .ledger = asked,
                                           .overrides = &overrides,
                                           .device_model = options.model}));
    if (!global.json) {
      if (!all.empty()) Print("\n");
      PrintText(op->name(), why, asked != nullptr, options.limit);
    }
    all.push_back(ToJson(op->name(), shape, why));
  }
  // One shape is one object; scripts that ask for one get it unwrapped.
  if (global.json) PrintJson(all.size() == 1 ? all[0] : Json{{"keys", all}});
  return ExitCode(global, platform->catalog(), false);
}

}  // namespace

void AddWhy(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<WhyOptions>();
  CLI::App* sub = Subcommand(app, "why", "Which config serves a shape, and what it beat",
                             "kvr why mla_sparse_decode --selections h200.json --axes topk=512");
  options->AddOp(sub);
  options->AddAxes(sub);
  AddSelections(sub, &options->selections);
  AddLedger(sub, &options->ledger);
  sub->add_option("--model", options->model,
                  "device model; left out: the selection file's, else the ledger's newest")
      ->type_name("MODEL");
  sub->add_option("--limit", options->limit, "at most so many of a list; 0: all")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30));
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunWhy(commands.global, *options); };
  });
}

}  // namespace kvr::cli
