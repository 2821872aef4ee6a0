// SPDX-License-Identifier: Apache-2.0
//
// `extends`: a variant of a few lines.
#include "tests/plugins/fixture.h"

namespace kvr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kHead = R"toml(schema = 1
op = "scale_rows"
name = "w8"
version = "1.0.0"
extends = { variant = "baseline", version = "1" }
)toml";

class Extends : public BundleTest {
 protected:
  void SetUp() override {
    BundleTest::SetUp();
    WriteBundle("a/baseline");
  }

  // The scan of the baseline and of a child in another root.
  Scan WithChild(std::string_view rest, std::string_view head = kHead) {
    Write("z/w8/variant.toml", std::string(head) + std::string(rest));
    return ScanRoots({"z", "a"});
  }

  VariantPtr Child(std::string_view rest) {
    const Scan scan = WithChild(rest);
    for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
    for (const VariantPtr& v : scan.variants) {
      if (v->name == "w8") return v;
    }
    return std::make_shared<Variant>();
  }

  std::string ChildError(std::string_view rest, std::string_view head = kHead) {
    const Scan scan = WithChild(rest, head);
    for (const Rejection& r : scan.rejections) {
      if (r.path == Path("z/w8/variant.toml")) return std::string(r.status.message());
    }
    return "accepted";
  }
};

TEST_F(Extends, ChildStatesOnlyWhatDiffers) {
  const VariantPtr w8 = Child("[tunables.WARPS]\nvalues = [8]\ndefault = 8\nscope = \"compile\"\n");
  EXPECT_EQ(w8->extends, "baseline");
  EXPECT_FALSE(w8->is_baseline);
  EXPECT_EQ(w8->description, "");
  EXPECT_EQ(w8->version, "1.0.0");
  EXPECT_EQ(w8->directory, Path("z/w8"));
  EXPECT_THAT(w8->targets, ElementsAre("sm_80+", "host"));
  ASSERT_EQ(w8->sources.size(), 1u);
  EXPECT_EQ(w8->sources[0].path, Path("a/baseline/scale.cu"));
  ASSERT_EQ(w8->tunables.size(), 2u);
  EXPECT_EQ(w8->tunables[0].name, "WARPS");  // replaced where it stood
  EXPECT_THAT(w8->tunables[0].values, ElementsAre(8));
  EXPECT_EQ(w8->plan.kernels.size(), 2u);
}

TEST_F(Extends, KernelsMergeKeyByKey) {
  const VariantPtr w8 = Child("[[kernel]]\nname = \"scale\"\nsmem = \"8 * width\"\n");
  ASSERT_EQ(w8->plan.kernels.size(), 2u);
  EXPECT_EQ(w8->plan.kernels[0].smem.text(), "8 * width");
  EXPECT_EQ(w8->plan.kernels[0].entry, "scale_rows<WARPS>");
  EXPECT_EQ(w8->plan.kernels[0].file, Path("z/w8/variant.toml"));
}

TEST_F(Extends, LetsKeepTheirPlaceAndNewOnesPrecedeTheirUser) {
  const VariantPtr w8 = Child(
      "[let]\nwide = \"32 * WARPS\"\ntiles = \"ceildiv(width, wide)\"\n"
      "last = \"chunks + 1\"\n[[workspace]]\nname = \"partial\"\n"
      "elements = \"rows * last\"\n");
  std::vector<std::string> names;
  for (const auto& let : w8->plan.lets) names.push_back(let.name);
  EXPECT_THAT(names, ElementsAre("wide", "tiles", "chunks", "last"));
  EXPECT_EQ(w8->plan.regions[0].elements.text(), "rows * last");
  EXPECT_EQ(w8->plan.regions[0].dtype, DType::kF32);
}

TEST_F(Extends, FilesReplaceByNameOrFollow) {
  Write("z/w8/tile.cuh", "// wider\n");
  Write("z/w8/extra.cuh", "// extra\n");
  const VariantPtr w8 = Child("headers = [\"extra.cuh\", \"tile.cuh\"]\n");
  ASSERT_EQ(w8->headers.size(), 2u);
  EXPECT_EQ(w8->headers[0].content, "// wider\n");
  EXPECT_EQ(w8->headers[1].content, "// extra\n");
}

TEST_F(Extends, FileCannotChangeItsKind) {
  Write("z/w8/tile.cuh", "// wider\n");
  EXPECT_THAT(ChildError("sources = [\"tile.cuh\"]\n"), HasSubstr("is a header of the variant"));
}

