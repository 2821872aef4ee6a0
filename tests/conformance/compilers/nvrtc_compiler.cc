// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc/nvrtc.h"
#include "tests/conformance/compilers/compiler_conformance.h"

namespace kvr {

INSTANTIATE_TEST_SUITE_P(Nvrtc, CompilerConformance,
                         testing::Values(CompilerSubject{.name = "nvrtc",
                                                         .open =
                                                             [](const std::string& sdk_dir) {
                                                               ToolchainOptions options;
                                                               options.sdk_dir = sdk_dir;
                                                               return MakeNvrtcCompiler(options);
                                                             }}),
                         CompilerSubjectName);

}  // namespace kvr
