// SPDX-License-Identifier: Apache-2.0
//
// The operation of one layout behind the plugin ABI:
//
//   constexpr kvr_operation kOperation = mla_fp8::OperationOf<mla_fp8::kV4>("...");
#pragma once

#include "variants/common/mla_fp8/mla_fp8.h"
#include "variants/common/operation.h"

namespace kvr::mla_fp8 {

template <Layout kLayout>
constexpr kvr_operation OperationOf(const char* name) {
  constexpr auto kGenerate = [](const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
    Generate(kLayout, axes, seed, inputs);
  };
  constexpr auto kReference = [](const int64_t* axes, const kvr_tensor* inputs, int threads,
                                 kvr_expected* outputs, char* error, size_t error_size) {
    return Reference(kLayout, axes, inputs, threads, outputs, error, error_size);
  };
  return kvr::OperationOf<kGenerate, kReference>(
      name, [](const int64_t* axes, uint32_t) { return MinimumBytes(kLayout, axes); });
}

}  // namespace kvr::mla_fp8
