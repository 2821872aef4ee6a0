// SPDX-License-Identifier: Apache-2.0
#include "api/host_library.h"
#include "core/status.h"
#include "jit/sdk.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/conformance/one_file_unit.h"

namespace kvr {
namespace {

absl::StatusOr<Binary> Compile(const Device& device) {
  KVR_ASSIGN_OR_RETURN(const std::string sdk, FindSdkDir());
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Compiler> compiler, MakeHostCompiler(sdk));
  return CompileOneFile(*compiler, device.info().target, Subject::kSource,
                        {"add", "trap", "store"});
}

absl::StatusOr<Binary> Kernels(const Device& device) {
  static const absl::StatusOr<Binary> binary = Compile(device);
  return binary;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Host, DeviceConformance,
                         testing::Values(Subject{
                             .name = "host", .open = &OpenHostDevice, .kernels = &Kernels}),
                         SubjectName);

}  // namespace kvr