TEST_F(Extends, InheritedTunableThatNothingUsesAnyLongerIsDropped) {
  const VariantPtr w8 = Child("[let]\nchunks = \"tiles\"\n");
  ASSERT_EQ(w8->tunables.size(), 1u);
  EXPECT_EQ(w8->tunables[0].name, "WARPS");
}

TEST_F(Extends, InheritedLetsAndRegionsThatNothingUsesAnyLongerAreDropped) {
  const VariantPtr w8 = Child(
      "[[kernel]]\nname = \"scale\"\ngrid = [\"rows\"]\nargs = [\"x\", \"factor\", \"y\"]\n"
      "[[kernel]]\nname = \"merge\"\nwhen = 1\nargs = [\"sums\"]\n");
  EXPECT_TRUE(w8->plan.regions.empty());
  EXPECT_TRUE(w8->plan.lets.empty());  // "tiles" goes with "chunks", its only user
  ASSERT_EQ(w8->tunables.size(), 1u);
  EXPECT_EQ(w8->tunables[0].name, "WARPS");
}

TEST_F(Extends, OwnLetsAndRegionsMustBeUsed) {
  EXPECT_THAT(ChildError("[let]\nspare = 1\n"), HasSubstr("let 'spare' is used by no expression"));
  EXPECT_THAT(ChildError("[[kernel]]\nname = \"merge\"\nargs = [\"sums\", \"i64(chunks)\"]\n"
                         "[[kernel]]\nname = \"scale\"\nargs = [\"x\", \"y\"]\n"
                         "[[workspace]]\nname = \"partial\"\nzeroed = true\n"),
              HasSubstr("workspace 'partial' is the argument of no kernel"));
}

TEST_F(Extends, OwnTargetsDropTheParentsReason) {
  EXPECT_THAT(ChildError("targets = [\"sm_90a\"]\n"), HasSubstr("host_skip_reason is missing"));
  const VariantPtr w8 = Child("targets = [\"sm_90a\"]\nhost_skip_reason = \"uses wgmma\"\n");
  std::string reason;
  EXPECT_FALSE(w8->Supports("host", &reason));
  EXPECT_EQ(reason, "uses wgmma");
}

TEST_F(Extends, ChainsMerge) {
  Write("z/w9/variant.toml",
        Replaced(Replaced(kHead, "\"w8\"", "\"w9\""), "\"baseline\"", "\"w8\""));
  const Scan scan = WithChild("key_policy = \"width:exact\"\n");
  EXPECT_TRUE(scan.rejections.empty());
  const Variant* w9 = FindVariant(scan, "w9");
  ASSERT_NE(w9, nullptr);
  EXPECT_EQ(w9->key_policy, "width:exact");
  EXPECT_EQ(w9->extends, "w8");
}

TEST_F(Extends, SameResultSameFingerprint) {
  const Scan scan = WithChild("");
  ASSERT_EQ(scan.variants.size(), 2u);
  EXPECT_EQ(scan.variants[0]->fingerprint, scan.variants[1]->fingerprint);
}

TEST_F(Extends, UnknownParentNamesTheNearest) {
  EXPECT_THAT(ChildError("", Replaced(kHead, "\"baseline\"", "\"basline\"")),
              HasSubstr("did you mean 'baseline'?"));
}

TEST_F(Extends, OtherMajorVersionIsRefused) {
  EXPECT_THAT(ChildError("", Replaced(kHead, "version = \"1\"", "version = \"2\"")),
              HasSubstr("version 2, but version 1.2.3 is there"));
}

TEST_F(Extends, RejectedParentRejectsTheChildAndSaysWhy) {
  Write("a/baseline/variant.toml", Replaced(kManifest, "\"y\"", "\"yy\""));
  const std::string error = ChildError("");
  EXPECT_THAT(error, HasSubstr("extends 'baseline', which is rejected"));
  EXPECT_THAT(error, HasSubstr("names no tensor"));
}

