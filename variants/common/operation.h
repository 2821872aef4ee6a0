// SPDX-License-Identifier: Apache-2.0
//
// A C++ operation behind the plugin ABI, and an approximate variant's reference: their functions,
// with exceptions kept on this side.
//
//   constexpr kvr_operation kOperation =
//       OperationOf<Generate, Reference>("mla_sparse_decode", MinimumBytes);
//
//   void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs);
//   int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads,
//                 kvr_expected* outputs, char* error, size_t error_size);
//
// One that has quality measures sets those three fields as well, `quality` to
// MeasureQuality<Quality>; a variant sets `reference` to ComputeVariantReference<Reference>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvr_plugin.h"
#include "variants/common/errors.h"

namespace kvr {

template <auto kGenerate>
int GenerateInputs(const int64_t* axes, uint32_t /*axis_count*/, uint64_t seed,
                   const kvr_tensor* inputs, uint32_t /*input_count*/, char* error,
                   size_t error_size) {
  return Guarded(error, error_size, [&] {
    kGenerate(axes, seed, inputs);
    return KVR_OK;
  });
}

template <auto kReference>
int ComputeReference(const int64_t* axes, uint32_t /*axis_count*/, const kvr_tensor* inputs,
                     uint32_t /*input_count*/, uint32_t threads, kvr_expected* outputs,
                     uint32_t /*output_count*/, char* error, size_t error_size) {
  return Guarded(error, error_size, [&] {
    return kReference(axes, inputs, static_cast<int>(threads), outputs, error, error_size);
  });
}

template <auto kQuality>
int MeasureQuality(const int64_t* axes, uint32_t /*axis_count*/, const kvr_tensor* inputs,
                   uint32_t /*input_count*/, const kvr_tensor* outputs, const kvr_expected* exact,
                   uint32_t /*output_count*/, double* values, char* error, size_t error_size) {
  return Guarded(error, error_size,
                 [&] { return kQuality(axes, inputs, outputs, exact, values, error, error_size); });
}

template <auto kReference>
int ComputeVariantReference(const int64_t* axes, uint32_t /*axis_count*/, const int64_t* tunables,
                            uint32_t /*tunable_count*/, const kvr_tensor* inputs,
                            uint32_t /*input_count*/, uint32_t threads, kvr_expected* outputs,
                            uint32_t /*output_count*/, char* error, size_t error_size) {
  return Guarded(error, error_size, [&] {
    return kReference(axes, tunables, inputs, static_cast<int>(threads), outputs, error,
                      error_size);
  });
}

template <auto kGenerate, auto kReference>
constexpr kvr_operation OperationOf(const char* name,
                                    int64_t (*minimum_bytes)(const int64_t*, uint32_t)) {
  return {.size = sizeof(kvr_operation),
          .name = name,
          .generate = GenerateInputs<kGenerate>,
          .reference = ComputeReference<kReference>,
          .minimum_bytes = minimum_bytes};
}

}  // namespace kvr
