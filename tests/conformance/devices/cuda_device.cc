// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/cuda.h"
#include "devices/cuda/driver.h"
#include "tests/conformance/devices/device_conformance.h"
#include "tests/devices/cuda/ptx.h"

namespace kvr {
namespace {

void SynchronizeUnseen(Device&, Stream stream) {
  const auto driver = cuda::GetDriver();
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_NE((*driver)->StreamSynchronize(static_cast<cuda::StreamHandle>(stream.handle)),
            cuda::kSuccess);
}

}  // namespace

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
                             .faults_stick = true,
                             .finds_dangling = false,
                             .invalidate = &SynchronizeUnseen}),
                         SubjectName);

}  // namespace kvr
