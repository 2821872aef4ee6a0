// SPDX-License-Identifier: Apache-2.0
//
// The driver library, loaded once: a table of function pointers, and errors made from its codes.
//
// Threading: a Driver is immutable; its functions are the driver's own and thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/cuda/abi.h"

namespace kvr::cuda {

inline constexpr int kMinimumDriverApi = 12000;  // CUDA 12.0
inline constexpr std::string_view kMinimumDriverText = "525.60.13 (CUDA 12.0)";

struct Driver {
#define KVR_CUDA_MEMBER(member, symbol, version, required, parameters) \
  Result(*member) parameters = nullptr;
  KVR_CUDA_FUNCTIONS(KVR_CUDA_MEMBER)
#undef KVR_CUDA_MEMBER

  int api_version = 0;  // 13000: CUDA 13.0
};

// The driver of this machine, loaded and initialised at the first call; the outcome is remembered.
// KVR_NO_CUDA is looked at in every call.
absl::StatusOr<const Driver*> GetDriver();

// Loads `library`, checks its version and looks every entry up; does not call cuInit. The library
// stays loaded for good.
absl::StatusOr<Driver> LoadDriver(const char* library);

// cuInit, with an error that says what to do.
absl::Status InitDriver(const Driver& driver);

// "what: CUDA_ERROR_OUT_OF_MEMORY: out of memory" with the code that fits, and a fix. `call` is the
// driver's function; `detail`, if any, what it was asked for.
absl::Status ErrorFrom(const Driver& driver, Result result, std::string_view call,
                       std::string_view detail = {});

// "12.4"
std::string ApiVersionText(int api_version);

}  // namespace kvr::cuda
