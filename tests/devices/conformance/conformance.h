// SPDX-License-Identifier: Apache-2.0
//
// What every device must do, as one suite. A device takes part by adding one file here that says
//
//   INSTANTIATE_TEST_SUITE_P(Null, DeviceConformance, testing::Values(Subject{...}), SubjectName);
//
// and one line in CMakeLists.txt.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/device.h"

namespace kvr {

struct Subject {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> open;

  // For the device's target, a binary with the kernel, its symbol being "add":
  //   extern "C" __global__ void add(const float* a, const float* b, float* out, int n)
  // in which each thread sets one out[i] = a[i] + b[i], if i < n, i over the grid's x.
  std::function<absl::StatusOr<Binary>(const Device&)> add_kernel;

  // The source of `add` in CUDA, for those that compile.
  static constexpr char kAddSource[] = R"(
extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
)";

  bool runs_kernels = true;  // false: binaries are not looked at and launches change no memory
};

std::string SubjectName(const testing::TestParamInfo<Subject>& info);

class DeviceConformance : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;

  std::unique_ptr<Device> device_;
};

}  // namespace kvr
