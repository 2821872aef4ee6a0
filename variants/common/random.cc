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
    int64_t i = block * kBlock;
    for (; i + kValuesPerDraw <= end; i += kValuesPerDraw) {
      const uint64_t bits = stream.Bits(i / kValuesPerDraw);
      T* const values = out.data() + i;
      values[0] = table[bits & 0xffff];
      values[1] = table[bits >> 16 & 0xffff];
      values[2] = table[bits >> 32 & 0xffff];
      values[3] = table[bits >> 48];
    }
    for (uint64_t bits = stream.Bits(i / kValuesPerDraw); i < end; ++i, bits >>= 16) {
      out[i] = table[bits & 0xffff];
    }
  });
}

// `code` of each quantile.
template <typename F>
auto Mapped(const F& code) {
  std::array<decltype(code(uint16_t{})), kQuantiles> codes;
  std::transform(Quantiles().begin(), Quantiles().end(), codes.begin(), code);
  return codes;
}

}  // namespace

void FillNormalBf16(const RandomStream& stream, std::span<uint16_t> out) {
  FillFrom(Quantiles(), stream, out);
}

void FillNormalBf16(const RandomStream& stream, float factor, std::span<uint16_t> out) {
  FillFrom(Mapped([&](uint16_t value) { return RoundToBf16(WidenBf16(value) * factor); }), stream,
           out);
}

void FillNormalE4m3(const RandomStream& stream, float factor, std::span<uint8_t> out) {
  FillFrom(Mapped([&](uint16_t value) { return EncodeE4m3(WidenBf16(value) * factor); }), stream,
           out);
}

}  // namespace kvr
