// SPDX-License-Identifier: Apache-2.0
//
// kvr status SOCKET: what a running program serves and how it came to. With --against FILE: whether
// that is what the selection file says, as an exit code, with every difference named.
#include "core/status.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "cli/live.h"
#include "cli/table.h"
#include "core/strings.h"
#include "registry/selection_file.h"
#include "tuner/selections/exchange.h"

namespace kvr::cli {
namespace {

constexpr size_t kShownPublications = 5, kShownMisses = 8, kShownSwaps = 5;

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 60) return StrCat(whole, " s");
  if (whole < 3600) return StrCat(whole / 60, " min ", whole % 60, " s");
  if (whole < 48 * 3600) return StrCat(whole / 3600, " h ", whole / 60 % 60, " min");
  return StrCat(whole / 86400, " d ", whole / 3600 % 24, " h");
}

std::string Whole(double number) { return absl::StrFormat("%.0f", number); }

void Line(std::string_view text, int indent = 0) { Print(Wrap(text, TerminalWidth(), indent)); }

// --- what differs from the file

struct Comparison {
  std::string digest;                   // the file's
  std::vector<std::string> mismatches;  // none: as the file says
};

std::string Named(const std::string& variant, const std::string& config) {
  return StrCat(variant, " {", config, "}");
}

Axes KeyOf(const LiveJson& json) {
  Axes key;
  if (!json.is_object()) return key;
  for (const auto& [axis, value] : json.items()) {
    if (value.is_number_integer()) key[axis] = value.get<int64_t>();
  }
  return key;
}

void CompareKeys(const LiveJson& status, const SelectionContent& file, Comparison* comparison) {
  for (const LiveJson& served : PartOf(status, "served")) {
    const std::string op = TextOf(served, "op");
    const Axes key = KeyOf(PartOf(served, "key"));
    const std::string place = StrCat(op, " {", AxesText(key), "}: ");
    if (FlagOf(served, "overridden")) {
      comparison->mismatches.push_back(StrCat(
          place, "overridden (", TextOf(served, "why"),
          "): ", Named(TextOf(served, "variant"), PairsOf(PartOf(served, "config"))), " serves"));
      continue;
    }
    const auto in_op = file.ops.find(op);
    if (in_op == file.ops.end()) continue;
    const auto selected = in_op->second.by_key.find(key);
    if (selected == in_op->second.by_key.end()) continue;
    const StoredSelection& stored = selected->second;
    const std::string now = Named(TextOf(served, "variant"), PairsOf(PartOf(served, "config")));
    const std::string wanted = Named(stored.variant, ConfigText(stored.config));
    if (now != wanted) {
      comparison->mismatches.push_back(
          StrCat(place, now, " serves (", TextOf(served, "why"), "), the file selects ", wanted));
    } else if (stored.binary != Fingerprint{} && stored.binary.Hex() != TextOf(served, "binary")) {
      comparison->mismatches.push_back(
          StrCat(place, now, " serves from binary ", ShortDigest(TextOf(served, "binary")),
                 ", the file was measured with ", stored.binary.Short()));
    }
  }
}

absl::StatusOr<Comparison> Compare(const LiveJson& status, const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const SelectionContent file, ReadSelectionContent(path));
  Comparison comparison{file.Digest().Hex(), {}};
  std::vector<std::string>& out = comparison.mismatches;
  const std::string running = TextOf(PartOf(status, "generation"), "digest");
  if (running != comparison.digest) {
    out.push_back(StrCat("digest ", ShortDigest(running), " serves, the file has ",
                         ShortDigest(comparison.digest)));
    KVR_ASSIGN_OR_RETURN(const SelectionContent now,
                         ParseSelectionContent(PartOf(status, "selections").dump(), "the program"));
    for (const Difference& d : Differences(now, file)) {
      const std::string place =
          StrCat(d.op, d.key.empty() ? "" : StrCat(" {", AxesText(d.key), "}"));
      out.push_back(StrCat(place, place.empty() ? "" : ": ", d.field, " ",
                           d.a.empty() ? "(none)" : d.a, " is selected, the file has ",
                           d.b.empty() ? "(none)" : d.b));
    }
  }
  CompareKeys(status, file, &comparison);
  for (const LiveJson& dropped : PartOf(status, "dropped")) {
    out.push_back(StrCat(TextOf(dropped, "op"), " {", PairsOf(PartOf(dropped, "key")),
                         "}: the program could not take over ", TextOf(dropped, "variant"), ": ",
                         TextOf(dropped, "reason")));
  }
  if (PartOf(status, "live_ab").is_string()) {
    out.push_back(StrCat("a live A/B runs: ", TextOf(status, "live_ab")));
  }
  return comparison;
}

