// SPDX-License-Identifier: Apache-2.0
//
// A libnvidia-ml that answers what the environment says; nothing said is success and no reason:
//   FAKE_NVML_INIT    what nvmlInit_v2 answers
//   FAKE_NVML_FIND    what looking the GPU up answers
//   FAKE_NVML_GET     what asking for the reasons answers
//   FAKE_NVML_BITS    the reasons
// Knows the GPU 0000:3b:00.0. KVR_FAKE_NVML_REASONS is the name under which it gives the reasons.
#include <cstdlib>
#include <cstring>

namespace {

unsigned long long FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::strtoull(value, nullptr, 0);
}

int gpu = 0;
bool started = false;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() {
  started = true;
  return static_cast<int>(FromEnvironment("FAKE_NVML_INIT"));
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (!started) return 1;
  if (std::strcmp(bus_id, "0000:3b:00.0") != 0) return 6;
  *device = &gpu;
  return static_cast<int>(FromEnvironment("FAKE_NVML_FIND"));
}

EXPORT int KVR_FAKE_NVML_REASONS(void* device, unsigned long long* reasons) {
  if (device != &gpu) return 2;
  *reasons = FromEnvironment("FAKE_NVML_BITS");
  return static_cast<int>(FromEnvironment("FAKE_NVML_GET"));
}
