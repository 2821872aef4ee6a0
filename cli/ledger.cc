// SPDX-License-Identifier: Apache-2.0
#include "cli/ledger.h"

namespace kvr::cli {

void AddLedger(CLI::App* app, std::string* directory) {
  app->add_option("--ledger", *directory,
                  "directory of the ledger, where everything that is measured is kept; none: keep "
                  "nothing")
      ->type_name("DIR");
}

absl::StatusOr<std::unique_ptr<ledger::Ledger>> OpenLedger(const std::string& directory,
                                                           const ledger::OpenOptions& options) {
  const std::string place = directory.empty() ? ledger::DefaultLedgerDirectory() : directory;
  if (place.empty() || place == "none") return std::unique_ptr<ledger::Ledger>();
  return ledger::Ledger::Open(place, options);
}

}  // namespace kvr::cli
