// SPDX-License-Identifier: Apache-2.0
//
// What a generation's digest covers, as text: shared by generations in memory and by selection
// files, whose digest is checked before any of their names is looked up.
//
// Threading: pure.
#pragma once

#include <map>
#include <string>

#include "core/fingerprint.h"

namespace kvr {

struct SelectionIdentity {
  std::string variant, version, variant_fingerprint;
  std::string config;  // ConfigText
  std::string binary;  // hex
};

struct OpIdentity {
  std::string key_policy;                           // canonical text
  std::map<std::string, SelectionIdentity> by_key;  // AxesText of the named key
};

Fingerprint GenerationDigest(const std::string& device_model, const std::string& target,
                             const std::map<std::string, OpIdentity>& ops);

}  // namespace kvr
