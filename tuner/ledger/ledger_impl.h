// SPDX-License-Identifier: Apache-2.0
//
// A ledger's files. Threading: `mutex` is held by whoever uses a database.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tuner/ledger/database.h"
#include "tuner/ledger/ledger.h"

namespace kvr::ledger {

struct Ledger::Impl {
  std::mutex mutex;
  std::unique_ptr<SQLite::Database> own;
  std::vector<std::unique_ptr<SQLite::Database>> others;  // of other hosts: only read

  std::vector<SQLite::Database*> databases() const {
    std::vector<SQLite::Database*> all;
    for (const auto& other : others) all.push_back(other.get());
    all.push_back(own.get());
    return all;
  }
};

}  // namespace kvr::ledger
