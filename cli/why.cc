// SPDX-License-Identifier: Apache-2.0
//
// kvr why OP: which config serves a shape, what it beat and by how much, when and on which device.
#include "tuner/selections/why.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/ledger.h"
#include "cli/selections.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/selection_file.h"
#include "tuner/selections/placed.h"

namespace kvr::cli {
namespace {

struct WhyOptions : OpOptions {
  WhyOptions() { device.clear(); }  // none is asked, unless it is named
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

// A ledger's quality figures, rounded.
std::string Figures(const std::string& quality) {
  const absl::StatusOr<std::vector<QualityMeasure>> measures = ParseQuality(quality);
  return measures.ok() ? QualityLine(*measures) : quality;
}

// "2026-11-30 12:00"
std::string Where(const std::string& device, const std::string& time) {
  return StrCat("on ", device, time.empty() ? "" : StrCat(", ", Minute(time)));
}

// Names as a line of a terminal can hold them: of a config what is not the variant's default, of a
// shape what is not the op's, with blanks to break at.
class Short {
 public:
  Short(const Catalog& catalog, const std::string& op) : catalog_(catalog), op_(op) {}

  std::string Config(const std::string& variant, const std::string& config) const {
    const absl::StatusOr<kvr::Config> parsed = ParseAxes(config);
    if (!parsed.ok()) return Spaced(ConfigName(variant, config));
    const std::string differs = ShortConfig(catalog_, op_, variant, *parsed);
    return Spaced(ConfigName(variant, differs == "default" ? "" : differs));
  }
  // "w8 {BLOCK_H=16}", as evidence has it.
  std::string Named(const std::string& name) const {
    const size_t brace = name.find('{'), end = name.find('}');
    if (brace == std::string::npos || end == std::string::npos || end < brace) return name;
    return Config(std::string(Trim(std::string_view(name).substr(0, brace))),
                  name.substr(brace + 1, end - brace - 1));
  }
  std::string Shape(const std::string& axes) const {
    const absl::StatusOr<Axes> parsed = ParseAxes(axes);
    return Spaced(parsed.ok() ? ShortShape(catalog_, op_, *parsed) : axes);
  }

