// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/names.h"

namespace kvr {
namespace {

struct Info {
  DType dtype;
  int64_t size;
  std::string_view name, cuda;
};

// In enum order.
constexpr Info kInfos[] = {
    {DType::kBool, 1, "bool", "bool"},
    {DType::kU8, 1, "uint8", "uint8_t"},
    {DType::kI32, 4, "int32", "int"},
    {DType::kI64, 8, "int64", "int64_t"},
    {DType::kF8E4M3, 1, "float8_e4m3fn", "__nv_fp8_e4m3"},
    {DType::kF8E8M0, 1, "float8_e8m0fnu", "__nv_fp8_e8m0"},
    {DType::kF16, 2, "float16", "__half"},
    {DType::kBF16, 2, "bfloat16", "__nv_bfloat16"},
    {DType::kF32, 4, "float32", "float"},
    {DType::kF64, 8, "float64", "double"},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kInfos); ++i)
    if (static_cast<size_t>(kInfos[i].dtype) != i) return false;
  return true;
}
static_assert(InOrder());

const Info& InfoOf(DType dtype) { return kInfos[static_cast<size_t>(dtype)]; }

template <typename T>
T Load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// |value| as a small float with `mantissa` bits and least normal exponent `min_exponent`, rounded
// to nearest even, in units of the encoding: a carry out of the mantissa moves into the exponent
// by itself. `value` is finite and not negative.
uint32_t RoundMagnitude(float value, int mantissa, int min_exponent) {
  if (value == 0) return 0;
  int exponent = std::max(std::ilogb(value), min_exponent);
  // Exact: a float scaled by a power of two fits a double, and nearbyint rounds ties to even.
  double scaled = std::nearbyint(std::ldexp(static_cast<double>(value), mantissa - exponent));
  return static_cast<uint32_t>(scaled) +
         (static_cast<uint32_t>(exponent - min_exponent) << mantissa);
}

}  // namespace

int64_t DTypeSize(DType dtype) { return InfoOf(dtype).size; }
std::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }
std::string_view DTypeCudaName(DType dtype) { return InfoOf(dtype).cuda; }

absl::StatusOr<DType> ParseDType(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Info& info : kInfos) {
    if (info.name == name) return info.dtype;
    names.push_back(info.name);
  }
  return UnknownName("dtype", name, names);
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t FloatToBf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float F16ToFloat(uint16_t bits) {
  int exponent = (bits >> 10) & 0x1f;
  int mantissa = bits & 0x3ff;
  float magnitude;
  if (exponent == 0x1f) {
    magnitude =
        mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t FloatToF16(float value) {
  if (std::isnan(value)) return 0x7fff;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  float magnitude = std::fabs(value);
  // 65520 is half way between the largest finite half and the power of two above it.
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  return static_cast<uint16_t>(sign | RoundMagnitude(magnitude, 10, -14));
}

float E4m3ToFloat(uint8_t bits) {
  int exponent = (bits >> 3) & 0xf;
  int mantissa = bits & 7;
  float magnitude;
  if ((bits & 0x7f) == 0x7f) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -9);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 8), exponent - 10);
  }
  return bits & 0x80 ? -magnitude : magnitude;
}

uint8_t FloatToE4m3(float value) {
  if (std::isnan(value)) return 0x7f;
  uint8_t sign = std::signbit(value) ? 0x80 : 0;
  float magnitude = std::fabs(value);
  if (magnitude >= 448.0f) return sign | 0x7e;
  return static_cast<uint8_t>(sign | RoundMagnitude(magnitude, 3, -6));
}

float E8m0ToFloat(uint8_t bits) {
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, bits - 127);
}

double LoadAsDouble(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kBool:
      return Load<uint8_t>(data, index) != 0;
    case DType::kU8:
      return Load<uint8_t>(data, index);
    case DType::kI32:
      return Load<int32_t>(data, index);
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(data, index));
    case DType::kF8E4M3:
      return E4m3ToFloat(Load<uint8_t>(data, index));
    case DType::kF8E8M0:
      return E8m0ToFloat(Load<uint8_t>(data, index));
    case DType::kF16:
      return F16ToFloat(Load<uint16_t>(data, index));
    case DType::kBF16:
      return Bf16ToFloat(Load<uint16_t>(data, index));
    case DType::kF32:
      return Load<float>(data, index);
    case DType::kF64:
      return Load<double>(data, index);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace kvr
