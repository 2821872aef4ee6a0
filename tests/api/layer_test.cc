// SPDX-License-Identifier: Apache-2.0
//
// A fleet's layer under a serving process: compiled once elsewhere, exported, and then nothing
// compiles: neither with the same compiler nor with none, nor without a selection file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "api/host_library.h"
#include "api/platform.h"
#include "api/runtime.h"
#include "jit/cache_layer.h"

namespace kvr {
namespace {

constexpr char kOp[] = "mla_sparse_decode";
const Axes kAxes = {{"num_tokens", 2}, {"num_qo_heads", 16}, {"topk", 37}, {"num_pages", 8}};

class LayerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HostLibraryPath().ok()) GTEST_SKIP() << HostLibraryPath().status();
    directory_ = std::filesystem::temp_directory_path() / ("kvr-layer-" + std::to_string(getpid()));
    std::filesystem::create_directory(directory_);
    layer_ = directory_ / "layer";
    const absl::StatusOr<std::unique_ptr<Runtime>> maker =
        Runtime::Open({.device = "host", .cache_dir = directory_ / "maker", .environment = false});
    ASSERT_TRUE(maker.ok()) << maker.status();
    const absl::StatusOr<LoadReport> report = (*maker)->Load(kOp, {kAxes});
    ASSERT_TRUE(report.ok() && report->ready()) << report.status();
    EXPECT_GT((*maker)->platform().jit().stats().compiles, 0);
    const absl::StatusOr<Transfer> transfer =
        ExportLayer((*maker)->platform().cache(), layer_, {.targets = {"host"}});
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    EXPECT_GT(transfer->copied, 0);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void ExpectServed(bool compilers) {
    const absl::StatusOr<std::unique_ptr<Runtime>> server =
        Runtime::Open({.device = "host",
                       .cache_dir = directory_ / "server",
                       .cache_layers = {layer_},
                       .compilers = compilers,
                       .environment = false});
    ASSERT_TRUE(server.ok()) << server.status();
    const absl::StatusOr<LoadReport> report = (*server)->Load(kOp, {kAxes});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ready()) << report->Text();
    EXPECT_TRUE(report->fallback.ok()) << report->fallback;
    EXPECT_TRUE(report->items[0].cache_hit);
    EXPECT_EQ((*server)->platform().jit().stats().compiles, 0);
    EXPECT_EQ((*server)->platform().cache().stats().layer_hits, 1);
    EXPECT_FALSE(std::filesystem::exists(directory_ / "server/v2")) << "nothing to store";
  }
  std::filesystem::path directory_;
  std::string layer_;
};

TEST_F(LayerTest, ServesWithTheSameCompilerAndWithNone) {
  ExpectServed(/*compilers=*/true);
  ExpectServed(/*compilers=*/false);
}

}  // namespace
}  // namespace kvr