// --- text

void PrintHead(const LiveJson& status) {
  const LiveJson& device = PartOf(status, "device");
  const LiveJson& generation = PartOf(status, "generation");
  Line(absl::StrFormat("%s (pid %.0f), up %s, on %s (%s)%s", TextOf(status, "program"),
                       NumberOf(status, "pid"), Duration(NumberOf(status, "uptime_s")),
                       TextOf(device, "name"), TextOf(device, "target"),
                       FlagOf(status, "frozen") ? ", frozen" : ""));
  Line(absl::StrFormat("generation %.0f, digest %s", NumberOf(generation, "number"),
                       TextOf(generation, "digest")));
  if (PartOf(status, "live_ab").is_string()) {
    Line(StrCat("a live A/B runs: ", TextOf(status, "live_ab")));
  }
}

void PrintServed(const LiveJson& status) {
  Table table({{"operation"}, {"key"}, {"variant"}, {"config"}, {"binary"}, {"why"}});
  for (const LiveJson& served : PartOf(status, "served")) {
    table.Row({TextOf(served, "op"), PairsOf(PartOf(served, "key")),
               StrCat(TextOf(served, "variant"), " ", TextOf(served, "version")),
               PartOf(served, "chosen").empty() ? "default" : PairsOf(PartOf(served, "chosen")),
               ShortDigest(TextOf(served, "binary")), TextOf(served, "why")});
  }
  Print(table.empty() ? "\nnothing is loaded\n" : StrCat("\n", table.Render(TerminalWidth())));
}

void PrintOverrides(const LiveJson& status) {
  std::vector<std::string> texts;
  for (const LiveJson& forced : PartOf(status, "overrides")) {
    texts.push_back(StrCat(TextOf(forced, "op"), " ", TextOf(forced, "what"), " ",
                           TextOf(forced, "value"), " (", TextOf(forced, "source"), ")"));
  }
  Line(StrCat("overrides: ", texts.empty() ? "none" : StrJoin(texts, ", ")));
}

