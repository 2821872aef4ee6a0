// SPDX-License-Identifier: Apache-2.0
//
// The compiled plugins of fixtures/, copied where a test may scan and damage them.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/install_layout.h"
#include "tests/plugins/fixture.h"

namespace kvr {

inline std::string FixturePlugin(std::string_view name) {
  return InstallPath("tests/fixtures/plugins/" + std::string(name) + ".so");
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class PluginTest : public BundleTest {
 protected:
  // tests/fixtures/plugins/<name>.so as `relative`, with its path.
  std::string Copy(std::string_view name, std::string_view relative) const {
    Write(relative, ReadFile(FixturePlugin(name)));
    return Path(relative);
  }

  Scan ScanAll(std::vector<std::string> relative, const ScanOptions& options = {}) const {
    for (std::string& root : relative) root = Path(root);
    return ScanPlugins(relative, options);
  }

  // The demo, whole.
  Scan ScanDemo(std::string_view name = "kvr_test_demo") const {
    Copy(name, "p/plugin.so");
    Scan scan = ScanAll({"p"});
    for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
    EXPECT_EQ(scan.operations.size(), 1u);
    EXPECT_EQ(scan.variants.size(), 3u);
    return scan;
  }

  // What the scan of one file, which must give nothing, says.
  absl::Status RefusalOf(std::string_view relative) const {
    const Scan scan = ScanAll({std::string(relative)});
    EXPECT_TRUE(scan.variants.empty());
    EXPECT_TRUE(scan.operations.empty());
    return scan.rejections.size() == 1 ? scan.rejections[0].status : absl::OkStatus();
  }
};

// Memory for an op's inputs.
struct Inputs {
  Inputs(const OpSpec& op, const AxisVector& axes) : views(TensorShapes(op, axes)) {
    views.resize(op.inputs.size());
    for (TensorView& view : views) {
      memory.push_back(std::make_unique<char[]>(view.bytes() + 8));
      view.data = memory.back().get();
    }
  }
  std::vector<TensorView> views;
  std::vector<std::unique_ptr<char[]>> memory;
};

}  // namespace kvr
