// SPDX-License-Identifier: Apache-2.0
#include "api/tune.h"

#include <memory>

#include "devices/profiles.h"
#include "tuner/journal.h"

namespace kvr {
namespace {

Workbench MakeBench(Platform& platform, const TuneSettings& settings) {
  Workbench bench{platform.catalog(), platform.jit(), {}};
  bench.worker.device = settings.device;
  bench.worker.plugin_roots = settings.plugin_roots;
  bench.worker.memory_bytes = settings.memory_bytes;
  bench.worker.launch_timeout_s = settings.timeout_s;
  bench.progress = settings.progress;
  bench.cancel = settings.cancel;
  return bench;
}

// A bench whose journal writes into the ledger that the settings name.
struct RecordingBench {
  RecordingBench(Platform& platform, const TuneSettings& settings)
      : workbench(MakeBench(platform, settings)) {
    absl::Status opened;
    if (settings.ledger_directory != "none") {
      auto at =
          ledger::Ledger::Open(settings.ledger_directory.empty() ? ledger::DefaultLedgerDirectory()
                                                                 : settings.ledger_directory);
      opened = at.status();
      if (at.ok()) ledger = *std::move(at);
    }
    journal = std::make_unique<Journal>(ledger.get(), ledger::Environment(), settings.progress);
    if (!opened.ok()) journal->Report(opened);
    workbench.journal = journal.get();
  }

  std::unique_ptr<ledger::Ledger> ledger;
  std::unique_ptr<Journal> journal;
  Workbench workbench;
};

}  // namespace

absl::StatusOr<VerifyReport> Verify(Platform& platform, const TuneSettings& settings,
                                    const VerifyRequest& request) {
  return VerifyVariants(MakeBench(platform, settings), request);
}

absl::StatusOr<TuneReport> Tune(Platform& platform, const TuneSettings& settings,
                                const TuneRequest& request) {
  const RecordingBench bench(platform, settings);
  return TuneOp(bench.workbench, request);
}

absl::StatusOr<CompileReport> Compile(Platform& platform, const TuneSettings& settings,
                                      const std::vector<std::string>& targets,
                                      CompileRequest request) {
  request.targets.clear();
  for (const std::string& target : targets.empty() ? platform.CompilableTargets() : targets) {
    request.targets.push_back({target, DeviceOfTarget(platform, target)});
  }
  return CompileVariants(MakeBench(platform, settings), request);
}

DeviceInfo DeviceOfTarget(Platform& platform, std::string_view target) {
  for (const std::string& name : platform.DeviceNames()) {
    auto device = platform.OpenDevice(name);
    if (device.ok() && (*device)->info().target == target) return (*device)->info();
  }
  const auto profiles = ListProfiles();
  if (profiles.ok()) {
    for (const std::string& name : *profiles) {
      auto profile = LoadProfile(name);
      if (profile.ok() && profile->target == target) return *std::move(profile);
    }
  }
  DeviceInfo unknown;
  unknown.target = std::string(target);
  return unknown;
}

}  // namespace kvr
