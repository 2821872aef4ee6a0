// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/cuda.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/devices/cuda/ptx.h"

namespace kvr {

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(Subject{
                             .name = "cuda",
                             .open = [] { return OpenCuda(0); },
                             .kernels = [](const Device& device) -> absl::StatusOr<Binary> {
                               Binary binary;
                               binary.target = device.info().target;
                               binary.bytes = kPtx;
                               return binary;
                             },
                             .faults_stick = true}),
                         SubjectName);

}  // namespace kvr
