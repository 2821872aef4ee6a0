// SPDX-License-Identifier: Apache-2.0
//
// Tuning key → what serves it, for launches: one table of words in which a key lies with its answer
// in one cache line, so that one of ten thousand keys costs one miss, if any. An entry is the key's
// axes and a pointer, padded to a power of two: 32 bytes for up to three axes.
//
// A hand-written table, since a general one keeps control bytes apart and all six words of a
// BucketedKey: three or four lines a key.
//
// Threading: built once, then only read. Ownership: holds none; whoever fills it keeps the entries.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/key_policy.h"

namespace kvr {

class Prepared;

class KeyTable {
 public:
  struct Entry {
    const Prepared* prepared = nullptr;  // null: no such key
    bool missed = false;                 // the baseline serves it for lack of a selection
  };

  KeyTable() = default;
  // For `keys` keys of `parts` axes.
  KeyTable(size_t keys, size_t parts)
      : parts_(parts),
        shift_(std::countr_zero(std::bit_ceil(parts + 1))),
        mask_(std::bit_ceil(keys + keys / 2 + 1) - 1),
        lines_((((mask_ + 1) << shift_) + kLineWords - 1) / kLineWords) {}

  void Insert(const BucketedKey& key, const Prepared* prepared, bool missed) {
    uint64_t* const words = reinterpret_cast<uint64_t*>(lines_.data());
    size_t at = Home(key);
    while (words[(at << shift_) + parts_] != 0 && !Holds(&words[at << shift_], key)) {
      at = (at + 1) & mask_;
    }
    uint64_t* const slot = &words[at << shift_];
    for (size_t i = 0; i < parts_; ++i) slot[i] = static_cast<uint64_t>(key.values[i]);
    slot[parts_] = reinterpret_cast<uintptr_t>(prepared) | (missed ? 1 : 0);
  }

  Entry Find(const BucketedKey& key) const {
    if (lines_.empty()) return {};
    const auto* const words = reinterpret_cast<const uint64_t*>(lines_.data());
    for (size_t at = Home(key);; at = (at + 1) & mask_) {
      const uint64_t* const slot = &words[at << shift_];
      const uint64_t answer = slot[parts_];
      if (answer == 0) return {};
      if (Holds(slot, key)) {
        return {reinterpret_cast<const Prepared*>(answer & ~uint64_t{1}), (answer & 1) != 0};
      }
    }
  }

 private:
  static constexpr size_t kLineWords = 8;
  struct alignas(64) Line {
    std::array<uint64_t, kLineWords> words{};
  };

  bool Holds(const uint64_t* slot, const BucketedKey& key) const {
    uint64_t different = 0;
    for (size_t i = 0; i < parts_; ++i) different |= slot[i] ^ static_cast<uint64_t>(key.values[i]);
    return different == 0;
  }

  // Multilinear: the products do not wait for each other. The factors are odd.
  size_t Home(const BucketedKey& key) const {
    uint64_t sum = 0x9e3779b97f4a7c15u;
    uint64_t factor = 0xbf58476d1ce4e5b9u;
    for (size_t i = 0; i < parts_; ++i) {
      sum += static_cast<uint64_t>(key.values[i]) * factor;
      factor += 0x9e3779b97f4a7c16u;
    }
    sum ^= sum >> 32;
    sum *= 0xd6e8feb86659fd93u;
    return (sum ^ (sum >> 32)) & mask_;
  }

  size_t parts_ = 0;
  int shift_ = 0;
  size_t mask_ = 0;
  std::vector<Line> lines_;
};

}  // namespace kvr
