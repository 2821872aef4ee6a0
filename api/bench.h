// SPDX-License-Identifier: Apache-2.0
//
// The workbench of one long command: a platform's parts and the settings; and one with a journal on
// the ledger that the settings name. A ledger that cannot be opened becomes the journal's first
// error, never the command's.
//
// Threading: belongs to the call that made it. Ownership: the platform and what the settings point
// to outlive it.
#pragma once

#include <memory>
#include <optional>

#include "api/tune.h"
#include "tuner/journal.h"

namespace kvr {

// Without a journal.
Workbench MakeBench(Platform& platform, const TuneSettings& settings);

struct RecordingBench {
  RecordingBench(Platform& platform, const TuneSettings& settings);
  RecordingBench(const RecordingBench&) = delete;
  RecordingBench& operator=(const RecordingBench&) = delete;

  std::unique_ptr<ledger::Ledger> ledger;  // null: none is wanted, or it could not be opened
  std::optional<Journal> journal;
  Workbench workbench;
};

}  // namespace kvr
