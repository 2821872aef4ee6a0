// SPDX-License-Identifier: Apache-2.0
//
// A libcuda that stands in for drivers this machine cannot have: too old, without an entry, without
// a GPU. The environment says which:
//   FAKE_CUDA_VERSION  what cuDriverGetVersion answers
//   FAKE_CUDA_MISSING  the entry that cuGetProcAddress does not know
//   FAKE_CUDA_INIT     what cuInit answers
// Every call but those returns success and does nothing.
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int Nothing() { return 0; }
int Init(unsigned) { return FromEnvironment("FAKE_CUDA_INIT", 0); }
int ErrorName(int result, const char** out) {
  *out = result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_SOME_KIND";
  return 0;
}
int ErrorText(int, const char** out) {
  *out = "as the driver puts it";
  return 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuDriverGetVersion(int* version) {
  *version = FromEnvironment("FAKE_CUDA_VERSION", 12000);
  return 0;
}

EXPORT int cuGetProcAddress_v2(const char* symbol, void** out, int version, uint64_t flags, int*) {
  const char* missing = std::getenv("FAKE_CUDA_MISSING");
  if (missing != nullptr && std::strcmp(symbol, missing) == 0) return 500;
  if (flags != 1 || version > FromEnvironment("FAKE_CUDA_VERSION", 12000)) {
    *out = nullptr;  // as the driver does for what is newer than itself
    return 0;
  }
  if (std::strcmp(symbol, "cuInit") == 0) {
    *out = reinterpret_cast<void*>(Init);
  } else if (std::strcmp(symbol, "cuGetErrorName") == 0) {
    *out = reinterpret_cast<void*>(ErrorName);
  } else if (std::strcmp(symbol, "cuGetErrorString") == 0) {
    *out = reinterpret_cast<void*>(ErrorText);
  } else {
    *out = reinterpret_cast<void*>(Nothing);
  }
  return 0;
}
