// SPDX-License-Identifier: Apache-2.0
//
// Compiles CUDA sources with the host module's compiler and runs them on its device. Device memory
// is the process's own, so tests pass pointers of their vectors.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device.h"
#include "jit/compiler.h"

namespace kvr {

absl::StatusOr<std::unique_ptr<Device>> OpenHostDevice();
Device& HostDeviceUnderTest();  // one for all tests
Compiler& HostCompilerUnderTest();

std::unique_ptr<Compiler> OpenHostCompiler(const std::string& sdk_dir);

// A unit of one file, "kernel.cu"; entries are name expressions.
absl::StatusOr<Binary> CompileForHost(const std::string& source,
                                      const std::vector<std::string>& entries,
                                      Compiler& compiler = HostCompilerUnderTest());

class HostKernel {
 public:
  // Fails the test if `source` does not compile or load.
  HostKernel(const std::string& source, const std::string& entry, int64_t dynamic_smem = 0);

  const BinaryKernel& kernel() const { return binary_.kernels.at(0); }

  // Launches on the default stream and waits.
  template <class... Args>
  absl::Status Run(Dim3 grid, Dim3 block, int64_t smem, const Args&... args) {
    const std::array<const void*, sizeof...(Args) + 1> params = {&args..., nullptr};
    return RunWith(grid, block, smem, const_cast<void* const*>(params.data()));
  }
  absl::Status RunWith(Dim3 grid, Dim3 block, int64_t smem, void* const* params);

 private:
  Binary binary_;
  std::unique_ptr<Module> module_;
  Function function_;
};

}  // namespace kvr
