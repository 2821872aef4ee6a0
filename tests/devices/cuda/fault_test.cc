// SPDX-License-Identifier: Apache-2.0
//
// A kernel that stores outside memory: the error that arrives, and what is left of the context. On
// its own, since nothing in this process can use the GPU afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/status.h"
#include "devices/cuda/cuda.h"
#include "tests/devices/cuda/ptx.h"

namespace kvr {
namespace {

TEST(GpuFault, IllegalAccessIsInternalAndSticks) {
  auto device = OpenCuda(0);
  ASSERT_TRUE(device.ok()) << device.status();
  auto stream = (*device)->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  Binary binary;
  binary.target = (*device)->info().target;
  binary.bytes = kPtx;
  auto module = (*device)->Load(binary);
  ASSERT_TRUE(module.ok()) << module.status();
  auto function = (*module)->Get("store", 0);
  ASSERT_TRUE(function.ok()) << function.status();

  void* nowhere = reinterpret_cast<void*>(0x10);
  void* params[] = {&nowhere};
  ASSERT_EQ((*device)->Launch(*function, KernelLaunch{}, {}, params, *stream), absl::OkStatus());
  const absl::Status status = (*device)->Synchronize(*stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("cuStreamSynchronize"),
                             testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  EXPECT_THAT(std::string(Fix(status)), testing::HasSubstr("compute-sanitizer"));
  EXPECT_EQ((*device)->Allocate(16).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace kvr
