// SPDX-License-Identifier: Apache-2.0
//
// The manifests that docs/bundles.md shows are admitted as they stand.
#include <iterator>

#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

class Documented : public BundleTest {
 protected:
  // The text of the `index`th ```toml block.
  static std::string Block(int index) {
    std::ifstream file(std::string(KVR_SOURCE_DIR) + "/docs/bundles.md");
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    constexpr std::string_view kOpen = "```toml\n";
    size_t begin = 0;
    for (int i = 0; i <= index; ++i) begin = text.find(kOpen, begin) + kOpen.size();
    return text.substr(begin, text.find("```", begin) - begin);
  }
};

TEST_F(Documented, ManifestsAreAdmitted) {
  op_.outputs.resize(1);
  WriteBundle("r/baseline", Block(0));
  Write("r/w8/variant.toml", Block(2));
  const Scan scan = ScanRoots({"r"});
  for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
  ASSERT_EQ(scan.variants.size(), 2u);
  EXPECT_EQ(scan.variants[1]->tunables[0].default_value, 8);
}

TEST_F(Documented, TensorMapIsAdmitted) {
  WriteBundle("b", Replaced(Replaced(kManifest, "[\"sm_80+\", \"host\"]",
                                     "[\"sm_90a\"]\nhost_skip_reason = \"uses TMA\""),
                            "args = [\"x\",", "args = [\"tensor_map.x_tiles\", \"x\",") +
                       Block(1));
  const VariantPtr v = Only({"b"});
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(v->plan.tensor_maps.size(), 1u);
}

}  // namespace
}  // namespace kvr