void PrintPlugins(const LiveJson& status) {
  const LiveJson& plugins = PartOf(status, "plugins");
  const LiveJson& rejected = PartOf(plugins, "rejected");
  std::vector<std::string> names;
  for (const LiveJson& plugin : PartOf(plugins, "loaded")) {
    const std::string name = TextOf(plugin, "name");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  Line(StrCat("plugins: ", StrJoin(names, ", "),
              rejected.empty() ? "" : StrCat("; rejected: ", rejected.size())));
  for (const LiveJson& rejection : rejected) {
    Line(StrCat("rejected: ", TextOf(rejection, "path"), ": ", TextOf(rejection, "what")), 2);
  }
}

void PrintCounters(const LiveJson& status) {
  const LiveJson& c = PartOf(status, "counters");
  const auto count = [&](const char* name) { return Whole(NumberOf(c, name)); };
  Line(StrCat("captured launches: ", count("captured"), " in scopes, ", count("unscoped"),
              " outside; executables: ", count("applied"), " patched, ", count("recaptures"),
              " need recapture"));
  Line(StrCat("generations: ", count("generations"), " published (", count("rollbacks"),
              " rollbacks), ", count("failed"), " failed; ", count("retired"), " configs retired"));
  Line(StrCat("misses: ", count("misses"), " (", count("not_loaded"), " not loaded, ",
              count("not_selected"), " not selected, ", count("not_fitting"), " not fitting); ",
              count("baseline"), " served by the baseline, ", count("refused"), " refused"));
  size_t shown = 0;
  const LiveJson& misses = PartOf(status, "misses");
  for (const LiveJson& miss : misses) {
    if (shown++ == kShownMisses) {
      Line(StrCat("and ", misses.size() - kShownMisses, " keys more"), 2);
      break;
    }
    Line(StrCat("missed: ", TextOf(miss, "op"), " {", PairsOf(PartOf(miss, "key")),
                "}: ", TextOf(miss, "reason"), ", ",
                Count(static_cast<size_t>(NumberOf(miss, "count")), "time")),
         2);
  }
}

void PrintSteps(const LiveJson& status) {
  const LiveJson& steps = PartOf(status, "steps");
  Line(StrCat("steps: ", Whole(NumberOf(steps, "steps")), ", errors ",
              Whole(NumberOf(steps, "errors"))));
  Table table({{"bucket"},
               {"steps", Table::Align::kRight},
               {"p50", Table::Align::kRight},
               {"p99", Table::Align::kRight}});
  for (const LiveJson& bucket : PartOf(steps, "buckets")) {
    table.Row({TextOf(bucket, "bucket"), Whole(NumberOf(bucket, "steps")),
               Microseconds(NumberOf(bucket, "p50_us")), Microseconds(NumberOf(bucket, "p99_us"))});
  }
  if (!table.empty()) Print(StrCat("\n", table.Render(TerminalWidth())));
}

void PrintHistory(const LiveJson& status) {
  Table publications({{"publications"}, {"trigger"}, {"outcome"}, {"digest"}, {"who"}, {"reason"}});
  size_t shown = 0;
  for (const LiveJson& record : PartOf(status, "publications")) {
    if (shown++ == kShownPublications) break;
    publications.Row({TextOf(record, "time"), TextOf(record, "trigger"), TextOf(record, "outcome"),
                      ShortDigest(TextOf(record, "after")), TextOf(record, "who"),
                      TextOf(record, "reason")});
  }
  if (!publications.empty()) Print(StrCat("\n", publications.Render(TerminalWidth()), "\n"));
  std::vector<std::string> older;
  for (const LiveJson& generation : PartOf(status, "history")) {
    older.push_back(absl::StrFormat("%s (%.0f)", ShortDigest(TextOf(generation, "digest")),
                                    NumberOf(generation, "number")));
  }
  Line(StrCat("can be had back at once: ", StrJoin(older, ", ")));
  shown = 0;
  for (const LiveJson& swap : PartOf(status, "swaps")) {
    if (shown++ == kShownSwaps) break;
    const LiveJson& error = PartOf(swap, "error");
    const std::string step = TextOf(swap, "step");
    Line(StrCat("swap ", Whole(NumberOf(swap, "id")), ": ", TextOf(swap, "state"),
                step.empty() ? "" : StrCat(" (", step, ")"),
                error.is_object() ? StrCat(": ", TextOf(error, "what")) : ""));
  }
}

void PrintText(const LiveJson& status) {
  PrintHead(status);
  PrintServed(status);
  Print("\n");
  PrintOverrides(status);
  PrintPlugins(status);
  PrintCounters(status);
  PrintSteps(status);
  PrintHistory(status);
}

absl::StatusOr<int> RunStatus(const GlobalOptions& global, const std::string& socket,
                              const std::string& against) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<LiveClient> client, LiveClient::Connect(socket));
  LiveRequest request;
  request.command = LiveRequest::Command::kStatus;
  request.selections = !against.empty();
  KVR_ASSIGN_OR_RETURN(LiveJson status, client->Call(request));
  std::optional<Comparison> comparison;
  if (!against.empty()) {
    KVR_ASSIGN_OR_RETURN(comparison, Compare(status, against));
  }
  const bool matches = !comparison || comparison->mismatches.empty();
  if (global.json) {
    status.erase("event");
    status.erase("selections");
    if (comparison) {
      status["against"] = {{"file", against},
                           {"digest", comparison->digest},
                           {"matches", matches},
                           {"mismatches", comparison->mismatches}};
    }
    PrintJson(status);
    return matches ? kDone : kFailed;
  }
  PrintText(status);
  if (!comparison) return kDone;
  Print(matches ? StrCat("\nas ", against, " selects\n")
                : StrCat("\nnot as ", against, " selects:\n"));
  for (const std::string& mismatch : comparison->mismatches) {
    Print(Wrap(mismatch, TerminalWidth(), 2));
  }
  return matches ? kDone : kFailed;
}

}  // namespace

void AddStatus(CLI::App& app, Commands& commands) {
  struct Options {
    std::string socket, against;
  };
  auto options = std::make_shared<Options>();
  CLI::App* sub = Subcommand(app, "status", "What a running program serves, and why",
                             "kvr status kvr.sock --against h200.json",
                             "0 done, and with --against: it serves what the file selects; 1 it "
                             "does not, and what differs is named");
  AddSocket(sub, &options->socket);
  sub->add_option("--against", options->against, "the selection file that it should serve")
      ->type_name("FILE");
  sub->callback([&commands, options] {
    commands.run = [&commands, options] {
      return RunStatus(commands.global, options->socket, options->against);
    };
  });
}

}  // namespace kvr::cli
