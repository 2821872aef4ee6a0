// SPDX-License-Identifier: Apache-2.0
//
// kvr config: every environment variable and global option: its value here, where that comes from,
// its default and its meaning. kSettings is the one table: docs/options.md is printed from it, and
// a test holds it against the names that the sources read (tests/cli/config_test.py).
#include <cstdlib>

#include "api/host_library.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/install_layout.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/profiles.h"
#include "jit/cache.h"
#include "jit/nvrtc/nvrtc.h"
#include "jit/sdk.h"
#include "registry/overrides.h"
#include "tuner/ledger/ledger.h"
#include "tuner/worker/client.h"

namespace kvr::cli {
namespace {

std::string Variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? "" : value;
}

// What there is, or why there is none, in brackets.
std::string FoundOr(const absl::StatusOr<std::string>& found) {
  return found.ok() ? *found : StrCat("[", What(found.status()), "]");
}

struct Setting {
  std::string_view name;
  std::string_view fallback;  // its default, in words
  std::string_view meaning;
  std::string (*in_effect)() = nullptr;  // where that is more than the variable's own text
  const char* base = nullptr;            // the variable its default builds on; then HOME
};

constexpr Setting kVariables[] = {
    {"KVR_CACHE_DIR", "$XDG_CACHE_HOME/kvr, else ~/.cache/kvr",
     "the binary cache: what was compiled, by content", [] { return DefaultCacheRoot(); },
     "XDG_CACHE_HOME"},
    {"XDG_CACHE_HOME", "~/.cache", "where caches go, KVR's among them; KVR_CACHE_DIR comes first"},
    {"KVR_LEDGER_DIR", "$XDG_STATE_HOME/kvr, else ~/.local/state/kvr",
     "the ledger: what was tried, measured and decided; none: keep nothing; --ledger comes first",
     [] { return ledger::DefaultLedgerDirectory(); }, "XDG_STATE_HOME"},
    {"XDG_STATE_HOME", "~/.local/state",
     "where programs keep their state, KVR's ledger among it; KVR_LEDGER_DIR comes first"},
    {"HOME", "", "the user's directory, where the variables above name none"},
    {"KVR_PLUGIN_PATH", "",
     "further directories of bundles and plugins, colon separated, after the built-in ones"},
    {"KVR_CACHE_LAYERS", "<prefix>/share/kvr/cache, where it exists",
     "read-only cache directories (kvr cache export makes them), colon separated, looked at before "
     "the user's",
     [] {
       std::vector<std::string> layers = DefaultCacheOptions("", nullptr).layers;
       return StrJoin(layers, ":");
     }},
    {"KVR_CACHE_MAX_BYTES", "2 GiB", "how large the user's cache may become; 0: no limit",
     [] { return StrCat(DefaultCacheOptions("", nullptr).max_bytes); }},
    {"KVR_SELECTIONS", "",
     "the selection file, for commands that take --selections, which comes first"},
    {"KVR_FORCE_<OP>", "", "launch this variant of the operation, whatever is selected"},
    {"KVR_<OP>_<TUNABLE>", "", "a tunable's value: above the selection's, below --set"},
    {"KVR_NO_CUDA", "0", "1: as if there were no CUDA at all, neither compiler nor driver"},
    {"KVR_CUDA_HOME", "CUDA_HOME, KVR_WHEELS, /usr/local/cuda, the loader's path: the first usable",
     "the CUDA toolkit (or site-packages with NVIDIA's wheels) that compiles; if set, the only "
     "place",
     [] {
       const absl::StatusOr<Toolchain> found = FindToolchain({});
       return found.ok() ? found->library : FoundOr(found.status());
     }},
    {"CUDA_HOME", "", "a CUDA toolkit, looked at after KVR_CUDA_HOME"},
    {"KVR_WHEELS", "<prefix>/.venv", "a site-packages directory with NVIDIA's wheels",
     [] { return WheelsDirectory(); }},
    {"KVR_SDK_DIR", "<prefix>/share/kvr/sdk/device", "KVR's headers for kernels",
     [] { return FoundOr(FindSdkDir()); }},
    {"KVR_PROFILES_DIR", "<prefix>/share/kvr/profiles", "the device profiles",
     [] { return FoundOr(ProfilesDirectory()); }},
    {"KVR_HOST_MODULE", "<prefix>/lib/libkvr_host.so", "the host device and its compiler",
     [] { return FoundOr(HostLibraryPath()); }},
    {"KVR_WORKER", "<prefix>/bin/kvr-worker", "the executable that verifies and measures",
     [] { return FoundOr(FindWorker()); }},
    {"KVR_LOG", "", "info or debug: what serving programs log, a JSON object a line"},
    {"KVR_LOG_FILE", "standard error", "the file that the log is appended to"},
    {"COLUMNS", "100", "how wide output is that goes to a file or a pipe; a terminal says itself"},
};

constexpr Setting kOptions[] = {
    {"--plugins", "",
     "a directory of bundles and plugins, or a plugin, besides the built-in ones; repeatable; exit "
     "code 1 if any of it is refused"},
    {"--json", "off", "one JSON document on standard output instead of tables"},
    {"--help", "", "what a command does, an example, its exit codes"},
    {"--version", "", "KVR's version"},
};

struct Row {
  std::string name, value, from;
  const Setting* setting;
};

// What decided: the setting's own variable, or one that its default builds on.
std::string From(const Setting& setting) {
  if (!Variable(setting.name).empty()) return "environment";
  if (setting.base != nullptr) {
    for (const char* other : {setting.base, "HOME"})
      if (!Variable(other).empty()) return other;
  }
  return "default";
}

std::vector<Row> VariableRows(const Catalog& catalog, const Overrides& overrides) {
  std::vector<Row> rows;
  for (const Setting& setting : kVariables) {
    if (setting.name.find('<') == std::string_view::npos) {
      rows.push_back({std::string(setting.name),
                      setting.in_effect == nullptr ? Variable(setting.name) : setting.in_effect(),
                      From(setting), &setting});
      continue;
    }
    const size_t before = rows.size();
    for (const auto& op : catalog.ops()) {
      const Overrides::ForOp* forced = overrides.Find(op->name());
      if (forced == nullptr) continue;
      if (setting.name != "KVR_FORCE_<OP>") {
        for (const auto& [tunable, value] : forced->tunables)
          rows.push_back({value.source, StrCat(value.value), "environment", &setting});
      } else if (!forced->variant.empty()) {
        rows.push_back({forced->variant_source, forced->variant, "environment", &setting});
      }
    }
    if (rows.size() == before) rows.push_back({std::string(setting.name), "", "default", &setting});
  }
  return rows;
}

std::vector<Row> OptionRows(const GlobalOptions& global) {
  std::vector<Row> rows;
  for (const Setting& setting : kOptions) {
    std::string value;
    if (setting.name == "--plugins") value = StrJoin(global.plugins, ", ");
    if (setting.name == "--json" && global.json) value = "on";
    const char* from = value.empty() ? "default" : "command line";
    rows.push_back({std::string(setting.name), std::move(value), from, &setting});
  }
  return rows;
}

void PrintMarkdown() {
  const auto table = [](std::string_view kind, const auto& settings) {
    Print(StrCat("| ", kind, " | default | meaning |\n|---|---|---|\n"));
    for (const Setting& setting : settings) {
      Print(StrCat("| `", setting.name, "` | ",
                   setting.fallback.empty() ? "none" : StrCat("`", setting.fallback, "`"), " | ",
                   setting.meaning, " |\n"));
    }
  };
  table("variable", kVariables);
  Print("\n");
  table("option", kOptions);
}

absl::StatusOr<int> RunConfig(const GlobalOptions& global, bool markdown) {
  if (markdown) {
    PrintMarkdown();
    return kDone;
  }
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(const Overrides overrides, Overrides::FromEnvironment(platform->catalog()));
  std::vector<Row> rows = VariableRows(platform->catalog(), overrides);
  const std::vector<Row> options = OptionRows(global);
  rows.insert(rows.end(), options.begin(), options.end());
  if (global.json) {
    Json settings = Json::array();
    for (const Row& row : rows) {
      settings.push_back({{"name", row.name},
                          {"setting", row.setting->name},
                          {"value", row.value},
                          {"from", row.from},
                          {"default", row.setting->fallback},
                          {"meaning", row.setting->meaning}});
    }
    PrintJson({{"prefix", InstallPath("")}, {"settings", settings}});
    return kDone;
  }
  const int width = TerminalWidth();
  for (const Row& row : rows) {
    const char* unset = row.name[0] == '-' ? "" : " is not set";
    const bool told = !row.value.empty() && row.from != "default";
    Print(Wrap(StrCat(row.name, row.value.empty() ? unset : StrCat(" = ", row.value),
                      told ? StrCat("  (", row.from, ")") : ""),
               width, 0));
    Print(Wrap(
        StrCat(row.setting->meaning,
               row.setting->fallback.empty() ? "" : StrCat("; default: ", row.setting->fallback)),
        width, 4));
  }
  Print(StrCat("\n<prefix> = ", InstallPath(""), "\n"));
  return kDone;
}

}  // namespace

void AddConfig(CLI::App& app, Commands& commands) {
  auto markdown = std::make_shared<bool>(false);
  CLI::App* sub = Subcommand(app, "config", "Every environment variable and global option",
                             "kvr config --json");
  sub->add_flag("--markdown", *markdown, "the table of docs/options.md");
  sub->callback([&commands, markdown] {
    commands.run = [&commands, markdown] { return RunConfig(commands.global, *markdown); };
  });
}

}  // namespace kvr::cli
