// SPDX-License-Identifier: Apache-2.0
#include "api/bench.h"

#include <utility>

#include "tuner/ledger/ledger.h"

namespace kvr {

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

RecordingBench::RecordingBench(Platform& platform, const TuneSettings& settings)
    : workbench(MakeBench(platform, settings)) {
  absl::Status opened;
  const std::string directory = settings.ledger_directory.empty() ? ledger::DefaultLedgerDirectory()
                                                                  : settings.ledger_directory;
  if (!directory.empty() && directory != "none") {
    absl::StatusOr<std::unique_ptr<ledger::Ledger>> found = ledger::Ledger::Open(directory);
    opened = found.status();
    if (found.ok()) ledger = *std::move(found);
  }
  journal.emplace(ledger.get(), ledger::Environment{}, settings.progress);
  if (!opened.ok()) journal->Report(opened);
  workbench.journal = &*journal;
}

}  // namespace kvr
