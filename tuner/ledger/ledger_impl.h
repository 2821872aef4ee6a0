// SPDX-License-Identifier: Apache-2.0
//
// A ledger's files. Threading: `mutex` is held by whoever uses a database.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/database.h"
#include "tuner/ledger/ledger.h"

namespace kvr::ledger {

struct Ledger::Impl {
  std::mutex mutex;
  bool read_only = false;
  std::unique_ptr<SQLite::Database> own;  // null: read only, and this host has written none
  std::vector<std::unique_ptr<SQLite::Database>> others;  // of other hosts: only read

  absl::Status Writable(std::string_view path) const {
    if (!read_only) return absl::OkStatus();
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("ledger ", path, " was opened to be read"), "open it for writing");
  }

  std::vector<SQLite::Database*> databases() const {
    std::vector<SQLite::Database*> all;
    for (const auto& other : others) all.push_back(other.get());
    if (own != nullptr) all.push_back(own.get());
    return all;
  }
};

}  // namespace kvr::ledger
