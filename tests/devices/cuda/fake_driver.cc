// SPDX-License-Identifier: Apache-2.0
//
// A libcuda that stands in for drivers this machine cannot have: too old, without an entry, without
// a GPU. The environment says which:
//   FAKE_CUDA_VERSION  what cuDriverGetVersion answers
//   FAKE_CUDA_MISSING  the entry that cuGetProcAddress does not know
//   FAKE_CUDA_INIT     what cuInit answers
//   FAKE_CUDA_FAILS    "cuGraphLaunch 700": what one of the calls about graphs answers
//   FAKE_CUDA_NODES    how many nodes a graph has
//   FAKE_CUDA_CAPTURE  the state of a stream that captures: 2, it was invalidated
//   FAKE_CUDA_BLOCKS   how many blocks of a kernel fit on a multiprocessor
//   FAKE_CUDA_UPDATE   the reason for which cuGraphExecUpdate fails
// Every call but those returns success. Those about graphs are listed, for fake_cuda_calls; those
// that could break a capture of another thread with "!" where the mode is not relaxed.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

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
uint64_t capture_id = 0;
int handle = 0;
int nodes[64] = {};
int node_count = 0;
const void* last_node = nullptr;
thread_local int mode = 0;

int ExchangeMode(int* other) {
  std::swap(mode, *other);
  return 0;
}