TEST_F(Extends, CyclesAreRefusedWhereverOneStarts) {
  EXPECT_THAT(ChildError("", Replaced(kHead, "\"baseline\"", "\"w8\"")),
              HasSubstr("extends itself"));
  Write("z/w9/variant.toml",
        Replaced(Replaced(kHead, "\"w8\"", "\"w9\""), "\"baseline\"", "\"w8\""));
  const Scan scan = WithChild("", Replaced(kHead, "\"baseline\"", "\"w9\""));
  EXPECT_EQ(scan.variants.size(), 1u);
  ASSERT_EQ(scan.rejections.size(), 2u);
  for (const Rejection& r : scan.rejections) {
    EXPECT_THAT(std::string(r.status.message()), HasSubstr("a cycle"));
  }
}

TEST_F(Extends, LongChainsAreRefused) {
  std::string parent = "baseline";
  for (int i = 0; i < 12; ++i) {
    const std::string name = "c" + std::to_string(i);
    Write("z/" + name + "/variant.toml", Replaced(Replaced(kHead, "\"w8\"", "\"" + name + "\""),
                                                  "\"baseline\"", "\"" + parent + "\""));
    parent = name;
  }
  const Scan scan = ScanRoots({"z", "a"});
  EXPECT_EQ(scan.variants.size(), 9u);  // the baseline and eight on top of it
  for (const Rejection& r : scan.rejections) {
    EXPECT_THAT(std::string(r.status.message()), HasSubstr("a chain of more than 8"));
  }
}

TEST_F(Extends, SecondOfANameIsRejectedAndTheFirstStays) {
  WriteBundle("b/other");
  const Scan scan = ScanRoots({"a", "b"});
  ASSERT_EQ(scan.variants.size(), 1u);
  EXPECT_EQ(scan.variants[0]->directory, Path("a/baseline"));
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_EQ(scan.rejections[0].status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()),
              HasSubstr(Path("a/baseline/variant.toml")));
}

TEST_F(Extends, BrokenBundleDoesNotHoldItsName) {
  Write("a/baseline/variant.toml", Replaced(kManifest, "\"y\"", "\"yy\""));
  WriteBundle("b/other");
  const Scan scan = ScanRoots({"a", "b"});
  ASSERT_EQ(scan.variants.size(), 1u);
  EXPECT_EQ(scan.variants[0]->directory, Path("b/other"));
}

TEST_F(Extends, SecondBaselineOfAnOpIsRejected) {
  WriteBundle("b/other", Replaced(kManifest, "\"baseline\"", "\"other\""));
  const Scan scan = ScanRoots({"a", "b"});
  ASSERT_EQ(scan.rejections.size(), 1u);
  EXPECT_THAT(std::string(scan.rejections[0].status.message()),
              HasSubstr("already has the baseline 'baseline'"));
}

// Another op, of the same tensors but one more, with another name for its second axis.
OpSpec OtherOp() {
  OpSpec op = ScaleRowsOp();
  op.name = "scale_blocks";
  op.axes[1].name = "columns";
  op.key_policy = "";
  return op;
}

constexpr std::string_view kOtherHead = R"toml(schema = 1
op = "scale_blocks"
name = "baseline"
version = "1.0.0"
baseline = true
extends = { op = "scale_rows", variant = "baseline", version = "1" }
)toml";

// What of the parent speaks of "width".
constexpr std::string_view kColumns = R"toml(constraints = ["columns <= 1024"]
[let]
tiles = "ceildiv(columns, 32 * WARPS)"
[[kernel]]
name = "scale"
smem = "4 * columns"
args = ["x", "factor", "y", "workspace.partial", "i32(columns)"]
)toml";

class ExtendsOtherOp : public BundleTest {
 protected:
  void SetUp() override {
    BundleTest::SetUp();
    WriteBundle("a/baseline");
  }

  Scan ScanTwo(std::vector<std::string> relative) const {
    for (std::string& root : relative) root = Path(root);
    const OpSpec* ops[] = {&op_, &other_};
    return ScanPlugins(relative, {.ops = ops});
  }

  absl::StatusOr<VariantPtr> Child(std::string_view rest = kColumns,
                                   std::string_view head = kOtherHead,
                                   std::vector<std::string> roots = {"z", "a"}) {
    Write("z/blocks/variant.toml", std::string(head) + std::string(rest));
    const Scan scan = ScanTwo(std::move(roots));
    for (const Rejection& r : scan.rejections) {
      if (r.path == Path("z/blocks/variant.toml")) return r.status;
    }
    for (const VariantPtr& v : scan.variants) {
      if (v->op == "scale_blocks") return v;
    }
    return absl::InternalError("gone");
  }

