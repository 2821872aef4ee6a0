// SPDX-License-Identifier: Apache-2.0
#include "variants/common/mla_fp8/layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "variants/common/bfloat16.h"
#include "variants/common/fp8.h"

namespace kvr::mla_fp8 {
namespace {

double Scale(const Layout& layout, const Row<const uint8_t>& row, int group) {
  if (layout.scales_follow) return DecodeE8m0(row.scales[group]);
  float scale;
  std::memcpy(&scale, row.scales + group * sizeof(float), sizeof(float));
  return scale;
}

// Makes every value at most 448 after division. UE8M0 has powers of two alone.
float LeastScale(const Layout& layout, const float* values) {
  float largest = 0;
  for (int i = 0; i < layout.group; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float scale = std::max(largest / kE4m3Largest, 0x1p-100f);
  return layout.scales_follow ? std::exp2(std::ceil(std::log2(scale))) : scale;
}

void PutScale(const Layout& layout, float scale, int group, const Row<uint8_t>& row) {
  if (layout.scales_follow) {
    row.scales[group] = static_cast<uint8_t>(std::ilogb(scale) + kE8m0Bias);
  } else {
    std::memcpy(row.scales + group * sizeof(float), &scale, sizeof(float));
  }
}

}  // namespace

void Decode(const Layout& layout, const Row<const uint8_t>& row, double* values) {
  for (int group = 0; group < layout.groups(); ++group) {
    const double scale = Scale(layout, row, group);
    for (int i = group * layout.group; i < (group + 1) * layout.group; ++i) {
      values[i] = DecodeE4m3(row.codes[i]) * scale;
    }
  }
  for (int i = 0; i < kRopeDims; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row.rope + 2 * i, sizeof(bits));
    values[layout.codes + i] = WidenBf16(bits);
  }
}

void Encode(const Layout& layout, const float* values, const int* exponents,
            const Row<uint8_t>& row) {
  for (int group = 0; group < layout.groups(); ++group) {
    const float* const from = values + group * layout.group;
    uint8_t* const to = row.codes + group * layout.group;
    const float scale = LeastScale(layout, from);
    for (int i = 0; i < layout.group; ++i) to[i] = EncodeE4m3(from[i] / scale);
    PutScale(layout, std::ldexp(scale, exponents[group]), group, row);
  }
  for (int i = 0; i < kRopeDims; ++i) {
    const uint16_t bits = RoundToBf16(values[layout.codes + i]);
    std::memcpy(row.rope + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace kvr::mla_fp8
