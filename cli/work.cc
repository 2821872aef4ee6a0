// SPDX-License-Identifier: Apache-2.0
#include "cli/work.h"

#include <algorithm>
#include <cstdio>

#include "absl/time/time.h"
#include "cli/ledger.h"
#include "cli/table.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/stated.h"

namespace kvr::cli {

absl::Status FillRequest(const OpOptions& options, WorkRequest* request) {
  request->op = options.op;
  request->variants = options.variants;
  request->pins = options.pins;
  KVR_ASSIGN_OR_RETURN(request->shapes, ParseShapes(options));
  KVR_ASSIGN_OR_RETURN(request->approximate, OptIns(options));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ApproximateOptIn>> OptIns(const OpOptions& options) {
  std::vector<ApproximateOptIn> opt_ins;
  for (const std::string& text : options.approximate) {
    KVR_ASSIGN_OR_RETURN(opt_ins.emplace_back(), ParseOptIn(text, options.op));
  }
  return opt_ins;
}

absl::Status CheckStated(const Catalog& catalog, const OpOptions& options) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog.FindOp(options.op));
  KVR_ASSIGN_OR_RETURN(const std::vector<AxisVector> shapes, ChosenShapes(op->spec(), options));
  KVR_ASSIGN_OR_RETURN(const std::vector<ApproximateOptIn> opt_ins, OptIns(options));
  KVR_RETURN_IF_ERROR(CheckOptIns(catalog, opt_ins));
  for (const ApproximateOptIn& opt_in : opt_ins) {
    KVR_ASSIGN_OR_RETURN(const VariantPtr variant, catalog.Find(opt_in.op, opt_in.variant));
    if (opt_in.op != op->name()) continue;
    KVR_RETURN_IF_ERROR(kvr::CheckStated(op->spec(), *variant, opt_in.quality, shapes));
  }
  // What is pinned is for every variant that it is legal of: one is enough.
  KVR_ASSIGN_OR_RETURN(const auto pins, ParsePins(options.pins));
  if (pins.empty()) return absl::OkStatus();
  const Config pinned(pins.begin(), pins.end());
  KVR_ASSIGN_OR_RETURN(const std::vector<VariantPtr> variants, ChosenVariants(catalog, options));
  absl::Status first;
  for (const VariantPtr& variant : variants) {
    const bool legal = std::all_of(pinned.begin(), pinned.end(), [&](const auto& pin) {
      return std::any_of(variant->tunables.begin(), variant->tunables.end(), [&](const Tunable& t) {
        return t.name == pin.first &&
               std::find(t.values.begin(), t.values.end(), pin.second) != t.values.end();
      });
    });
    if (!legal) continue;
    const absl::Status here = kvr::CheckStated(op->spec(), *variant, pinned, shapes);
    if (here.ok()) return here;
    first.Update(here);
  }
  return first;
}

absl::StatusOr<std::vector<Axes>> ParseShapes(const OpOptions& options) {
  std::vector<Axes> shapes;
  for (const std::string& text : options.axes) {
    KVR_ASSIGN_OR_RETURN(std::vector<Axes> expanded, ExpandAxes(text));
    for (Axes& axes : expanded) shapes.push_back(std::move(axes));
  }
  return shapes;
}

absl::StatusOr<MeasureMode> ModeOf(const OpOptions& options) {
  return options.mode.empty() ? MeasureMode{} : ParseMode(options.mode);
}

absl::StatusOr<double> BudgetOf(const OpOptions& options) {
  absl::Duration budget;
  if (options.budget.empty()) return 0;
  const bool parsed = absl::ParseDuration(options.budget, &budget);
  if (parsed && budget > absl::ZeroDuration() && budget < absl::InfiniteDuration()) {
    return absl::ToDoubleSeconds(budget);
  }
  if (parsed && budget <= absl::ZeroDuration()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("--budget '", options.budget, "' must be more than 0"),
                 "leave it out to take as long as it takes");
  }
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("--budget '", options.budget, "' is no time"),
               "give a number and a unit, as in 60s, 5m or 1h30m");
}

absl::Status CheckLedger(const OpOptions& options) {
  if (options.ledger.empty()) return absl::OkStatus();
  const absl::Status opened = OpenLedger(options.ledger).status();
  if (opened.ok()) return opened;
  return Error(absl::StatusCode::kInvalidArgument, StrCat("--ledger: ", What(opened)),
               StrCat(Fix(opened), "; or --ledger none"));
}

TuneSettings Settings(const GlobalOptions& global, const OpOptions& options,
                      ProgressBar* progress) {
  TuneSettings settings;
  settings.device = options.device;
  settings.plugin_roots = global.plugins;
  settings.progress = progress;
  settings.cancel = CancelOnInterrupt();
  settings.memory_bytes = options.memory_mib << 20;
  settings.ledger_directory = options.ledger;
  if (options.timeout_s > 0) settings.timeout_s = options.timeout_s;
  return settings;
}

int Interrupted() {
  std::fputs("kvr: interrupted; only what was finished is told\n", stderr);
  return kInterrupted;
}

Json QualityJson(const std::vector<QualityMeasure>& quality) {
  Json json = Json::object();
  for (const QualityMeasure& measure : quality) json[measure.name] = measure.value;
  return json;
}

Json SkippedJson(const std::vector<Skipped>& skipped) {
  Json json = Json::array();
  for (const Skipped& skip : skipped)
    json.push_back({{"variant", skip.variant}, {"reason", skip.reason}});
  return json;
}

void PrintSkipped(const std::vector<Skipped>& skipped) {
  for (const Skipped& skip : skipped)
    Print(Wrap("skipped: " + skip.variant + ": " + skip.reason, TerminalWidth(), 0));
}

void Failures::Add(std::string where, const std::string& variant, const std::string& reason) {
  for (Failure& known : failures_) {
    if (known.variant != variant || known.reason != reason) continue;
    ++known.count;
    return;
  }
  failures_.push_back({std::move(where), variant, reason, 1});
}

void Failures::Print() const {
  for (const Failure& failure : failures_) {
    const std::string more =
        failure.count > 1 ? " (and " + std::to_string(failure.count - 1) + " more alike)" : "";
    const bool long_one = failure.reason.find('\n') != std::string::npos;
    const std::string who = failure.where + more + ":";
    cli::Print("\n" + (long_one ? who + "\n" + failure.reason + "\n"
                                : Wrap(who + " " + failure.reason, TerminalWidth(), 0)));
  }
}

std::string ShortShape(const Catalog& catalog, const std::string& op, const Axes& axes) {
  const absl::StatusOr<const Catalog::Op*> found = catalog.FindOp(op);
  if (!found.ok()) return AxesText(axes);
  Axes shown;
  for (const AxisSpec& axis : (*found)->spec().axes) {
    const auto it = axes.find(axis.name);
    if (it != axes.end() && !axis.is_const && it->second != axis.default_value) shown.insert(*it);
  }
  return shown.empty() ? "defaults" : AxesText(shown);
}

std::string ShortConfig(const Catalog& catalog, const std::string& op, const std::string& variant,
                        const Config& config) {
  const absl::StatusOr<VariantPtr> found = catalog.Find(op, variant);
  if (!found.ok()) return ConfigText(config);
  const Config defaults = DefaultConfig((*found)->tunables);
  Config differs;
  for (const auto& [name, value] : config) {
    const auto it = defaults.find(name);
    if (it == defaults.end() || it->second != value) differs[name] = value;
  }
  return differs.empty() ? "default" : ConfigText(differs);
}

}  // namespace kvr::cli
