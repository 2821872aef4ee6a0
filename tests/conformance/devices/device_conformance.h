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

  // For the device's target, a binary with the kernels of kSource under their own names.
  std::function<absl::StatusOr<Binary>(const Device&)> kernels;

  // In CUDA, for those that compile.
  static constexpr char kSource[] = R"(
extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
extern "C" __global__ void trap() { __trap(); }
extern "C" __global__ void store(unsigned* where) { *where = 1; }
)";

  bool runs_kernels = true;    // false: binaries are not looked at and launches change no memory
  bool faults_stick = false;   // a kernel's fault is the end of the device in this process
  bool finds_dangling = true;  // a node of a graph that was not kept is an error, not a crash

  // Invalidates the capture of a stream behind the device's back; null: nothing can.
  std::function<void(Device&, Stream)> invalidate;
};

void PrintTo(const Subject& subject, std::ostream* out);
std::string SubjectName(const testing::TestParamInfo<Subject>& info);

class DeviceConformance : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;

  std::unique_ptr<Device> device_;
};

}  // namespace kvr
