// SPDX-License-Identifier: Apache-2.0
#include "devices/null/null.h"
#include "tests/conformance/devices/device_conformance.h"

namespace kvr {

INSTANTIATE_TEST_SUITE_P(Null, DeviceConformance,
                         testing::Values(Subject{
                             .name = "null",
                             .open = [] { return OpenNull(); },
                             .kernels = [](const Device& device) -> absl::StatusOr<Binary> {
                               Binary binary;
                               binary.target = device.info().target;
                               return binary;
                             },
                             .runs_kernels = false,
                             .invalidate =
                                 [](Device& device, Stream stream) {
                                   dynamic_cast<NullDevice&>(device).Invalidate(stream);
                                 }}),
                         SubjectName);

}  // namespace kvr
