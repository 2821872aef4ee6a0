// SPDX-License-Identifier: Apache-2.0
//
// A 256-bit BLAKE3 content hash. Full length wherever it is a key; Short() is for people's eyes.
// Hasher fields are length-prefixed and tagged, so ("ab","c") and ("a","bc") differ.
//
// Threading: Fingerprint is a value; a Hasher belongs to one thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvr {

struct Fingerprint {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const Fingerprint&) const = default;
  std::string Hex() const;    // 64 lower-case digits
  std::string Short() const;  // the first 12
  static absl::StatusOr<Fingerprint> FromHex(std::string_view hex);

  template <typename H>
  friend H AbslHashValue(H h, const Fingerprint& f) {
    return H::combine(std::move(h), f.bytes);
  }
};

Fingerprint FingerprintOf(std::string_view content);

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher& Field(std::string_view tag, std::string_view value);
  Hasher& Field(std::string_view tag, const Fingerprint& value);  // its bytes
  Fingerprint Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvr
