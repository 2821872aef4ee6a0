// SPDX-License-Identifier: Apache-2.0
//
// The ledger: an SQLite database of everything that was built, tried and decided. Concurrent
// writers wait for each other (WAL, 10 s); a record that Add has returned for survives a killed
// process. On a network file system, where WAL does not work, every host writes a file of its own
// and all of them are read.
//
//   KVR_ASSIGN_OR_RETURN(auto ledger, Ledger::Open(directory));
//   KVR_ASSIGN_OR_RETURN(int64_t environment, ledger->Remember(environment_now));
//   KVR_RETURN_IF_ERROR(ledger->Add(trial));
//
// Threading: all functions may be called concurrently; they take turns.
// Errors: kUnavailable where the disk, a permission or another writer is in the way (what was to be
// written is lost, the ledger stays whole); kFailedPrecondition for a ledger of a newer KVR, which
// is left as it is; kDataLoss for a file that is no ledger.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tuner/ledger/records.h"

namespace kvr::ledger {

// KVR_LEDGER_DIR, else $XDG_STATE_HOME/kvr, else ~/.local/state/kvr; empty: none can be named.
std::string DefaultLedgerDirectory();

// The current time, RFC 3339, UTC.
std::string Now();

// 128 random bits in hex: of a record, or of a measuring session.
std::string NewUid();

struct OpenOptions {
  bool read_only = false;
  // A file per host: decided by the file system unless stated.
  enum class PerHost { kDetect, kYes, kNo };
  PerHost per_host = PerHost::kDetect;
};

// Column = value, all of which must hold. Columns are those of the record's Fields.
using Filter = std::vector<std::pair<std::string_view, std::string>>;

// Whether Trial::samples is read too: most of a ledger's bytes.
enum class Samples { kRead, kLeaveOut };

struct Imported {
  int64_t added = 0, known = 0;  // records; known: there already
};

class Ledger {
 public:
  // Makes directory and file where they are missing and not read_only. Who only reads is content
  // with the files of other hosts.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& directory,
                                                      const OpenOptions& options = {});
  ~Ledger();

  // The id of an environment, stored if it is new.
  absl::StatusOr<int64_t> Remember(Environment environment);

  // Stores `record` in one transaction; uid and, where it is empty, time are filled in.
  // Record: Build, Trial, Verdict, Band, Publication, Summary.
  template <class Record>
  absl::Status Add(Record record);

  // What matches, oldest first; at most the newest `limit`, 0: all. Ids of other hosts' files may
  // coincide with ours: EnvironmentOf answers for a record of any file.
  template <class Record>
  absl::StatusOr<std::vector<Record>> Find(const Filter& filter, int limit = 0,
                                           Samples samples = Samples::kRead) const;

  // Those whose uid begins with `prefix`.
  template <class Record>
  absl::StatusOr<std::vector<Record>> FindUid(const std::string& prefix) const;

  // The environment that a found record names.
  template <class Record>
  absl::StatusOr<Environment> EnvironmentOf(const Record& record) const {
    return EnvironmentOf(Record::kTable, record.uid);
  }

  // Everything, as JSON lines; and back, skipping what is there already. Import stores all of a
  // stream or nothing, and only what can be (check.h); the error names line, record and field.
  // Export gives the number of records, environments included.
  absl::StatusOr<int64_t> Export(std::ostream& out) const;
  absl::StatusOr<Imported> Import(std::istream& in);
  // What Import would give in an empty ledger; makes no file.
  static absl::StatusOr<Imported> Rehearse(std::istream& in);

  const std::string& path() const { return path_; }

 private:
  template <class Record>
  absl::StatusOr<std::vector<Record>> FindWhere(const std::string& where,
                                                const std::vector<std::string>& values, int limit,
                                                Samples samples) const;
  struct Impl;
  Ledger(std::unique_ptr<Impl> impl, std::string path);
  absl::StatusOr<Environment> EnvironmentOf(std::string_view table, std::string_view uid) const;
  std::unique_ptr<Impl> impl_;
  const std::string path_;
};

}  // namespace kvr::ledger
