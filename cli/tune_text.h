// SPDX-License-Identifier: Apache-2.0
//
// What kvr tune tells people: what is selected, how each variant did, what failed and what was
// pruned for which reason, and where the selections are.
//
// Threading: the CLI's own thread only.
#pragma once

#include <string>
#include <vector>

#include "registry/catalog.h"
#include "tuner/tune.h"

namespace kvr::cli {

// Of `named` variants, those of which no config was measured and right.
std::vector<std::string> NonePassed(const std::vector<std::string>& named,
                                    const TuneReport& report);

// `named`: those of --variant; `selections`: the file, or empty.
void PrintTuneText(const Catalog& catalog, const std::string& op, const std::string& selections,
                   const std::vector<std::string>& named, const TuneReport& report);

}  // namespace kvr::cli
