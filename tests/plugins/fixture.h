// SPDX-License-Identifier: Apache-2.0
//
// A small op, a valid bundle for it, and a directory to write bundles into that goes with the test.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/scan.h"

namespace kvr {

inline OpSpec ScaleRowsOp() {
  OpSpec op;
  op.name = "scale_rows";
  op.axes = {{.name = "rows"}, {.name = "width", .default_value = 64}};
  op.inputs = {{.name = "x", .axes = {0, 1}}, {.name = "factor", .is_scalar = true}};
  op.outputs = {{.name = "y", .axes = {0, 1}}, {.name = "sums", .axes = {0}}};
  op.key_policy = "rows:pow2";
  return op;
}

inline constexpr std::string_view kManifest = R"toml(schema = 1
op = "scale_rows"
name = "baseline"
version = "1.2.3"
semantics = "exact"
baseline = true
description = "a row a block"
targets = ["sm_80+", "host"]
sources = ["scale.cu"]
headers = ["tile.cuh"]
constraints = ["width <= 1024"]

[tunables.WARPS]
values = [4, 8]
default = 4
scope = "compile"
description = "warps a block"

[tunables.CTAS]
values = [1, 2]
default = 1
scope = "launch"

[let]
tiles = "ceildiv(width, 32 * WARPS)"
chunks = "min(tiles, CTAS)"

[[workspace]]
name = "partial"
dtype = "float32"
elements = "rows * chunks"

[[kernel]]
name = "scale"
entry = "scale_rows<WARPS>"
grid = ["chunks", "rows"]
block = ["32 * WARPS"]
smem = "4 * width"
args = ["x", "factor", "y", "workspace.partial", "i32(width)"]

[[kernel]]
name = "merge"
entry = "merge_rows"
grid = ["rows"]
block = [32]
when = "chunks >= 1"
attributes = { programmatic = true }
args = ["workspace.partial", "sums", "i64(chunks)"]
)toml";

inline constexpr std::string_view kSource = R"cu(#include "tile.cuh"
template <int W> __global__ void scale_rows(const float*, float, float*, float*, int);
__global__ void merge_rows(const float*, float*, long long);
)cu";

inline constexpr std::string_view kHeader = "// a tile\n";

class BundleTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvr_bundle_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = std::filesystem::canonical(pattern);
    umask(022);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(std::string_view relative) const { return (dir_ / relative).string(); }

  void Write(std::string_view relative, std::string_view content) const {
    const std::filesystem::path path = dir_ / relative;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }

  // A whole bundle in `directory`.
  void WriteBundle(std::string_view directory, std::string_view manifest = kManifest) const {
    Write(std::string(directory) + "/variant.toml", manifest);
    Write(std::string(directory) + "/scale.cu", kSource);
    Write(std::string(directory) + "/tile.cuh", kHeader);
  }

  Scan ScanRoots(std::vector<std::string> relative) const {
    for (std::string& root : relative) root = Path(root);
    const OpSpec* ops[] = {&op_};
    return ScanPlugins(relative, {.ops = ops});
  }

  // The one variant of the roots, which must hold nothing else.
  VariantPtr Only(std::vector<std::string> roots) const {
    const Scan scan = ScanRoots(std::move(roots));
    for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
    EXPECT_EQ(scan.variants.size(), 1u);
    return scan.variants.empty() ? nullptr : scan.variants[0];
  }

  OpSpec op_ = ScaleRowsOp();
  std::filesystem::path dir_;
};

// `text` with the only occurrence of `from` replaced.
inline std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  const size_t at = result.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(result.find(from, at + 1), std::string::npos) << from;
  if (at != std::string::npos) result.replace(at, from.size(), to);
  return result;
}

inline const Variant* FindVariant(const Scan& scan, std::string_view name) {
  for (const VariantPtr& variant : scan.variants) {
    if (variant->name == name) return variant.get();
  }
  return nullptr;
}

}  // namespace kvr
