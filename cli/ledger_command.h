// SPDX-License-Identifier: Apache-2.0
//
// What the subcommands of kvr ledger share. Threading: the CLI's own thread only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/ledger.h"

namespace kvr::cli {

struct LedgerCommand {
  std::string directory, op, variant, kind, uid, file;
  int limit = 10;
};

// The ledger that must be there; `who` needs it: "ls".
absl::StatusOr<std::unique_ptr<ledger::Ledger>> OpenOrSay(const LedgerCommand& command,
                                                          std::string_view who, bool read_only);

template <class Record>
Json RecordJson(const Record& record, const ledger::Environment& where) {
  Json json = {{"table", Record::kTable}, {"uid", record.uid}};
  Record::Fields(record, [&](const char* name, const auto& value) { json[name] = value; });
  Json environment = {{"uid", where.uid}};
  ledger::Environment::Fields(
      where, [&](const char* name, const std::string& value) { environment[name] = value; });
  json["environment"] = std::move(environment);
  return json;
}

// kvr ledger ls.
absl::StatusOr<int> ListLedger(const GlobalOptions& global, const LedgerCommand& command);

}  // namespace kvr::cli
