// SPDX-License-Identifier: Apache-2.0
//
// What docs/bundles.md and docs/formats.md show is read as it stands.
#include <iterator>

#include "core/definition.h"
#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

class Documented : public BundleTest {
 protected:
  // The text of the `index`th block that `open` opens.
  static std::string Block(int index, std::string_view document = "bundles.md",
                           std::string_view open = "```toml\n") {
    std::ifstream file(std::string(KVR_SOURCE_DIR) + "/docs/" + std::string(document));
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    size_t begin = 0;
    for (int i = 0; i <= index; ++i) begin = text.find(open, begin) + open.size();
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

TEST_F(Documented, DefinitionIsRead) {
  const absl::StatusOr<OpSpec> op = ParseDefinition(Block(0, "formats.md", "```json\n"));
  ASSERT_TRUE(op.ok()) << op.status();
  EXPECT_EQ(op->inputs[2].scalar_default, 1e-6);
  EXPECT_EQ(TensorShapes(*op, *ResolveAxes(*op, {}))[0].shape[0], 64);
}

TEST_F(Documented, LetsMergeAsShown) {
  op_.outputs.resize(1);
  const std::string parent =
      Replaced(Replaced(Block(0), "32 * WARPS)\"", "32 * WARPS)\"\nblocks = \"rows * tiles\""),
               "elements = \"rows * tiles\"", "elements = \"blocks\"");
  WriteBundle("r/baseline", parent);
  Write("r/w8/variant.toml", Block(2) +
                                 "[let]\nwide = \"64 * WARPS\"\ntiles = \"ceildiv(width, wide)\"\n"
                                 "last = \"blocks - 1\"\n[[kernel]]\nname = \"scale\"\n"
                                 "when = \"last\"\n");
  const Scan scan = ScanRoots({"r"});
  for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
  ASSERT_EQ(scan.variants.size(), 2u);
  std::vector<std::string> names;
  for (const auto& let : scan.variants[1]->plan.lets) names.push_back(let.name);
  EXPECT_THAT(names, testing::ElementsAre("wide", "tiles", "blocks", "last"));
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
