// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/cuda.h"
#include "tests/devices/conformance/conformance.h"
#include "tests/devices/cuda/ptx.h"

namespace kvr {

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(Subject{
                             .name = "cuda",
                             .open = [] { return OpenCuda(0); },
                             .add_kernel = [](const Device& device) -> absl::StatusOr<Binary> {
                               Binary binary;
                               binary.target = device.info().target;
                               binary.bytes = kPtx;
                               return binary;
                             }}),
                         SubjectName);

}  // namespace kvr
