// SPDX-License-Identifier: Apache-2.0
//
// A C++ operation behind the plugin ABI, and an approximate variant's reference: their functions,
// with exceptions kept on this side, and the plugin that has one of the two.
//
//   constexpr kvr_operation kOperation =
//       OperationOf<Generate, Reference>("mla_sparse_decode", MinimumBytes);
//   constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();
//   KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kPlugin; }
//
//   void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs);
//   int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads,
//                 kvr_expected* outputs, char* error, size_t error_size);
//
// One that has quality measures sets those three fields as well, `quality` to
// MeasureQuality<Quality>. A variant is VariantOf<Reference>(op, name), its Reference getting the
// values of its quality tunables after the axes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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
int ComputeVariantReference(const int64_t* axes, uint32_t /*axis_count*/, const int64_t* quality,
                            uint32_t quality_count, const kvr_tensor* inputs,
                            uint32_t /*input_count*/, uint32_t threads, kvr_expected* outputs,
                            uint32_t /*output_count*/, char* error, size_t error_size) {
  return Guarded(error, error_size, [&] {
    return kReference(axes, std::span(quality, quality_count), inputs, static_cast<int>(threads),
                      outputs, error, error_size);
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

template <auto kReference>
constexpr kvr_variant VariantOf(const char* op, const char* name) {
  return {.size = sizeof(kvr_variant),
          .op = op,
          .name = name,
          .reference = ComputeVariantReference<kReference>};
}

// A list of one, as plugins have them.
template <class T, const T& kPart>
inline constexpr const T* kListOf[] = {&kPart};

template <const kvr_operation& kOperation>
constexpr kvr_plugin OperationPlugin() {
  return {.size = sizeof(kvr_plugin),
          .abi_major = KVR_ABI_MAJOR,
          .abi_minor = KVR_ABI_MINOR,
          .operation_count = 1,
          .operations = kListOf<kvr_operation, kOperation>};
}

template <const kvr_variant& kVariant>
constexpr kvr_plugin VariantPlugin() {
  return {.size = sizeof(kvr_plugin),
          .abi_major = KVR_ABI_MAJOR,
          .abi_minor = KVR_ABI_MINOR,
          .variant_count = 1,
          .variants = kListOf<kvr_variant, kVariant>};
}

}  // namespace kvr
