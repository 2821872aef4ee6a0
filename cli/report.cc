// SPDX-License-Identifier: Apache-2.0
//
// kvr report OP: what the ledger knows of the op's variants, as Markdown and as one HTML page.
// Nothing is measured.
#include "tuner/report/report.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/command.h"
#include "cli/ledger.h"
#include "core/config.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/profiles.h"
#include "tuner/report/collect.h"

namespace kvr::cli {
namespace {

struct ReportOptions : OpOptions {
  bool ship = false;
  std::string since, why, title, out;
};

absl::Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (file) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable,
               StrCat(path, " cannot be written: ", std::strerror(errno)),
               "give --out a writable place");
}

// A mistyped place is not made.
absl::Status CheckOut(const std::string& prefix) {
  const std::filesystem::path path(prefix);
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  if (prefix.empty() || (path.has_filename() && std::filesystem::is_directory(parent, error))) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, StrCat("--out ", prefix, " names no file to be"),
               "give a directory that exists and the beginning of a name in it: docs/w8");
}

// What one of this model moves, if a profile knows.
double Bandwidth(const ledger::Environment& environment) {
  const absl::StatusOr<DeviceInfo> profile = LoadProfileOfModel(environment.device_model);
  return profile.ok() ? profile->memory_bandwidth : 0;
}

Json RowsJson(const std::vector<report::Row>& all) {
  const auto figure = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  Json rows = Json::array();
  for (const report::Row& row : all) {
    rows.push_back({{"axes", row.axes},
                    {"where", row.where},
                    {"challenger", report::Named(row.challenger)},
                    {"incumbent", report::Named(row.incumbent)},
                    {"kind", row.kind},
                    {"verdict", row.verdict},
                    {"reason", row.reason},
                    {"difference", figure(row.difference)},
                    {"low", figure(row.low)},
                    {"high", figure(row.high)},
                    {"band", figure(row.band)},
                    {"challenger_us", figure(row.challenger_us)},
                    {"incumbent_us", figure(row.incumbent_us)},
                    {"quality", row.quality},
                    {"sessions", row.sessions},
                    {"rounds", row.rounds}});
  }
  return rows;
}

Json ToJson(const report::Report& report) {
  Json singles = Json::array();
  for (const report::Singles& of : report.singles) {
    singles.push_back({{"keys", of.keys},
                       {"where", of.where},
                       {"single", report::Named(of.single)},
                       {"worth", report::Worth(of)},
                       {"rows", RowsJson(of.rows)}});
  }
  return {{"title", report.title},         {"conclusion", report.conclusion},
          {"rows", RowsJson(report.rows)}, {"singles", singles},
          {"negatives", report.negatives}, {"published", report.published},
          {"regret", report.regret}};
}

absl::StatusOr<int> RunReport(const GlobalOptions& global, const ReportOptions& options) {
  KVR_RETURN_IF_ERROR(CheckOut(options.out));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  absl::StatusOr<std::unique_ptr<ledger::Ledger>> ledger =
      OpenLedger(options.ledger, {.read_only = true});
  if (absl::IsNotFound(ledger.status())) {
    return Error(absl::StatusCode::kFailedPrecondition, What(ledger.status()),
                 Fix(ledger.status()));
  }
  KVR_RETURN_IF_ERROR(ledger.status());
  if (*ledger == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "there is no ledger to report from",
                 "name its directory with --ledger");
  }
  report::CollectRequest request;
  request.op = options.op;
  for (const std::string& text : options.axes) {
    KVR_ASSIGN_OR_RETURN(Axes axes, ParseAxes(text));
    request.axes.push_back(std::move(axes));
  }
  request.variants = options.variants;
  if (options.ship) request.kind = "ship";
  request.since = options.since;
  request.title = options.title;
  request.why = options.why;
  request.bandwidth = Bandwidth;
  // A ledger may have come from where there are other plugins: an op that is not here has no floor.
  const absl::StatusOr<const Catalog::Op*> op = platform->catalog().FindOp(options.op);
  if (op.ok()) {
    request.operation = (*op)->operation.get();
    for (const VariantPtr& variant : (*op)->variants) {
      request.descriptions[variant->name] = variant->description;
      request.defaults[variant->name] = ConfigText(DefaultConfig(variant->tunables));
    }
  }
  const absl::StatusOr<report::Report> report = report::Collect(**ledger, request);
  if (!report.ok()) {
    const bool known = op.ok() || report::Collect(**ledger, {.op = options.op}).ok();
    return known ? report.status() : op.status();
  }

  if (options.out.empty()) {
    if (global.json) {
      PrintJson(ToJson(*report));
    } else {
      Print(report::ToMarkdown(*report));
    }
    return ExitCode(global, platform->catalog(), false);
  }
  const std::string markdown = options.out + ".md", page = options.out + ".html";
  KVR_RETURN_IF_ERROR(WriteFile(markdown, report::ToMarkdown(*report)));
  KVR_RETURN_IF_ERROR(WriteFile(page, report::ToHtml(*report)));
  if (global.json) {
    Json json = ToJson(*report);
    json["files"] = {markdown, page};
    PrintJson(json);
  } else {
    Print(StrCat(markdown, "\n", page, "\n"));
  }
  return ExitCode(global, platform->catalog(), false);
}

}  // namespace

void AddReport(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* sub = Subcommand(app, "report", "A comparison as a document, from the ledger",
                             "kvr report mla_sparse_decode --variant w8 --ship --out docs/w8");
  options->AddOp(sub);
  sub->add_option("--axes", options->axes,
                  "only these shapes; an axis left out may have any value; repeatable")
      ->type_name("A=N,...")
      ->allow_extra_args(false)
      ->take_all();
  sub->add_option("--variant", options->variants, "only this challenger; repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->take_all();
  sub->add_flag("--ship", options->ship, "of the verdicts only those of kvr ab --ship");
  sub->add_option("--since", options->since,
                  "everything from this time on, UTC, as in 2026-11-30; left out: the newest run "
                  "of each comparison")
      ->type_name("TIME");
  sub->add_option("--why", options->why, "the question, for the document")->type_name("TEXT");
  sub->add_option("--title", options->title, "the document's title")->type_name("TEXT");
  sub->add_option("--out", options->out,
                  "write PREFIX.md and PREFIX.html; left out: Markdown to standard output")
      ->type_name("PREFIX");
  AddLedger(sub, &options->ledger);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunReport(commands.global, *options); };
  });
}

}  // namespace kvr::cli
