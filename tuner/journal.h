// SPDX-License-Identifier: Apache-2.0
//
// What a run tells the ledger: builds, trials, verdicts, bands and publications, each at once when
// it is finished, so that a killed run has lost nothing that it finished.
//
// It never fails the run. Where the ledger cannot be opened or written (a full disk, a newer
// schema), the first error becomes a note, later ones are counted, and the run goes on.
//
// Threading: all functions may be called concurrently. A note is given on the calling thread, so
// whoever calls while another thread talks to the same Progress serialises the two.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/device_info.h"
#include "tuner/ledger/ledger.h"
#include "tuner/progress.h"

namespace kvr {

// Of this host and this KVR. `compiler`: Jit::Identity of the device's target.
ledger::Environment EnvironmentOf(const DeviceInfo& device, std::string compiler);

class Journal {
 public:
  // `ledger` and `progress` may be null and outlive the journal.
  Journal(ledger::Ledger* ledger, ledger::Environment environment, Progress* progress)
      : ledger_(ledger), environment_(std::move(environment)), progress_(progress) {}

  // The device is known once a worker has one.
  void SetEnvironment(ledger::Environment environment);
  // What is measured interleaved has one name: a new one, which records without one take from now.
  std::string BeginSession();

  // The environment is filled in, and the session where there is none.
  void Add(ledger::Build record) { Store(std::move(record)); }
  void Add(ledger::Trial record) { Store(InSession(std::move(record))); }
  void Add(ledger::Verdict record) { Store(InSession(std::move(record))); }
  void Add(ledger::Band record) { Store(std::move(record)); }
  void Add(ledger::Publication record) { Store(std::move(record)); }

  // Null: there is none, or it could not be opened.
  ledger::Ledger* ledger() const { return ledger_; }
  ledger::Environment environment() const;

  // An error of the ledger's, from whoever met it.
  void Report(const absl::Status& error);
  bool trouble() const;
  std::string why() const;  // "what; fix" of the first error, with how many followed; empty: none

 private:
  template <class Record>
  Record InSession(Record record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (record.session.empty()) record.session = session_;
    return record;
  }
  template <class Record>
  absl::Status TryStore(Record record);
  template <class Record>
  void Store(Record record);

  ledger::Ledger* const ledger_;
  mutable std::mutex mutex_;
  ledger::Environment environment_;
  std::optional<int64_t> environment_id_;  // once it is stored
  Progress* const progress_;
  std::string session_;
  absl::Status first_;
  int errors_ = 0, in_a_row_ = 0;
};

}  // namespace kvr
