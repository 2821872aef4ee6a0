// SPDX-License-Identifier: Apache-2.0
//
// A libcuda that stands in for drivers this machine cannot have: too old, without an entry, without
// a GPU. The environment says which:
//   FAKE_CUDA_VERSION  what cuDriverGetVersion answers
//   FAKE_CUDA_MISSING  the entry that cuGetProcAddress does not know
//   FAKE_CUDA_INIT     what cuInit answers
//   FAKE_CUDA_FAILS    "cuGraphLaunch 700": what one of the calls about graphs answers
//   FAKE_CUDA_NODES    how many nodes a graph has
// Every call but those returns success. Those about graphs are listed, for fake_cuda_calls.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

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

std::string calls;
int capturing = 0;
int handle = 0;

int Listed(const char* symbol) {
  calls += calls.empty() ? "" : " ";
  calls += symbol + std::strlen("cu");
  const char* fails = std::getenv("FAKE_CUDA_FAILS");
  const size_t length = std::strlen(symbol);
  if (fails == nullptr || std::strncmp(fails, symbol, length) != 0) return 0;
  return fails[length] == ' ' ? std::atoi(fails + length) : 0;
}

int IsCapturing(void*, int* status) {
  *status = capturing;
  return 0;
}
int BeginCapture(void*, int) {
  const int result = Listed("cuStreamBeginCapture");
  if (result == 0) capturing = 1;
  return result;
}
int EndCapture(void*, void** graph) {
  const int result = Listed("cuStreamEndCapture");
  capturing = 0;
  *graph = result == 0 ? &handle : nullptr;
  return result;
}
int GetNodes(void*, void*, size_t* count) {
  *count = FromEnvironment("FAKE_CUDA_NODES", 1);
  return Listed("cuGraphGetNodes");
}
int Instantiate(void** exec, void*, unsigned long long) {
  const int result = Listed("cuGraphInstantiateWithFlags");
  *exec = result == 0 ? &handle : nullptr;
  return result;
}
int Upload(void*, void*) { return Listed("cuGraphUpload"); }
int Launch(void*, void*) { return Listed("cuGraphLaunch"); }
int Destroy(void*) { return Listed("cuGraphDestroy"); }
int ExecDestroy(void*) { return Listed("cuGraphExecDestroy"); }

template <typename F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// The calls about graphs since the last question, without their "cu".
EXPORT const char* fake_cuda_calls() {
  static std::string taken;
  taken.swap(calls);
  calls.clear();
  return taken.c_str();
}

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
  const struct {
    const char* symbol;
    void* address;
  } known[] = {
      {"cuInit", Address(Init)},
      {"cuGetErrorName", Address(ErrorName)},
      {"cuGetErrorString", Address(ErrorText)},
      {"cuStreamIsCapturing", Address(IsCapturing)},
      {"cuStreamBeginCapture", Address(BeginCapture)},
      {"cuStreamEndCapture", Address(EndCapture)},
      {"cuGraphGetNodes", Address(GetNodes)},
      {"cuGraphInstantiateWithFlags", Address(Instantiate)},
      {"cuGraphUpload", Address(Upload)},
      {"cuGraphLaunch", Address(Launch)},
      {"cuGraphDestroy", Address(Destroy)},
      {"cuGraphExecDestroy", Address(ExecDestroy)},
  };
  *out = Address(Nothing);
  for (const auto& entry : known) {
    if (std::strcmp(symbol, entry.symbol) == 0) *out = entry.address;
  }
  return 0;
}
