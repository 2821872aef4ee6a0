// SPDX-License-Identifier: Apache-2.0
#include "core/fingerprint.h"

#include <llvm/Support/BLAKE3.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

llvm::StringRef Ref(std::string_view text) { return {text.data(), text.size()}; }

Fingerprint Finalize(llvm::BLAKE3& hasher) {
  Fingerprint result;
  hasher.final<32>(result.bytes);
  return result;
}

// Little-endian on every machine: fingerprints travel in files.
void AddLength(llvm::BLAKE3& hasher, uint64_t length) {
  std::array<uint8_t, 8> bytes;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(length >> (8 * i));
  hasher.update(llvm::ArrayRef<uint8_t>(bytes));
}

}  // namespace

std::string Fingerprint::Hex() const {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string Fingerprint::Short() const { return Hex().substr(0, 12); }

absl::StatusOr<Fingerprint> Fingerprint::FromHex(std::string_view hex) {
  Fingerprint result;
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  bool good = hex.size() == 2 * result.bytes.size();
  for (size_t i = 0; good && i < result.bytes.size(); ++i) {
    int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    if (good) result.bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  if (!good) {
    return Error(absl::StatusCode::kInvalidArgument, StrCat(Quoted(hex), " is no fingerprint"),
                 "a fingerprint is 64 lower-case hexadecimal digits");
  }
  return result;
}

Fingerprint FingerprintOf(std::string_view content) {
  llvm::BLAKE3 hasher;
  hasher.update(Ref(content));
  return Finalize(hasher);
}

struct Hasher::State {
  llvm::BLAKE3 blake3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

Hasher& Hasher::Field(std::string_view tag, std::string_view value) {
  AddLength(state_->blake3, tag.size());
  state_->blake3.update(Ref(tag));
  AddLength(state_->blake3, value.size());
  state_->blake3.update(Ref(value));
  return *this;
}

Hasher& Hasher::Field(std::string_view tag, const Fingerprint& value) {
  return Field(tag, {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
}

Fingerprint Hasher::Finish() { return Finalize(state_->blake3); }

}  // namespace kvr