  // The error's two parts; it must be of the child's line of that number.
  void ExpectRefused(const absl::StatusOr<VariantPtr>& child, int line, std::string_view what,
                     std::string_view fix) const {
    const std::string place = Path("z/blocks/variant.toml") + ":" + std::to_string(line) + ":";
    EXPECT_THAT(std::string(What(child.status())), testing::StartsWith(place)) << child.status();
    EXPECT_THAT(std::string(What(child.status())), HasSubstr(std::string(what)));
    EXPECT_THAT(std::string(Fix(child.status())), HasSubstr(std::string(fix)));
  }

  OpSpec other_ = OtherOp();
};

TEST_F(ExtendsOtherOp, TakesWhatItDoesNotState) {
  const absl::StatusOr<VariantPtr> child = Child();
  ASSERT_TRUE(child.ok()) << child.status();
  const Variant& v = **child;
  EXPECT_EQ(v.extends, "scale_rows/baseline");
  EXPECT_TRUE(v.is_baseline);
  EXPECT_EQ(v.directory, Path("z/blocks"));
  ASSERT_EQ(v.sources.size(), 1u);
  EXPECT_EQ(v.sources[0].path, Path("a/baseline/scale.cu"));
  ASSERT_EQ(v.tunables.size(), 2u);
  EXPECT_EQ(v.plan.kernels[0].entry, "scale_rows<WARPS>");
  EXPECT_EQ(v.plan.kernels[0].smem.text(), "4 * columns");
  EXPECT_EQ(v.plan.kernels[1].name, "merge");
}

TEST_F(ExtendsOtherOp, IsWhatTheSameFilesInOneBundleAre) {
  const absl::StatusOr<VariantPtr> child = Child();
  ASSERT_TRUE(child.ok()) << child.status();
  std::string whole(kManifest);
  for (size_t at; (at = whole.find("width")) != std::string::npos;) {
    whole.replace(at, 5, "columns");
  }
  std::filesystem::remove_all(dir_ / "z");
  WriteBundle("b", Replaced(whole, "\"scale_rows\"", "\"scale_blocks\""));
  const Scan scan = ScanTwo({"b"});
  ASSERT_EQ(scan.variants.size(), 1u);
  EXPECT_EQ(scan.variants[0]->fingerprint, (*child)->fingerprint);
}

TEST_F(ExtendsOtherOp, ChangedFileOfTheParentChangesTheFingerprint) {
  const absl::StatusOr<VariantPtr> before = Child();
  ASSERT_TRUE(before.ok()) << before.status();
  Write("a/baseline/tile.cuh", "// another tile\n");
  const absl::StatusOr<VariantPtr> after = Child();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_NE((*before)->fingerprint, (*after)->fingerprint);
  // Its own file of that name hides the parent's.
  Write("z/blocks/tile.cuh", kHeader);
  const absl::StatusOr<VariantPtr> own =
      Child("headers = [\"tile.cuh\"]\n" + std::string(kColumns));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*before)->fingerprint, (*own)->fingerprint);
}

TEST_F(ExtendsOtherOp, OwnOpMayBeNamed) {
  const absl::StatusOr<VariantPtr> child = Child("", R"toml(schema = 1
op = "scale_blocks"
name = "w8"
version = "1.0.0"
extends = { op = "scale_blocks", variant = "baseline", version = "1" }
)toml");
  Write("z/blocks_baseline/variant.toml", std::string(kOtherHead) + std::string(kColumns));
  const Scan scan = ScanTwo({"z", "a"});
  EXPECT_TRUE(scan.rejections.empty());
  const Variant* w8 = FindVariant(scan, "w8");
  ASSERT_NE(w8, nullptr);
  EXPECT_EQ(w8->extends, "baseline");
}

TEST_F(ExtendsOtherOp, WhatOfTheParentDoesNotFitIsTheChildsFault) {
  const std::string parent = Path("a/baseline/variant.toml");
  struct Case {
    const char* from;  // in kColumns
    const char* what;
  };
  for (const auto& [from, what] :
       {Case{"constraints = [\"columns <= 1024\"]\n",
             ":11:16: constraint: expression 'width <= 1024', column 1: unknown name 'width'"},
        Case{"tiles = \"ceildiv(columns, 32 * WARPS)\"\n",
             ":25:9: let 'tiles': expression 'ceildiv(width, 32 * WARPS)', column 9: unknown name"},
        Case{"smem = \"4 * columns\"\n",
             ":38:8: kernel 'scale' smem: expression '4 * width', column 5: unknown name 'width'"},
        Case{"args = [\"x\", \"factor\", \"y\", \"workspace.partial\", \"i32(columns)\"]\n",
             ":39:50: kernel 'scale' args: expression 'width', column 1: unknown name 'width'"}}) {
    ExpectRefused(
        Child(Replaced(kColumns, from, "")), 6,
        "extends 'scale_rows/baseline', and what that states does not fit here: " + parent + what,
        "state it in this manifest as 'scale_blocks' needs it; known: ");
  }
}

