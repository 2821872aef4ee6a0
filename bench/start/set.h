// SPDX-License-Identifier: Apache-2.0
//
// What a start makes launchable: every built-in variant that runs on the device, in its default
// config, each under one key of its own. On disk, so that the processes that are timed read it and
// nothing else:
//
//   DIR/set.json         the variants, their shapes and keys
//   DIR/selections.json  the same as a selection file, which a serving process boots from
//   DIR/cache            the binary cache, filled
//   DIR/unit-N.json      what variant N's compiler is given, for NVRTC alone
//   DIR/cubin-N          its binary, for the driver alone
//
// Variants with one source and one config share a key, and so a unit and a binary: the files are
// those of the first.
//
// Threading: values and functions over files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/platform.h"
#include "core/axes.h"
#include "core/config.h"
#include "core/fingerprint.h"

namespace kvr::bench {

using Json = nlohmann::ordered_json;

struct StartVariant {
  std::string op, variant;
  Config config;
  Axes axes;  // the shape it is launched at; empty without a device
  Fingerprint key;
  bool approximate = false;
  Config quality;                    // of an approximate one: what is consented to
  int64_t bytes = 0;                 // of the binary
  std::vector<std::string> symbols;  // of its kernels
};

struct StartSet {
  std::string directory, device, target;  // device: empty, nothing is launched
  int ordinal = 0;                        // of the GPU
  std::vector<StartVariant> variants;

  // Indices of the variants whose key no earlier one has.
  std::vector<int> Distinct() const;
  std::string SelectionPath() const { return directory + "/selections.json"; }
  std::string CachePath() const { return directory + "/cache"; }
  std::string UnitPath(int i) const { return directory + "/unit-" + std::to_string(i) + ".json"; }
  std::string CubinPath(int i) const { return directory + "/cubin-" + std::to_string(i); }
};

// Compiles and writes all of it. `device` as Platform::OpenDevice takes it, or empty: for `target`
// alone. What does not fit the device at any shape that is tried is an error.
absl::Status MakeStartSet(const std::string& directory, const std::string& device,
                          std::string target);
absl::StatusOr<StartSet> ReadStartSet(const std::string& directory);

absl::StatusOr<std::string> ReadWhole(const std::string& path);

}  // namespace kvr::bench
