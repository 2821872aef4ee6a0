// SPDX-License-Identifier: Apache-2.0
//
// Element types, under the names the FlashInfer-Bench Definition gives them, and the rounding
// between them and float. All conversions round to nearest even; e4m3 is the OCP "fn" form
// (no infinity, saturating to ±448, NaN = 0x7f), e8m0 is an unsigned power of two, bias 127.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvr {

enum class DType : uint8_t { kBool, kU8, kI32, kI64, kF8E4M3, kF8E8M0, kF16, kBF16, kF32, kF64 };

int64_t DTypeSize(DType dtype);               // bytes
std::string_view DTypeName(DType dtype);      // "bfloat16", "int32", "float8_e4m3fn", ...
std::string_view DTypeCudaName(DType dtype);  // "__nv_bfloat16", "int", "__nv_fp8_e4m3", ...
absl::StatusOr<DType> ParseDType(std::string_view name);

float Bf16ToFloat(uint16_t bits);
uint16_t FloatToBf16(float value);
float F16ToFloat(uint16_t bits);
uint16_t FloatToF16(float value);
float E4m3ToFloat(uint8_t bits);
uint8_t FloatToE4m3(float value);
float E8m0ToFloat(uint8_t bits);

// Element `index` of an array of `dtype` as a double (bool: 0 or 1).
double LoadAsDouble(const void* data, DType dtype, int64_t index);

}  // namespace kvr
