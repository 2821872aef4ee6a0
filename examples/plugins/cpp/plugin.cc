// SPDX-License-Identifier: Apache-2.0
//
// A plugin in C++: operation silu_and_mul. Its variants are data alone.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>

#include "kvr_plugin.h"

namespace {

// Positions in silu_and_mul/definition.json.
enum Axis { kNumTokens, kHidden };
enum Input { kGate, kUp };
enum Output { kOut };

float Widen(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

uint16_t Round(float value) {  // to the nearest, ties to even
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::span<uint16_t> Elements(const kvr_tensor& tensor) {
  return {static_cast<uint16_t*>(tensor.data),
          static_cast<size_t>(tensor.shape[0] * tensor.shape[1])};
}

// Exceptions must not cross the ABI.
template <typename F>
int Guarded(char* error, size_t error_size, const F& f) {
  try {
    f();
    return KVR_OK;
  } catch (const std::exception& exception) {
    std::snprintf(error, error_size, "%s", exception.what());
    return KVR_INTERNAL;
  }
}

int Generate(const int64_t* /*axes*/, uint32_t /*axis_count*/, uint64_t seed,
             const kvr_tensor* inputs, uint32_t input_count, char* error, size_t error_size) {
  return Guarded(error, error_size, [&] {
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal;
    for (const kvr_tensor& input : std::span(inputs, input_count)) {
      for (uint16_t& element : Elements(input)) element = Round(normal(engine));
    }
  });
}

int Reference(const int64_t* /*axes*/, uint32_t /*axis_count*/, const kvr_tensor* inputs,
              uint32_t /*input_count*/, uint32_t /*threads*/, kvr_expected* outputs,
              uint32_t /*output_count*/, char* /*error*/, size_t /*error_size*/) {
  const std::span<const uint16_t> gate = Elements(inputs[kGate]), up = Elements(inputs[kUp]);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = Widen(gate[i]);
    const double out = g / (1 + std::exp(-g)) * Widen(up[i]);
    outputs[kOut].expected[i] = out;
    // Rounding to bf16 is half of this; the rest is for the float arithmetic before it.
    outputs[kOut].bound[i] = std::abs(out) / 256;
  }
  return KVR_OK;
}

int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  return 3 * sizeof(uint16_t) * axes[kNumTokens] * axes[kHidden];
}

constexpr kvr_operation kSiluAndMul = {
    .size = sizeof(kvr_operation),
    .name = "silu_and_mul",
    .generate = Generate,
    .reference = Reference,
    .minimum_bytes = MinimumBytes,
};
constexpr const kvr_operation* kOperations[] = {&kSiluAndMul};

constexpr kvr_plugin kPlugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .operation_count = 1,
    .variant_count = 0,
    .operations = kOperations,
    .variants = nullptr,
};

}  // namespace

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kPlugin; }
