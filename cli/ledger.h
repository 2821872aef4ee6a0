// SPDX-License-Identifier: Apache-2.0
//
// The ledger of the commands that read or write one. Threading: the CLI's own thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tuner/ledger/ledger.h"

namespace kvr::cli {

// --ledger DIR; left out: ledger::DefaultLedgerDirectory().
void AddLedger(CLI::App* app, std::string* directory);

// What --ledger names. Null: "none", or nothing names a place. Errors: ledger::Ledger::Open's; a
// command that can do its work without one says so and goes on.
absl::StatusOr<std::unique_ptr<ledger::Ledger>> OpenLedger(const std::string& directory,
                                                           const ledger::OpenOptions& options = {});

}  // namespace kvr::cli
