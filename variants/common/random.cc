// SPDX-License-Identifier: Apache-2.0
#include "variants/common/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "variants/common/bfloat16.h"
#include "variants/common/fp8.h"
#include "variants/common/parallel.h"

namespace kvr {
namespace {

constexpr int kQuantiles = 1 << 16;

// Entry i: the (i + 1/2) / 65536 quantile of N(0, 1), as bf16. One lookup a value: generating a
// cache of 19 million values takes tens of milliseconds.
std::array<uint16_t, kQuantiles> MakeQuantiles() {
  std::array<uint16_t, kQuantiles> table;
  double x = 0;
  for (int i = kQuantiles / 2; i < kQuantiles; ++i) {
    const double p = (i + 0.5) / kQuantiles;
    // Newton's method from the quantile before; the distribution function is concave here.
    for (int step = 0; step < 8; ++step) {
      const double cdf = 0.5 * std::erfc(-x / std::numbers::sqrt2);
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      const double move = (p - cdf) / density;
      x += move;
      if (std::abs(move) < 1e-9) break;
    }
    table[i] = RoundToBf16(static_cast<float>(x));
    table[kQuantiles - 1 - i] = RoundToBf16(static_cast<float>(-x));
  }
  return table;
}

const std::array<uint16_t, kQuantiles>& Quantiles() {
  static const std::array<uint16_t, kQuantiles> quantiles = MakeQuantiles();
  return quantiles;
}

// Each value is an entry of the table, all as likely.
template <typename T>
void FillFrom(const std::array<T, kQuantiles>& table, const RandomStream& stream,
              std::span<T> out) {
  constexpr int64_t kValuesPerDraw = 4;  // 16 bits each
  constexpr int64_t kBlock = 1 << 18;
  const int64_t size = static_cast<int64_t>(out.size());
  ParallelFor((size + kBlock - 1) / kBlock, HardwareThreads(), [&](int64_t block) {
    const int64_t end = std::min(size, (block + 1) * kBlock);
    for (int64_t i = block * kBlock; i < end; i += kValuesPerDraw) {
      uint64_t bits = stream.Bits(i / kValuesPerDraw);
      for (int64_t j = i; j < std::min(end, i + kValuesPerDraw); ++j, bits >>= 16) {
        out[j] = table[bits & 0xffff];
      }
    }
  });
}

}  // namespace

void FillNormalBf16(const RandomStream& stream, std::span<uint16_t> out) {
  FillFrom(Quantiles(), stream, out);
}

void FillNormalE4m3(const RandomStream& stream, float factor, std::span<uint8_t> out) {
  std::array<uint8_t, kQuantiles> codes;
  std::transform(Quantiles().begin(), Quantiles().end(), codes.begin(),
                 [&](uint16_t value) { return EncodeE4m3(WidenBf16(value) * factor); });
  FillFrom(codes, stream, out);
}

}  // namespace kvr
