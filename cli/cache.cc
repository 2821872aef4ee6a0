// SPDX-License-Identifier: Apache-2.0
//
// kvr cache ls: the compiled binaries on disk.
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/status.h"

namespace kvr::cli {
namespace {

absl::StatusOr<int> RunCacheList(const GlobalOptions& global) {
  BinaryCache cache(DefaultCacheRoot());
  const std::vector<BinaryCache::Info> entries = cache.List();
  int64_t total = 0;
  Json list = Json::array();
  Table table({{"key"},
               {"binary"},
               {"target"},
               {"size", Table::Align::kRight},
               {"written", Table::Align::kRight}});
  for (const BinaryCache::Info& entry : entries) {
    total += entry.file_bytes;
    const std::string written = absl::FormatTime(
        absl::RFC3339_sec, absl::FromUnixSeconds(entry.written), absl::UTCTimeZone());
    list.push_back({{"key", entry.key.Hex()},
                    {"label", entry.label},
                    {"target", entry.target},
                    {"compiler", entry.compiler},
                    {"kernels", entry.entries},
                    {"bytes", entry.bytes},
                    {"file_bytes", entry.file_bytes},
                    {"written", written},
                    {"valid", entry.valid()}});
    table.Row({entry.key.Short(), entry.valid() ? entry.label : "(damaged: counts as a miss)",
               entry.target, Bytes(entry.file_bytes), written});
  }
  if (global.json) {
    PrintJson({{"root", cache.root()}, {"entries", list}, {"file_bytes", total}});
    return kDone;
  }
  if (!table.empty()) Print(table.Render(TerminalWidth()));
  const std::string where =
      cache.root().empty() ? "(memory only: no home directory)" : cache.root();
  Print(std::to_string(entries.size()) + (entries.size() == 1 ? " binary, " : " binaries, ") +
        Bytes(total) + " in " + where + "\n");
  return kDone;
}

}  // namespace

void AddCache(CLI::App& app, Commands& commands) {
  CLI::App* cache = Subcommand(app, "cache", "The cache of compiled binaries", "kvr cache ls");
  cache->require_subcommand(1);
  CLI::App* list =
      Subcommand(*cache, "ls", "List the entries, newest first", "kvr cache ls --json");
  list->callback(
      [&commands] { commands.run = [&commands] { return RunCacheList(commands.global); }; });
}

}  // namespace kvr::cli
