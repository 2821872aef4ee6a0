// SPDX-License-Identifier: Apache-2.0
//
// Calling a plugin's C functions: values into the ABI's structs, and a return code, a message or
// an exception into a status.
//
// Threading: pure. Nothing here allocates unless the call fails.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/device_info.h"
#include "core/tensor.h"
#include "plugins/library.h"
#include "sdk/kvr_plugin.h"

namespace kvr {

inline kvr_tensor ToC(const TensorView& view) {
  static_assert(KVR_BOOL == static_cast<int>(DType::kBool) + 1 &&
                KVR_F64 == static_cast<int>(DType::kF64) + 1);
  static_assert(kMaxRank == sizeof(kvr_tensor::shape) / sizeof(int64_t));
  kvr_tensor tensor{view.data, static_cast<int32_t>(view.dtype) + 1, view.rank, {}};
  for (int i = 0; i < view.rank; ++i) tensor.shape[i] = view.shape[i];
  return tensor;
}

// Valid as long as `info`.
inline kvr_device ToC(const DeviceInfo& info) {
  return {sizeof(kvr_device), info.kind.c_str(),          info.name.c_str(),   info.target.c_str(),
          info.sms,           info.max_threads_per_block, info.smem_per_block, info.l2_bytes};
}

std::vector<kvr_tensor> ToC(absl::Span<const TensorView> views);

// Room for a function's one line.
struct CallError {
  char text[512] = {};
};

// "it has scale_rows/w8, scale_rows/s3", for the fix of what a library lacks.
std::string ItHas(const std::vector<std::string>& names);

// `function`: "the plan function of scale_rows/w8".
absl::Status CallFailed(const PluginLibrary& library, std::string_view function, int code,
                        const CallError& error);
absl::Status CallThrew(const PluginLibrary& library, std::string_view function,
                       std::string_view what);

// `call(error, size)` runs the function; `name()` says which it is.
template <typename Call, typename Name>
absl::Status CallC(const PluginLibrary& library, const Name& name, const Call& call) {
  CallError error;
  try {
    const int code = call(error.text, sizeof error.text);
    return code == KVR_OK ? absl::OkStatus() : CallFailed(library, name(), code, error);
  } catch (const std::exception& thrown) {
    return CallThrew(library, name(), thrown.what());
  } catch (...) {
    return CallThrew(library, name(), "an exception of its own");
  }
}

}  // namespace kvr
