// SPDX-License-Identifier: Apache-2.0
//
// What a selection file says, before any of its names is looked up: for whoever compares, carries
// or explains files of devices and plugins that are not here. The format is that of
// registry/selection_file.h.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/axes.h"
#include "core/config.h"
#include "core/fingerprint.h"
#include "registry/generation.h"

namespace kvr {

struct StoredSelection {
  std::string variant, version;
  Fingerprint variant_fingerprint;
  Config config;
  Fingerprint binary;
  Evidence evidence;
};

struct SelectionContent {
  struct Op {
    std::string key_policy;
    std::map<Axes, StoredSelection> by_key;
  };
  std::string device_model, target;
  int64_t number = 0;
  std::map<std::string, Op> ops;

  Fingerprint Digest() const;  // that of the generation
};

SelectionContent ContentOf(const Generation& generation);

// The file's text; its digest is computed. Equal contents give equal text.
std::string SelectionJson(const SelectionContent& content);
// Strict, as the file's contract says; the digest must be the content's. `origin` is named in
// errors.
absl::StatusOr<SelectionContent> ParseSelectionContent(std::string_view json,
                                                       std::string_view origin);

}  // namespace kvr
