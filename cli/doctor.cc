// SPDX-License-Identifier: Apache-2.0
//
// kvr doctor: what KVR found on this machine, what it will do without, and how to change that.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/install_layout.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/worker/client.h"

namespace kvr::cli {
namespace {

// A row of what was found: nothing of it is cut off, it goes on in the next line.
std::string Row(std::string_view name, std::string_view state, std::string_view found) {
  constexpr size_t kName = 16, kState = 9;
  std::string row(name);
  row.resize(kName, ' ');
  row += state;
  row.resize(kName + kState, ' ');
  if (found.empty()) return row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  return row + Wrap(found, TerminalWidth(), kName + kState).substr(kName + kState);
}

absl::StatusOr<int> RunDoctor(const GlobalOptions& global) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform,
                       OpenPlatform(global, /*name_refused=*/false));
  Json components = Json::array();
  std::string found = Row("kvr", "ready", StrCat("version " KVR_VERSION " in ", InstallPath("")));
  bool broken = false;
  for (const Component& component : platform->components()) {
    broken |= component.state == Component::State::kBroken;
    components.push_back({{"name", component.name},
                          {"state", StateName(component.state)},
                          {"found", component.found},
                          {"detail", component.detail},
                          {"explanation", component.explanation}});
    found += Row(component.name, StateName(component.state), component.found);
  }
  const absl::StatusOr<std::string> worker = FindWorker();
  components.push_back({{"name", "worker"},
                        {"state", worker.ok() ? "ready" : "missing"},
                        {"found", worker.ok() ? *worker : ""},
                        {"detail", ""},
                        {"explanation", worker.ok() ? "" : std::string(What(worker.status()))}});
  found += Row("worker", worker.ok() ? "ready" : "missing", worker.ok() ? *worker : "");
  Json devices = Json::array();
  std::string faults;  // of devices that are there and do not open
  Table table({{"device"},
               {"name"},
               {"target"},
               {"SMs", Table::Align::kRight},
               {"smem/block", Table::Align::kRight},
               {"driver"}});
  for (const std::string& name : platform->DeviceNames()) {
    absl::StatusOr<std::unique_ptr<Device>> device = platform->OpenDevice(name);
    if (!device.ok()) {
      broken = true;
      devices.push_back({{"device", name}, {"error", ErrorJson(device.status())}});
      table.Row({name, "does not open"});
      faults += "\n" + Wrap(StrCat(name, ": ", What(device.status()), "; ", Fix(device.status())),
                            TerminalWidth(), 0);
      continue;
    }
    const DeviceInfo& info = (*device)->info();
    devices.push_back({{"device", name},
                       {"name", info.name},
                       {"model", info.model},
                       {"target", info.target},
                       {"uuid", info.uuid},
                       {"driver", info.driver},
                       {"sms", info.sms},
                       {"smem_per_block", info.smem_per_block},
                       {"l2_bytes", info.l2_bytes}});
    table.Row({name, info.name, info.target, absl::StrCat(info.sms), Bytes(info.smem_per_block),
               info.driver});
  }
  const std::vector<std::string> targets = platform->CompilableTargets();
  if (global.json) {
    PrintJson({{"components", components}, {"devices", devices}, {"targets", targets}});
    return broken ? kFailed : kDone;
  }
  const int width = TerminalWidth();
  Print(found + "\n" + table.Render(width) + "\n");
  Print(targets.empty() ? "compiles for nothing: only cached binaries can run\n"
                        : absl::StrCat("compiles for ", absl::StrJoin(targets, ", "), "\n"));
  for (const Component& component : platform->components())
    if (component.state != Component::State::kReady)
      Print("\n" + Wrap(StrCat(component.name, ": ", component.explanation), width, 0));
  Print(faults);
  if (!worker.ok())
    Print("\n" +
          Wrap(StrCat("worker: ", What(worker.status()), "; ", Fix(worker.status())), width, 0));
  return broken ? kFailed : kDone;
}

}  // namespace

void AddDoctor(CLI::App& app, Commands& commands) {
  CLI::App* sub = Subcommand(app, "doctor", "What was found on this machine, and what is missing",
                             "kvr doctor");
  sub->callback([&commands] { commands.run = [&commands] { return RunDoctor(commands.global); }; });
}

}  // namespace kvr::cli