 private:
  static std::string Spaced(const std::string& text) { return StrJoin(Split(text, ','), ", "); }
  const Catalog& catalog_;
  const std::string op_;
};

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
                    {"difference", other.difference},
                    {"quality", other.quality},
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
  Json measured = nullptr;
  if (const WhySession& m = why.measured; !m.axes.empty()) {
    measured = {{"axes", m.axes},       {"mode", m.mode},     {"median_us", m.median_us},
                {"quality", m.quality}, {"device", m.device}, {"time", m.time}};
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
          {"measured", measured},
          {"published", why.published},
          {"verdicts", verdicts},
          {"runners_up", OthersJson(why.runners_up)},
          {"rejected", OthersJson(why.rejected)},
          {"summaries", summaries},
          {"other_device_models", why.elsewhere}};
}

void PrintEvidence(const Why& why, const Short& names, int width) {
  const Evidence& e = why.evidence;
  if (e.date.empty()) return;
  std::string line =
      StrCat("the file says: ", e.median_us > 0 ? StrCat(Microseconds(e.median_us), " ") : "",
             Where(e.device, e.date), ", of ", e.tried, " tried");
  if (e.verdict == "BASELINE") {
    line += "; nothing beat the baseline";
  } else if (e.verdict == "KEPT") {
    line += "; nothing beat it, which was selected under another key policy";
  } else if (!e.verdict.empty()) {
    StrAppend(&line, "; ", e.kind.empty() ? "" : StrCat(e.kind, " "), e.verdict,
              e.incumbent.empty()
                  ? ""
                  : StrCat(" against ", names.Named(e.incumbent),
                           absl::StrFormat(", %+.1f to %+.1f %% in time", Percent(e.gain_low),
                                           Percent(e.gain_high))));
  } else {
    line += "; nothing says what it beat";
  }
  Print(Wrap(line, width, 2));
}

void PrintVerdicts(const std::vector<WhyVerdict>& verdicts, const Short& names, int limit,
                   int width) {
  if (verdicts.empty()) return;
  const size_t count =
      limit > 0 ? std::min(verdicts.size(), static_cast<size_t>(limit)) : verdicts.size();
  const auto at = [&](const WhyVerdict& v) { return StrCat(names.Shape(v.axes), ", ", v.mode); };
  std::set<std::string> places, devices;
  for (size_t i = 0; i < count; ++i) {
    places.insert(at(verdicts[i]));
    devices.insert(verdicts[i].device);
  }
  // What all of them share is said once.
  Print("\n");
  Print(Wrap(
      StrCat("compared", devices.size() == 1 ? StrCat(" on ", *devices.begin()) : "",
             places.size() == 1 ? StrCat(" at ", *places.begin()) : "", " (less time is negative)"),
      width, 0));
  for (size_t i = 0; i < count; ++i) {
    const WhyVerdict& v = verdicts[i];
    Print(Wrap(StrCat(v.kind, " ", v.verdict, " against ", names.Config(v.variant, v.config), ": ",
                      IntervalText(v.difference, v.low, v.high), ", ",
                      Count(static_cast<size_t>(v.rounds), "round"), " in ",
                      Count(static_cast<size_t>(v.sessions), "session"),
                      places.size() == 1 ? "" : StrCat(", at ", at(v)), ", ",
                      devices.size() == 1 ? Minute(v.time) : Where(v.device, v.time),
                      v.reason.empty() ? "" : StrCat("; ", v.reason)),
               width, 2));
  }
  if (count < verdicts.size()) {
    Print(StrCat("  and ", verdicts.size() - count, " more; --limit 0 shows all\n"));
  }
}

void PrintOthers(std::string_view title, const std::vector<WhyOther>& others, const Short& names,
                 int limit, int width) {
  if (others.empty()) return;
  Print("\n");
  Print(Wrap(title, width, 0));
  int shown = 0;
  for (const WhyOther& other : others) {
    if (limit > 0 && shown++ == limit) {
      Print(StrCat("  and ", others.size() - static_cast<size_t>(limit),
                   " more; --limit 0 shows all\n"));
      return;
    }
    std::string line = StrCat(names.Config(other.variant, other.config), ": ");
    if (other.median_us > 0) {
      line += Microseconds(other.median_us);
      if (std::isfinite(other.difference)) {
        line += absl::StrFormat(" (%+.1f %%)", Percent(other.difference));
      }
      StrAppend(&line, ", ", other.reason,
                other.quality.empty() ? "" : StrCat("; ", Figures(other.quality)));
    } else {
      StrAppend(&line, other.reason.substr(0, other.reason.find('\n')), ", ",
                Where(other.device, other.time));
    }
    Print(Wrap(line, width, 2));
  }
}

void PrintText(const Catalog& catalog, const std::string& op, const Why& why, bool has_ledger,
               int limit) {
  const int width = TerminalWidth();
  const Short names(catalog, op);
  Print(Wrap(StrCat(op, " {", AxesText(why.key), "}",
                    why.device_model.empty() ? "" : StrCat(" on ", why.device_model), ": ",
                    names.Config(why.variant, ConfigText(why.config))),
             width, 0));
  Print(Wrap(StrCat(why.by, ": ", why.because), width, 2));
  PrintEvidence(why, names, width);
  if (!why.published.empty()) Print(Wrap(StrCat("published ", Minute(why.published)), width, 2));
  const WhySession& measured = why.measured;
  const std::string at = StrCat("at ", names.Shape(measured.axes), ", ", measured.mode);
  if (measured.median_us > 0) {
    Print(Wrap(StrCat("last measured: ", Microseconds(measured.median_us), " ", at, ", ",
                      Where(measured.device, measured.time)),
               width, 2));
  }
  if (!measured.quality.empty()) {
    Print(Wrap(StrCat("against the exact result: ", Figures(measured.quality)), width, 2));
  }
  if (!has_ledger) Print("  there is no ledger to ask what it beat\n");
  PrintVerdicts(why.verdicts, names, limit, width);
  PrintOthers(measured.median_us > 0 ? "runners-up in that session"
                                     : StrCat("runners-up ", at, ", ", Minute(measured.time)),
              why.runners_up, names, limit, width);
  PrintOthers("rejected", why.rejected, names, limit, width);
  if (!why.summaries.empty()) Print("\nreported elsewhere, without samples: selects nothing\n");
  for (const WhyVerdict& s : why.summaries) {
    Print(Wrap(StrCat(s.verdict, ": ", s.other, " at ", s.axes, ": ", s.reason, "; on ", s.device),
               width, 2));
  }
  if (!why.elsewhere.empty()) {
    Print("\n");
    Print(Wrap(StrCat("The ledger also has results of ", StrJoin(why.elsewhere, ", "),
                      ", which select nothing here; --model shows them."),
               width, 0));
  }
}

absl::StatusOr<int> RunWhy(const GlobalOptions& global, const WhyOptions& options) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
  KVR_ASSIGN_OR_RETURN(const Overrides overrides, Overrides::FromEnvironment(platform->catalog()));
  KVR_ASSIGN_OR_RETURN(const std::vector<ApproximateOptIn> opt_ins, OptIns(options));
  KVR_RETURN_IF_ERROR(CheckStated(platform->catalog(), options));
  std::string model = options.model;
  if (!options.device.empty()) {
    KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                         platform->OpenDevice(options.device));
    model = device->info().model;
  }
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
                                           .approximate = opt_ins,
                                           .device_model = model}));
    if (!global.json) {
      if (!all.empty()) Print("\n");
      PrintText(platform->catalog(), op->name(), why, asked != nullptr, options.limit);
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
  options->AddApproximate(sub);
  AddSelections(sub, &options->selections);
  AddLedger(sub, &options->ledger);
  CLI::Option* const model =
      sub->add_option("--model", options->model,
                      "device model; left out: the selection file's, else the only one of the "
                      "ledger")
          ->type_name("MODEL");
  options->AddDevice(sub);
  sub->get_option("--device")
      ->excludes(model)
      ->description("the model of this device: cuda, cuda:N, host, null, or auto");
  sub->add_option("--limit", options->limit, "at most so many of a list; 0: all")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30));
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunWhy(commands.global, *options); };
  });
}

}  // namespace kvr::cli