// `detail`: a number that the call was given.
int Listed(const char* symbol, int detail = -1) {
  calls += calls.empty() ? "" : " ";
  calls += symbol + std::strlen("cu");
  if (detail >= 0) calls += "(" + std::to_string(detail) + ")";
  const bool background = std::strncmp(symbol, "cuGraph", std::strlen("cuGraph")) == 0 ||
                          std::strncmp(symbol, "cuUser", std::strlen("cuUser")) == 0;
  if (background && std::strcmp(symbol, "cuGraphLaunch") != 0 && mode != 2) calls += "!";
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
  if (result != 0) return result;
  capturing = FromEnvironment("FAKE_CUDA_CAPTURE", 1);
  ++capture_id;
  last_node = nullptr;
  return 0;
}
int Info(int* status, uint64_t* id, void** graph, const void*** dependencies, size_t* count) {
  *status = capturing;
  if (capturing != 1) return 0;
  *id = capture_id;
  *graph = &handle;
  *dependencies = &last_node;
  *count = last_node == nullptr ? 0 : 1;
  return 0;
}
int InfoV2(void*, int* status, uint64_t* id, void** graph, const void*** dependencies,
           size_t* count) {
  return Info(status, id, graph, dependencies, count);
}
int InfoV3(void*, int* status, uint64_t* id, void** graph, const void*** dependencies,
           void*** edges, size_t* count) {
  *edges = nullptr;
  return Info(status, id, graph, dependencies, count);
}
int Recorded(int result) {
  if (result == 0 && capturing == 1) last_node = &nodes[node_count++ % 64];
  return result;
}
int LaunchPlain(void*, unsigned grid, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                void*, void**, void**) {
  return Recorded(Listed("cuLaunchKernel", static_cast<int>(grid)));
}
int LaunchEx(const unsigned* grid, void*, void**, void**) {
  return Recorded(Listed("cuLaunchKernelEx", static_cast<int>(*grid)));
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

int Clone(void** clone, void*) {
  const int result = Listed("cuGraphClone");
  *clone = result == 0 ? &nodes : nullptr;
  return result;
}
int FindInClone(void** copy, void* node, void*) {
  *copy = node;
  return Listed("cuGraphNodeFindInClone");
}
struct NodeParams {
  void* function;
  unsigned grid_x;
};
int SetParams(void*, const NodeParams* params) {
  return Listed("cuGraphKernelNodeSetParams", static_cast<int>(params->grid_x));
}
int SetExecParams(void*, void*, const NodeParams* params) {
  return Listed("cuGraphExecKernelNodeSetParams", static_cast<int>(params->grid_x));
}
int SetAttribute(void*, int, const int* value) {
  return Listed("cuGraphKernelNodeSetAttribute", *value);
}
int Update(void*, void*, int* reason) {
  Listed("cuGraphExecUpdate");
  *reason = FromEnvironment("FAKE_CUDA_UPDATE", 0);
  return *reason == 0 ? 0 : 910;
}

struct UserObject {
  void* object;
  void (*destroy)(void*);
};
std::vector<UserObject> user_objects;

int CreateUserObject(void** out, void* object, void (*destroy)(void*), unsigned, unsigned) {
  const int result = Listed("cuUserObjectCreate");
  if (result != 0) return result;
  user_objects.push_back({object, destroy});
  *out = object;
  return 0;
}
int ReleaseUserObject(void* object, unsigned) {
  for (auto it = user_objects.begin(); it != user_objects.end(); ++it) {
    if (it->object != object) continue;
    it->destroy(object);
    user_objects.erase(it);
    break;
  }
  return Listed("cuUserObjectRelease");
}
int GraphRetains(void*, void*, unsigned, unsigned) { return Listed("cuGraphRetainUserObject"); }
int GraphReleases(void*, void*, unsigned) { return Listed("cuGraphReleaseUserObject"); }

int Unload(void*) { return Listed("cuModuleUnload"); }

int FunctionAttribute(int* value, int, void*) {
  *value = 49152;
  return 0;
}
int Occupancy(int* blocks, void*, int, size_t) {
  *blocks = FromEnvironment("FAKE_CUDA_BLOCKS", 1);
  return 0;
}

int CreateEvent(void** event, unsigned) {
  *event = &handle;
  return Listed("cuEventCreate");
}
int RecordEvent(void*, void*) { return Listed("cuEventRecord"); }
int WaitEvent(void*, void*, unsigned) { return Listed("cuStreamWaitEvent"); }
int DestroyEvent(void*) { return Listed("cuEventDestroy"); }

template <typename F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// The calls about graphs and their modules since the last question, without their "cu".
EXPORT const char* fake_cuda_calls() {
  static std::string taken;
  taken.swap(calls);
  calls.clear();
  return taken.c_str();
}

// All graphs are gone.
EXPORT void fake_cuda_fire() {
  std::vector<UserObject> fired;
  fired.swap(user_objects);
  for (const UserObject& object : fired) object.destroy(object.object);
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
      {"cuThreadExchangeStreamCaptureMode", Address(ExchangeMode)},
      {"cuStreamGetCaptureInfo", version < 12030 ? Address(InfoV2) : Address(InfoV3)},
      {"cuLaunchKernel", Address(LaunchPlain)},
      {"cuLaunchKernelEx", Address(LaunchEx)},
      {"cuGraphClone", Address(Clone)},
      {"cuGraphNodeFindInClone", Address(FindInClone)},
      {"cuGraphKernelNodeSetParams", Address(SetParams)},
      {"cuGraphKernelNodeSetAttribute", Address(SetAttribute)},
      {"cuGraphExecKernelNodeSetParams", Address(SetExecParams)},
      {"cuGraphExecUpdate", Address(Update)},
      {"cuUserObjectCreate", Address(CreateUserObject)},
      {"cuUserObjectRelease", Address(ReleaseUserObject)},
      {"cuGraphRetainUserObject", Address(GraphRetains)},
      {"cuGraphReleaseUserObject", Address(GraphReleases)},
      {"cuModuleUnload", Address(Unload)},
      {"cuFuncGetAttribute", Address(FunctionAttribute)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", Address(Occupancy)},
      {"cuEventCreate", Address(CreateEvent)},
      {"cuEventRecord", Address(RecordEvent)},
      {"cuStreamWaitEvent", Address(WaitEvent)},
      {"cuEventDestroy", Address(DestroyEvent)},
  };
  *out = Address(Nothing);
  for (const auto& entry : known) {
    if (std::strcmp(symbol, entry.symbol) == 0) *out = entry.address;
  }
  return 0;
}