TEST_F(ExtendsOtherOp, TensorThatTheOpLacksIsTheChildsFault) {
  other_.outputs[1].name = "totals";
  ExpectRefused(Child(), 6, "argument 'sums' names no tensor of 'scale_blocks'", "totals");
}

TEST_F(ExtendsOtherOp, OutputThatTheParentHasNotMustBeWritten) {
  other_.outputs.push_back({.name = "count", .axes = {0}});
  const absl::StatusOr<VariantPtr> child = Child();
  EXPECT_THAT(std::string(What(child.status())),
              HasSubstr("no kernel takes the op's output 'count'"));
}

TEST_F(ExtendsOtherOp, TunableWithTheNameOfAnAxisIsTheChildsFault) {
  other_.axes.push_back({.name = "CTAS"});
  ExpectRefused(Child(), 6, "tunable 'CTAS' has an axis's name", "state it in this manifest");
}

TEST_F(ExtendsOtherOp, MissingParentIsSaid) {
  ExpectRefused(
      Child(kColumns, Replaced(kOtherHead, "variant = \"baseline\"", "variant = \"basline\"")), 6,
      "extends: unknown variant 'basline' of 'scale_rows'",
      "did you mean 'baseline'? known: baseline; what lies elsewhere is named with");
  // The op is there, its variants lie in a root that nobody named.
  ExpectRefused(Child(kColumns, kOtherHead, {"z"}), 6,
                "extends: unknown variant 'baseline' of 'scale_rows'",
                "none is known here; what lies elsewhere is named with --plugins");
  ExpectRefused(Child(kColumns, Replaced(kOtherHead, "scale_rows", "scale_row")), 6,
                "extends: unknown op 'scale_row'", "did you mean 'scale_rows'?");
  ExpectRefused(Child(kColumns, Replaced(kOtherHead, "scale_rows", "scale-rows")), 6,
                "op name 'scale-rows' is not legal", "[A-Za-z_]");
}

TEST_F(ExtendsOtherOp, OtherMajorVersionIsRefused) {
  ExpectRefused(Child(kColumns, Replaced(kOtherHead, "version = \"1\"", "version = \"2\"")), 6,
                "extends 'scale_rows/baseline' version 2, but version 1.2.3 is there (" +
                    Path("a/baseline/variant.toml"),
                "check what changed");
}

TEST_F(ExtendsOtherOp, RejectedParentRejectsTheChildAndSaysWhy) {
  Write("a/baseline/variant.toml", Replaced(kManifest, "\"y\"", "\"yy\""));
  ExpectRefused(Child(), 6, "extends 'scale_rows/baseline', which is rejected", "did you mean 'y'");
}

TEST_F(ExtendsOtherOp, CyclesThroughTwoOpsAreRefused) {
  const std::string there = R"toml(schema = 1
op = "scale_rows"
name = "rows"
version = "1.0.0"
extends = { op = "scale_blocks", variant = "blocks", version = "1" }
)toml";
  const std::string back = R"toml(schema = 1
op = "scale_blocks"
name = "blocks"
version = "1.0.0"
extends = { op = "scale_rows", variant = "rows", version = "1" }
)toml";
  Write("a/rows/variant.toml", there);
  ExpectRefused(Child("", back), 5,
                "a cycle: 'scale_rows/rows' extends, in the end, 'scale_blocks/blocks'",
                "stands on its own");
  EXPECT_EQ(ScanTwo({"z", "a"}).variants.size(), 1u);
  EXPECT_EQ(ScanTwo({"a", "z"}).variants.size(), 1u);
  // One name in two ops is no cycle.
  const absl::StatusOr<VariantPtr> child = Child();
  EXPECT_TRUE(child.ok()) << child.status();
}

}  // namespace
}  // namespace kvr
