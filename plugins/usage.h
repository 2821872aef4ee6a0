// SPDX-License-Identifier: Apache-2.0
//
// Which names a bundle's sources and plan mention, so that a tunable which nothing reads is found
// before it multiplies the space for nothing, and a let, a workspace region or a tensor map which
// nothing reads is found because it is most likely a mistake.
//
// Threading: pure.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "plugins/manifest.h"

namespace kvr::bundle {

using Names = std::set<std::string, std::less<>>;

// Every identifier of `text`.
void AddNames(std::string_view text, Names* names);

// The identifiers of C++ source outside comments. String literals count: a {{NAME}} placeholder
// may stand in one.
void AddSourceNames(std::string_view source, Names* names);

struct Usage {
  Names sources;  // sources and headers
  Names entries;  // the kernels' name expressions
  Names plan;     // every expression; all tunables where a plan or launch function reads them
};

Usage UsageOf(const Manifest& manifest);

// Takes out the lets, regions and tensor maps that are inherited and that nothing uses any longer:
// a child which replaces their only user has no way to.
void DropUnused(Manifest* manifest);

// An error for the first let, region or tensor map that nothing uses. A launch function may use
// every region.
absl::Status CheckUnused(const Manifest& manifest);

}  // namespace kvr::bundle
