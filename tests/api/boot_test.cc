// SPDX-License-Identifier: Apache-2.0
//
// A serving process boots from a selection file and a cache alone, on the host device: no compiler
// is opened, nothing compiles after Freeze, and what it launches is correct.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "api/host_library.h"
#include "api/platform.h"
#include "api/runtime.h"
#include "core/dtype.h"

namespace kvr {
namespace {

constexpr char kOp[] = "mla_sparse_decode";
const Axes kAxes = {{"num_tokens", 2}, {"num_qo_heads", 16}, {"topk", 37}, {"num_pages", 8}};

class BootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HostLibraryPath().ok()) GTEST_SKIP() << HostLibraryPath().status();
    directory_ = std::filesystem::temp_directory_path() / ("kvr-boot-" + std::to_string(getpid()));
    std::filesystem::create_directory(directory_);
    options_ = {.device = "host", .cache_dir = directory_ / "cache", .environment = false};
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Launches on fresh inputs and compares every output with the op's reference.
  static void ExpectCorrect(Runtime& runtime) {
    Device& device = runtime.device();
    const Catalog::Op& op = **runtime.catalog().FindOp(kOp);
    const OpSpec& spec = op.spec();
    const AxisVector axes = *ResolveAxes(spec, kAxes);
    std::vector<TensorView> host = TensorShapes(spec, axes);
    std::vector<std::vector<char>> memory(host.size());
    for (size_t i = 0; i < host.size(); ++i) {
      memory[i].assign(static_cast<size_t>(host[i].bytes()), '\x7f');
      host[i].data = memory[i].data();
    }
    const size_t inputs = spec.inputs.size();
    const absl::Span<const TensorView> views = host;
    ASSERT_TRUE(op.operation->Generate(axes, 7, views.first(inputs)).ok());
    const auto reference = op.operation->Reference(axes, views.first(inputs), 2);
    ASSERT_TRUE(reference.ok()) << reference.status();

    const Stream stream = *device.CreateStream();
    std::vector<TensorView> tensors = host;
    for (size_t i = 0; i < host.size(); ++i) {
      if (host[i].rank == 0) continue;
      tensors[i].data = *device.Allocate(host[i].bytes());
      ASSERT_TRUE(device.CopyToDevice(tensors[i].data, host[i].data, host[i].bytes(), stream).ok());
    }
    const absl::Status launched = runtime.Launch(kOp, tensors, stream);
    ASSERT_TRUE(launched.ok()) << launched;
    for (size_t i = inputs; i < host.size(); ++i) {
      ASSERT_TRUE(device.CopyToHost(host[i].data, tensors[i].data, host[i].bytes(), stream).ok());
    }
    const absl::Status done = device.Synchronize(stream);
    ASSERT_TRUE(done.ok()) << done;
    for (size_t o = 0; o < reference->size(); ++o) {
      const ReferenceOutput& expected = (*reference)[o];
      const TensorView& output = host[inputs + o];
      int wrong = 0;
      for (size_t e = 0; e < expected.expected.size(); ++e) {
        const double got = LoadAsDouble(output.data, output.dtype, static_cast<int64_t>(e));
        const double want = expected.expected[e];
        const bool fine =
            std::isinf(want) ? got == want : std::fabs(got - want) <= expected.bound[e];
        wrong += !fine;
      }
      EXPECT_EQ(wrong, 0) << spec.outputs[o].name;
    }
    for (const TensorView& tensor : tensors) {
      if (tensor.rank > 0) device.Free(tensor.data);
    }
    device.DestroyStream(stream);
  }

  std::filesystem::path directory_;
  RuntimeOptions options_;
};

TEST_F(BootTest, FromASelectionFileAndTheCacheAloneWithoutACompiler) {
  const std::string file = directory_ / "selections.json";
  {
    const absl::StatusOr<std::unique_ptr<Runtime>> first = Runtime::Open(options_);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::StatusOr<LoadReport> report = (*first)->Load(kOp, {kAxes});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->ready()) << report->Text();
    ExpectCorrect(**first);

    const VariantPtr baseline = *(*first)->catalog().Baseline(kOp);
    const KeyPolicy& policy = (*(*first)->catalog().FindOp(kOp))->policy;
    const DeviceInfo& info = (*first)->device().info();
    GenerationBuilder builder(info.model, info.target);
    builder.SetPolicy(kOp, policy);
    ASSERT_TRUE(builder
                    .Select(kOp, *policy.FromNamed(report->items[0].key),
                            {.variant = baseline,
                             .config = report->items[0].config,
                             .binary = report->items[0].binary})
                    .ok());
    ASSERT_TRUE(WriteSelectionFile(*builder.Build(1), file).ok());
  }

  options_.selection_file = file;
  options_.compilers = false;
  options_.miss_policy = MissPolicy::kError;
  const absl::StatusOr<std::unique_ptr<Runtime>> second = Runtime::Open(options_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE((*second)->dropped().empty());
  EXPECT_TRUE((*second)->platform().CompilableTargets().empty());
  const absl::StatusOr<LoadReport> report = (*second)->Load(kOp, {kAxes});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(report->ready()) << report->Text();
  EXPECT_EQ(report->items[0].why, "selected");
  EXPECT_TRUE(report->items[0].cache_hit);
  ExpectCorrect(**second);
  EXPECT_EQ((*second)->counters().misses, 0u);
}

}  // namespace
}  // namespace kvr
