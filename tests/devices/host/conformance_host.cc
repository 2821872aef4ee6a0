// SPDX-License-Identifier: Apache-2.0
//
// The host device in the suite that every device passes (tests/devices/conformance).
#include "tests/devices/conformance/conformance.h"
#include "tests/devices/host/host_fixture.h"

namespace kvr {
namespace {

absl::StatusOr<Binary> AddKernel(const Device&) {
  return CompileForHost(Subject::kAddSource, {"add"});
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Host, DeviceConformance,
                         testing::Values(Subject{
                             .name = "host", .open = &OpenHostDevice, .add_kernel = &AddKernel}),
                         SubjectName);

}  // namespace kvr
