// SPDX-License-Identifier: Apache-2.0
//
// kvr cache ls | verify | prune | clear | export | import: the compiled binaries on disk.
#include <algorithm>
#include <map>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/variant.h"
#include "jit/cache_layer.h"

namespace kvr::cli {
namespace {

struct CacheCommand {
  std::string targets;           // --target
  std::vector<std::string> ops;  // --op
  std::string directory;
  int64_t max_bytes = -1, older_than_s = -1;
  bool yes = false;
};

BinaryCache OpenCache() {
  return BinaryCache(DefaultCacheOptions("", [](std::string_view text) {
    std::fprintf(stderr, "kvr: %.*s\n", static_cast<int>(text.size()), text.data());
  }));
}

absl::StatusOr<LayerFilter> Filter(const CacheCommand& command) {
  LayerFilter filter;
  if (!command.targets.empty()) {
    KVR_ASSIGN_OR_RETURN(filter.targets, ParseTargets(command.targets));
  }
  filter.ops = command.ops;
  return filter;
}

std::string Utc(int64_t seconds) {
  return absl::FormatTime(absl::RFC3339_sec, absl::FromUnixSeconds(seconds), absl::UTCTimeZone());
}

std::string PathOf(const BinaryCache::Info& entry) {
  return EntryStore(entry.layer, CacheFiles::System()).PathOf(entry.key);
}

std::string RootName(const BinaryCache& cache) {
  return cache.root().empty() ? "(memory only: no home directory)" : cache.root();
}

absl::StatusOr<int> RunList(const GlobalOptions& global, const CacheCommand& command) {
  KVR_ASSIGN_OR_RETURN(const LayerFilter filter, Filter(command));
  const bool all = filter.targets.empty() && filter.ops.empty();
  const BinaryCache cache = OpenCache();
  struct Sum {
    size_t entries = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Sum> sums;
  Sum total;
  Json list = Json::array();
  Table table({{"key"},
               {"binary"},
               {"target"},
               {"size", Table::Align::kRight},
               {"written (UTC)", Table::Align::kRight}});
  for (const BinaryCache::Info& entry : cache.List()) {
    const LayerBinary binary{.label = entry.label, .target = entry.target};
    if (!all && !(entry.valid() && filter.Takes(binary))) continue;
    for (Sum* sum : {&sums[entry.layer], &total}) {
      ++sum->entries;
      sum->bytes += entry.file_bytes;
    }
    list.push_back({{"key", entry.key.Hex()},
                    {"label", entry.label},
                    {"target", entry.target},
                    {"compiler", entry.compiler},
                    {"kernels", entry.entries},
                    {"bytes", entry.bytes},
                    {"file_bytes", entry.file_bytes},
                    {"written", Utc(entry.written)},
                    {"used", Utc(entry.used)},
                    {"layer", entry.layer},
                    {"valid", entry.valid()}});
    table.Row({entry.key.Short(),
               entry.valid() ? entry.label : StrCat("(", entry.damage, ": counts as a miss)"),
               entry.target, Bytes(entry.file_bytes), Minute(Utc(entry.written))});
  }
  std::vector<std::string> directories;
  for (const EntryStore& layer : cache.layers()) directories.push_back(layer.root());
  if (global.json) {
    PrintJson({{"root", cache.root()},
               {"layers", directories},
               {"entries", list},
               {"file_bytes", total.bytes}});
    return kDone;
  }
  if (!table.empty()) Print(table.Render(TerminalWidth()));
  for (const std::string& layer : directories) {
    Print(StrCat(Count(sums[layer].entries, "binary"), ", ", Bytes(sums[layer].bytes),
                 " in the read-only layer ", layer, "\n"));
  }
  Print(StrCat(Count(sums[cache.root()].entries, "binary"), ", ", Bytes(sums[cache.root()].bytes),
               " in ", RootName(cache), "\n"));
  return kDone;
}

// {path, what is wrong} pairs as JSON, or a line each.
Json FaultsJson(const std::vector<std::pair<std::string, std::string>>& faults) {
  Json json = Json::array();
  for (const auto& [path, what] : faults) json.push_back({{"path", path}, {"what", what}});
  return json;
}
void PrintFaults(const std::vector<std::pair<std::string, std::string>>& faults) {
  for (const auto& [path, what] : faults) Print(StrCat(path, " ", what, "\n"));
}

absl::StatusOr<int> RunVerify(const GlobalOptions& global, const CacheCommand&) {
  const BinaryCache cache = OpenCache();
  std::vector<std::pair<std::string, std::string>> damaged;
  std::map<std::string, std::vector<Fingerprint>> there;
  size_t checked = 0;
  for (const BinaryCache::Info& entry : cache.List()) {
    ++checked;
    there[entry.layer].push_back(entry.key);
    if (!entry.valid()) damaged.emplace_back(PathOf(entry), entry.damage);
  }
  // A layer is copied from elsewhere: what its manifest lists must have arrived.
  for (const EntryStore& layer : cache.layers()) {
    const absl::StatusOr<LayerManifest> manifest = ReadManifest(layer.root());
    if (absl::IsNotFound(manifest.status())) continue;
    if (!manifest.ok()) {
      damaged.emplace_back(layer.root(), StrCat("is damaged: ", What(manifest.status())));
      continue;
    }
    const std::vector<Fingerprint>& keys = there[layer.root()];
    for (const LayerBinary& binary : manifest->binaries) {
      if (std::find(keys.begin(), keys.end(), binary.key) != keys.end()) continue;
      damaged.emplace_back(layer.PathOf(binary.key),
                           StrCat("is missing: the manifest lists ", binary.label));
    }
  }
  const size_t quarantined = cache.root().empty() ? 0 : cache.store().Quarantined().size();
  if (global.json) {
    PrintJson({{"root", cache.root()},
               {"checked", checked},
               {"damaged", FaultsJson(damaged)},
               {"quarantined", quarantined}});
  } else {
    PrintFaults(damaged);
    Print(StrCat(Count(checked, "binary"), " checked, ", damaged.size(), " damaged",
                 damaged.empty() ? "" : ": the next use of each compiles it anew", "\n"));
    if (quarantined > 0) {
      Print(StrCat(Count(quarantined, "entry"), " met damaged before in ", cache.root(),
                   "/quarantine\n"));
    }
  }
  return damaged.empty() ? kDone : kFailed;
}

absl::Status NeedsRoot(const BinaryCache& cache) {
  if (!cache.root().empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "there is no cache directory",
               "set KVR_CACHE_DIR");
}

int ReportRemoved(const GlobalOptions& global, const BinaryCache& cache, const Removed& removed) {
  if (global.json) {
    Json keys = Json::array();
    for (const EntryFile& entry : removed.entries) keys.push_back(entry.key.Hex());
    PrintJson({{"root", cache.root()},
               {"removed", keys},
               {"file_bytes", removed.bytes},
               {"temporaries", removed.temporaries}});
    return kDone;
  }
  Print(StrCat("removed ", Count(removed.entries.size(), "binary"), ", ", Bytes(removed.bytes),
               removed.temporaries > 0
                   ? StrCat(", and ", Count(static_cast<size_t>(removed.temporaries), "file"),
                            " left by writers that died")
                   : std::string(),
               " from ", cache.root(), "\n"));
  return kDone;
}

absl::StatusOr<int> RunPrune(const GlobalOptions& global, const CacheCommand& command) {
  KVR_ASSIGN_OR_RETURN(const LayerFilter filter, Filter(command));
  const BinaryCache cache = OpenCache();
  KVR_RETURN_IF_ERROR(NeedsRoot(cache));
  TrimPolicy policy{.max_bytes = command.max_bytes, .unused_seconds = command.older_than_s};
  if (!filter.targets.empty() || !filter.ops.empty()) {
    std::vector<Fingerprint> matching;
    for (const BinaryCache::Info& entry : cache.List()) {
      const LayerBinary binary{.label = entry.label, .target = entry.target};
      if (entry.valid() && filter.Takes(binary)) matching.push_back(entry.key);
    }
    policy.only = std::move(matching);
    if (policy.max_bytes < 0 && policy.unused_seconds < 0) policy.max_bytes = 0;
  } else if (policy.max_bytes < 0 && policy.unused_seconds < 0) {
    policy.max_bytes = cache.max_bytes() > 0 ? cache.max_bytes() : -1;
  }
  return ReportRemoved(global, cache, cache.store().Trim(policy));
}

absl::StatusOr<int> RunClear(const GlobalOptions& global, const CacheCommand& command) {
  const BinaryCache cache = OpenCache();
  KVR_RETURN_IF_ERROR(NeedsRoot(cache));
  if (!command.yes) {
    const std::vector<EntryFile> files = cache.store().Files();
    int64_t bytes = 0;
    for (const EntryFile& file : files) bytes += file.bytes;
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("this would remove ", Count(files.size(), "binary"), ", ", Bytes(bytes),
                        ", and the quarantine from ", cache.root()),
                 "say so with --yes; read-only layers are never touched");
  }
  return ReportRemoved(global, cache, cache.store().Clear());
}

int ReportTransfer(const GlobalOptions& global, const std::string& to, std::string_view verb,
                   const Transfer& transfer) {
  if (global.json) {
    PrintJson({{"directory", to},
               {"copied", transfer.copied},
               {"present", transfer.present},
               {"file_bytes", transfer.bytes},
               {"refused", FaultsJson(transfer.refused)}});
  } else {
    PrintFaults(transfer.refused);
    Print(StrCat(verb, " ", Count(static_cast<size_t>(transfer.copied), "binary"), ", ",
                 Bytes(transfer.bytes), ", to ", to, "; ", transfer.present, " were there",
                 transfer.refused.empty() ? "" : StrCat("; ", transfer.refused.size(), " refused"),
                 "\n"));
  }
  return transfer.refused.empty() ? kDone : kFailed;
}

absl::StatusOr<int> RunExport(const GlobalOptions& global, const CacheCommand& command) {
  KVR_ASSIGN_OR_RETURN(const LayerFilter filter, Filter(command));
  const BinaryCache cache = OpenCache();
  KVR_ASSIGN_OR_RETURN(const Transfer transfer, ExportLayer(cache, command.directory, filter));
  return ReportTransfer(global, command.directory, "exported", transfer);
}

absl::StatusOr<int> RunImport(const GlobalOptions& global, const CacheCommand& command) {
  KVR_ASSIGN_OR_RETURN(const LayerFilter filter, Filter(command));
  BinaryCache cache = OpenCache();
  KVR_ASSIGN_OR_RETURN(const Transfer transfer, ImportLayer(command.directory, cache, filter));
  return ReportTransfer(global, cache.root(), "imported", transfer);
}

}  // namespace

void AddCache(CLI::App& app, Commands& commands) {
  CLI::App* cache = Subcommand(app, "cache", "The cache of compiled binaries", "kvr cache ls");
  cache->require_subcommand(1);
  auto command = std::make_shared<CacheCommand>();
  const auto add = [&](const char* name, const char* description, const char* example,
                       absl::StatusOr<int> (*run)(const GlobalOptions&, const CacheCommand&)) {
    CLI::App* sub = Subcommand(*cache, name, description, example);
    sub->callback([&commands, command, run] {
      commands.run = [&commands, command, run] { return run(commands.global, *command); };
    });
    return sub;
  };
  const auto add_filter = [&](CLI::App* sub) {
    sub->add_option("--target", command->targets, "only binaries for these, as in sm_90a,sm_120a")
        ->type_name("T,...");
    sub->add_option("--op", command->ops, "only binaries of this operation; repeatable")
        ->type_name("OP")
        ->allow_extra_args(false)
        ->take_all();
  };
  const auto add_directory = [&](CLI::App* sub, const char* description) {
    sub->add_option("DIR", command->directory, description)->required();
  };

  add_filter(add("ls", "List the entries, newest first", "kvr cache ls --json", RunList));
  add("verify", "Check every entry's checksum; exit 1 if one is damaged", "kvr cache verify",
      RunVerify);

  CLI::App* prune =
      add("prune", "Remove what was used longest ago, down to KVR_CACHE_MAX_BYTES or as said",
          "kvr cache prune --max-size 500MiB", RunPrune);
  prune
      ->add_option("--max-size", command->max_bytes,
                   "leave at most this much, of what --target and --op name if they are given")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("SIZE");
  prune->add_option("--older-than", command->older_than_s, "remove what was not used for so long")
      ->transform(CLI::AsNumberWithUnit(
          std::map<std::string, int64_t>{{"h", 3600}, {"d", 86400}},
          CLI::AsNumberWithUnit::Options(CLI::AsNumberWithUnit::UNIT_REQUIRED)))
      ->type_name("30d|12h");
  add_filter(prune);

  CLI::App* clear = add("clear", "Remove every entry and the quarantine; layers stay",
                        "kvr cache clear --yes", RunClear);
  clear->add_flag("--yes", command->yes, "really");

  CLI::App* exporting = add("export", "Make a read-only layer for other machines, or add to one",
                            "kvr cache export /srv/kvr-layer --target sm_90a", RunExport);
  add_directory(exporting, "a new or an empty directory, or a layer");
  add_filter(exporting);
  CLI::App* importing = add("import", "Take over a layer's entries, each verified first",
                            "kvr cache import /srv/kvr-layer", RunImport);
  add_directory(importing, "a directory that `kvr cache export` made");
  add_filter(importing);
}

}  // namespace kvr::cli
