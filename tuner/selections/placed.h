// SPDX-License-Identifier: Apache-2.0
//
// Records of a ledger with where they were made, and the tuning key that they speak of. What is
// decided from them goes by the order of the rows, never by their times: clocks jump.
//
// Threading: values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/axes.h"
#include "core/key_policy.h"
#include "core/op.h"
#include "core/status.h"
#include "tuner/ledger/ledger.h"

namespace kvr {

template <class Record>
struct Placed {
  Record record;
  ledger::Environment where;
};

// Of an op, oldest row first, without samples; made on `device_model`, or empty: anywhere.
template <class Record>
absl::StatusOr<std::vector<Placed<Record>>> PlacedRecords(const ledger::Ledger& ledger,
                                                          const std::string& op,
                                                          const std::string& device_model) {
  KVR_ASSIGN_OR_RETURN(std::vector<Record> records,
                       ledger.Find<Record>({{"op", op}}, 0, ledger::Samples::kLeaveOut));
  std::vector<Placed<Record>> placed;
  for (Record& record : records) {
    KVR_ASSIGN_OR_RETURN(ledger::Environment where, ledger.EnvironmentOf(record));
    if (!device_model.empty() && where.device_model != device_model) continue;
    placed.push_back({std::move(record), std::move(where)});
  }
  return placed;
}

// Whether a record says anything that could be selected: what failed or is INVALID makes nobody's
// device one that was measured.
inline bool Counts(const ledger::Trial& trial) {
  return trial.status == "PASSED" && trial.median_us > 0;
}
inline bool Counts(const ledger::Verdict& verdict) { return verdict.verdict != "INVALID"; }
inline bool Counts(const ledger::Publication& publication) {
  return publication.outcome == "published";
}

// The key that a record's axes fall into; none: they are no shape of the op.
std::optional<Axes> KeyOf(const OpSpec& op, const KeyPolicy& policy, const std::string& axes);

// `axes` without what an op that is asked takes anyway: fixed axes and defaults.
Axes LeastAxes(const OpSpec& op, const Axes& axes);

// Which GPU: its UUID, or the host where devices have none.
inline const std::string& DeviceOf(const ledger::Environment& where) {
  return where.device_uuid.empty() ? where.host : where.device_uuid;
}

// "w8 {BLOCK_H=16}"; without tunables "w8".
inline std::string ConfigName(const std::string& variant, const std::string& config) {
  return config.empty() ? variant : variant + " {" + config + "}";
}

}  // namespace kvr
