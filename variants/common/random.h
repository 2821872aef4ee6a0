// SPDX-License-Identifier: Apache-2.0
//
// Random numbers for input generators: value `i` of a stream is a function of (seed, stream, i)
// alone, so any thread may make any part of a tensor and the result does not depend on who did.
//
// Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace kvr {

class RandomStream {
 public:
  // Streams of one seed, one per tensor, are independent of each other.
  RandomStream(uint64_t seed, uint64_t stream) : key_(Mix(Mix(seed) + stream)) {}

  uint64_t Bits(uint64_t i) const { return Mix(key_ + i * kGamma); }
  // In [0, bound), bound > 0; the bias is below bound / 2^32.
  uint32_t Below(uint64_t i, uint32_t bound) const {
    return static_cast<uint32_t>((Bits(i) >> 32) * bound >> 32);
  }

 private:
  // SplitMix64 (Steele, Lea, Flood 2014): the golden-ratio step and its finaliser.
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;
  static uint64_t Mix(uint64_t x) {
    x += kGamma;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  uint64_t key_;
};

// Fills `out` with N(0, 1) rounded to bf16 (bits), on all of the machine's threads if it is large.
// The distribution is that of 65536 equally likely quantiles: no value beyond +-4.33.
void FillNormalBf16(const RandomStream& stream, std::span<uint16_t> out);
// The same values times `factor`, rounded again.
void FillNormalBf16(const RandomStream& stream, float factor, std::span<uint16_t> out);
// Those rounded to e4m3 codes; beyond +-448 they are +-448.
void FillNormalE4m3(const RandomStream& stream, float factor, std::span<uint8_t> out);

}  // namespace kvr
