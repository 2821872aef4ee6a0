// SPDX-License-Identifier: Apache-2.0
#include "devices/null/null.h"
#include "tests/devices/conformance/conformance.h"

namespace kvr {

INSTANTIATE_TEST_SUITE_P(Null, DeviceConformance,
                         testing::Values(Subject{
                             .name = "null",
                             .open = [] { return OpenNull(); },
                             .add_kernel = [](const Device& device) -> absl::StatusOr<Binary> {
                               Binary binary;
                               binary.target = device.info().target;
                               return binary;
                             },
                             .runs_kernels = false}),
                         SubjectName);

}  // namespace kvr
