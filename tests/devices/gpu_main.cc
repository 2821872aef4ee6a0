// SPDX-License-Identifier: Apache-2.0
//
// main() of tests that need a GPU: without one they are skipped as a whole (exit code 77), and say
// why.
#include <gtest/gtest.h>

#include <iostream>

#include "devices/cuda/cuda.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const auto count = kvr::CudaDeviceCount(); !count.ok()) {
    std::cout << "SKIPPED: " << count.status().message() << std::endl;
    return 77;
  }
  return RUN_ALL_TESTS();
}
