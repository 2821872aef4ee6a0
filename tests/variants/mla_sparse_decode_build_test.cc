// SPDX-License-Identifier: Apache-2.0
//
// The variants of mla_sparse_decode compile as they ship, and what is promised of the binaries.
#include <gtest/gtest.h>

#include <string>

#include "jit/jit.h"
#include "jit/nvrtc/nvrtc.h"
#include "tests/variants/problem.h"

namespace kvr {
namespace {

TEST(MlaSparseDecodeBuild, DefaultsCompileWithoutSpills) {
  ToolchainOptions options;
  options.sdk_dir = KVR_SOURCE_DIR "/sdk/device";
  absl::StatusOr<std::unique_ptr<Compiler>> nvrtc = MakeNvrtcCompiler(options);
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  std::vector<std::unique_ptr<Compiler>> compilers;
  compilers.push_back(*std::move(nvrtc));
  Jit jit(std::move(compilers), nullptr);

  const std::unique_ptr<Operation> op = BuiltinOperation("mla_sparse_decode");
  for (const VariantPtr& variant : ScanBuiltins().variants) {
    // The portable ones; those for Hopper alone are a test of their own.
    if (variant->op != op->spec().name || !variant->Supports("sm_80")) continue;
    for (const char* target : {"sm_80", "sm_90a", "sm_120a"}) {
      if (!jit.CanCompile(target)) continue;
      if (!variant->is_baseline && target != std::string("sm_120a")) continue;  // saves time
      SCOPED_TRACE(variant->name + " for " + target);
      const auto built = jit.Build(op->spec(), *variant, DefaultConfig(variant->tunables), target);
      ASSERT_TRUE(built.ok()) << built.status();
      ASSERT_EQ(built->binary->kernels.size(), 2u);
      for (const BinaryKernel& kernel : built->binary->kernels) {
        EXPECT_EQ(kernel.resources.spill_bytes, 0) << kernel.entry;
        EXPECT_EQ(kernel.resources.frame_bytes, 0) << kernel.entry;
      }
    }
  }
}

}  // namespace
}  // namespace kvr
