// SPDX-License-Identifier: Apache-2.0
//
// The selection file of the commands that read or write one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kvr::cli {

inline void AddSelections(CLI::App* app, std::string* path) {
  app->add_option("--selections", *path, "selection file: what is selected for each tuning key")
      ->type_name("FILE")
      ->envname("KVR_SELECTIONS");
}

}  // namespace kvr::cli
