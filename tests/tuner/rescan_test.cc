// SPDX-License-Identifier: Apache-2.0
//
// A place read again: what it brings, and what elsewhere extends that, in its operation or another.
#include "tuner/rescan.h"

#include <gmock/gmock.h>

#include "core/strings.h"
#include "registry/catalog.h"
#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

class NamedOperation : public Operation {
 public:
  explicit NamedOperation(OpSpec spec) : spec_(std::move(spec)) {}
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>();
  }
  int64_t MinimumBytes(const AxisVector&) const override { return 0; }

 private:
  OpSpec spec_;
};

std::string Extending(std::string_view op, std::string_view name, std::string_view parent_op,
                      std::string_view parent) {
  return StrCat("schema = 1\nop = \"", op, "\"\nname = \"", name, "\"\nversion = \"1.0.0\"\n",
                "extends = { op = \"", parent_op, "\", variant = \"", parent,
                "\", version = \"1\" }\n");
}

class RescanTest : public BundleTest {
 protected:
  // scale_rows has a/baseline, and scale_blocks, which differs in its name, the two of z.
  void SetUp() override {
    BundleTest::SetUp();
    WriteBundle("a/baseline");
    Write("z/blocks/variant.toml", Extending("scale_blocks", "blocks", "scale_rows", "baseline"));
    Write("z/more/variant.toml", Extending("scale_blocks", "more", "scale_blocks", "blocks"));
  }

  // As a process that starts now.
  void Start() {
    std::vector<std::unique_ptr<Operation>> operations;
    for (const std::string_view name : {"scale_rows", "scale_blocks"}) {
      OpSpec op = ScaleRowsOp();
      op.name = std::string(name);
      operations.push_back(std::make_unique<NamedOperation>(std::move(op)));
    }
    absl::StatusOr<Catalog> catalog = Catalog::Create(std::move(operations));
    ASSERT_TRUE(catalog.ok()) << catalog.status();
    catalog_ = std::make_unique<Catalog>(*std::move(catalog));
    const std::vector<const OpSpec*> ops = catalog_->specs();
    const std::string roots[] = {Path("a"), Path("z")};
    catalog_->Add(ScanPlugins(roots, {.ops = ops}));
    ASSERT_TRUE(catalog_->rejections().empty()) << catalog_->rejections()[0].status;
  }

  absl::Status Still(const Variant& variant) const {
    const absl::StatusOr<VariantPtr> running = catalog_->Find(variant.op, variant.name);
    if (!running.ok()) return running.status();
    if ((*running)->fingerprint == variant.fingerprint) return absl::OkStatus();
    return absl::FailedPreconditionError("has changed");
  }

  absl::StatusOr<Rescanned> Rescan(std::string_view place) const {
    RescanOptions options;
    options.roots = {Path("a"), Path("z")};
    options.still = [this](const Variant& variant) { return Still(variant); };
    return RescanPlace(Path(place), *catalog_, options);
  }

  // "scale_rows/baseline ..."
  static std::vector<std::string> Names(const std::vector<VariantPtr>& variants) {
    std::vector<std::string> names;
    for (const VariantPtr& variant : variants) {
      names.push_back(StrCat(variant->op, "/", variant->name));
    }
    return names;
  }

  std::unique_ptr<Catalog> catalog_;
};

TEST_F(RescanTest, WhatExtendsAnEditedVariantIsReadAgainInAnotherOpToo) {
  Start();
  Write("a/baseline/tile.cuh", "// another tile\n");
  const absl::StatusOr<Rescanned> rescanned = Rescan("a/baseline");
  ASSERT_TRUE(rescanned.ok()) << rescanned.status();
  EXPECT_THAT(Names(rescanned->brought), testing::ElementsAre("scale_rows/baseline"));
  EXPECT_THAT(Names(rescanned->children),
              testing::ElementsAre("scale_blocks/blocks", "scale_blocks/more"));
  for (const VariantPtr& child : rescanned->children) {
    EXPECT_EQ(child->headers[0].content, "// another tile\n");
    EXPECT_EQ(PlaceOf(*child), Path("z/" + child->name));
  }
}

TEST_F(RescanTest, WhatStaysTheSameIsNotBrought) {
  Write("z/blocks/tile.cuh", "// of its own\n");
  Write("z/blocks/variant.toml", Extending("scale_blocks", "blocks", "scale_rows", "baseline") +
                                     "headers = [\"tile.cuh\"]\n");
  Start();
  Write("a/baseline/tile.cuh", "// another tile\n");
  const absl::StatusOr<Rescanned> rescanned = Rescan("a/baseline");
  ASSERT_TRUE(rescanned.ok()) << rescanned.status();
  EXPECT_THAT(rescanned->children, testing::IsEmpty());
}

TEST_F(RescanTest, WhatDoesNotRunHereIsNotBrought) {
  Start();
  Write("z/later/variant.toml", Extending("scale_blocks", "later", "scale_rows", "baseline"));
  Write("a/baseline/tile.cuh", "// another tile\n");
  const absl::StatusOr<Rescanned> rescanned = Rescan("a/baseline");
  ASSERT_TRUE(rescanned.ok()) << rescanned.status();
  EXPECT_THAT(Names(rescanned->children),
              testing::ElementsAre("scale_blocks/blocks", "scale_blocks/more"));
}

TEST_F(RescanTest, AParentOfAnotherOpThatHasChangedIsToBeSwappedFirst) {
  Start();
  Write("a/baseline/tile.cuh", "// another tile\n");
  const absl::Status stale = Rescan("z/blocks").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(stale));
  EXPECT_THAT(std::string(What(stale)), testing::HasSubstr("extends 'scale_rows/baseline'"));
}

}  // namespace
}  // namespace kvr
