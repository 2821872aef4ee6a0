// SPDX-License-Identifier: Apache-2.0
#include "jit/includes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

using testing::ElementsAre;

std::vector<std::string> Names(const Unit& unit) {
  std::vector<std::string> names;
  for (const UnitHeader& header : unit.headers) names.push_back(header.name);
  return names;
}

UnitHeader File(const std::string& name, const std::string& content) {
  return {name, std::make_shared<const std::string>(content), FingerprintOf(content), ""};
}

TEST(ScanIncludes, FindsEveryFormAndNothingElse) {
  std::vector<IncludeDirective> found = ScanIncludes(
      "#include <a.h>\n  #  include \"b.h\" // x\n#if 0\n#include<c.h>\n#endif\n"
      "// include <d.h>\n#include MACRO\n#include <>\nint include;\n#include \"e.h\n"
      "#include_next <f.h>\n x #include <g.h>\n#include <h.h>");
  std::vector<std::string> names;
  for (const IncludeDirective& directive : found) names.push_back(directive.name);
  EXPECT_THAT(names, ElementsAre("a.h", "b.h", "c.h", "h.h"));
  EXPECT_TRUE(found[1].quoted);
}

TEST(HeaderIndex, FollowsEveryBranchThroughBundleAndRoots) {
  TempDir dir;
  WriteFile(dir / "lib/top.h", "#if NEVER\n#include \"deep/a.h\"\n#endif\n#include <gone.h>\n");
  WriteFile(dir / "lib/deep/a.h", "#include \"b.h\"\n#include \"../c.h\"\n");
  WriteFile(dir / "lib/deep/b.h", "#include <top.h>\n");
  WriteFile(dir / "lib/c.h", "int c;\n");
  WriteFile(dir / "lib/unused.h", "");
  HeaderIndex index({{"", {{"cstdint", "typedef int x;\n"}}}, {dir / "lib", {}}});
  Unit unit;
  unit.text = "#include <cstdint>\n#include \"k.cu\"\n";
  unit.headers = {File("k.cu", "#include <top.h>\n"), File("idle.cuh", "")};
  index.Resolve(&unit);
  EXPECT_THAT(Names(unit), ElementsAre("c.h", "cstdint", "deep/a.h", "deep/b.h", "k.cu", "top.h"));
  EXPECT_THAT(unit.missing, ElementsAre("gone.h"));
  // In-memory sets know one name per file: relative spellings are rewritten to it.
  EXPECT_EQ(*unit.Header("deep/a.h")->content, "#include \"deep/b.h\"\n#include \"c.h\"\n");
}

TEST(HeaderIndex, FollowsAnIncludeBehindABlockComment) {
  HeaderIndex index({});
  Unit unit;
  unit.text = "#include \"k.cu\"\n";
  unit.headers = {File("k.cu", "/* needs */ #include \"b.cuh\"\n/*\n#include \"idle.cuh\"\n*/\n"),
                  File("b.cuh", ""), File("idle.cuh", "")};
  index.Resolve(&unit);
  EXPECT_THAT(Names(unit), ElementsAre("b.cuh", "k.cu"));
}

TEST(HeaderIndex, LeavesComputedIncludesOfItsRootsAlone) {
  const std::string computed = "#define H <b.h>\n#include H\n#if __has_include(H)\n#endif\n";
  HeaderIndex index({{"", {{"a.h", computed}, {"b.h", ""}}}});
  Unit unit;
  unit.text = "#include <a.h>\n";
  index.Resolve(&unit);
  EXPECT_THAT(Names(unit), ElementsAre("a.h"));
  EXPECT_EQ(*unit.Header("a.h")->content, computed);
}

TEST(HeaderIndex, PrefersTheIncludersDirectoryInTheBundleToo) {
  HeaderIndex index({});
  Unit unit;
  unit.text = "#include \"sub/k.cu\"\n";
  unit.headers = {File("sub/k.cu", "#include \"t.cuh\"\n"), File("sub/t.cuh", ""),
                  File("t.cuh", "")};
  index.Resolve(&unit);
  EXPECT_THAT(Names(unit), ElementsAre("sub/k.cu", "sub/t.cuh"));
  EXPECT_EQ(*unit.Header("sub/k.cu")->content, "#include \"sub/t.cuh\"\n");
}

TEST(HeaderIndex, NeverLeavesItsRoots) {
  TempDir dir;
  WriteFile(dir / "secret.h", "int s;\n");
  WriteFile(dir / "lib/a.h", "#include \"../secret.h\"\n");
  HeaderIndex index({{dir / "lib", {}}});
  Unit unit;
  unit.text = "#include <a.h>\n#include <../secret.h>\n#include </etc/passwd>\n";
  index.Resolve(&unit);
  EXPECT_THAT(Names(unit), ElementsAre("a.h"));
  EXPECT_THAT(unit.missing, ElementsAre("../secret.h", "/etc/passwd"));
}

TEST(HeaderIndex, HoldsItsSnapshotUntilRevalidated) {
  TempDir dir;
  WriteFile(dir / "a.h", "#include <b.h>\n");
  HeaderIndex index({{dir.path(), {}}});
  auto fingerprint = [&] {
    Unit unit;
    unit.text = "#include <a.h>\n";
    index.Resolve(&unit);
    return unit.fingerprint;
  };
  Fingerprint before = fingerprint();
  WriteFile(dir / "a.h", "#include <b.h>\nint changed;\n");
  EXPECT_EQ(fingerprint(), before);
  EXPECT_EQ(index.files_read(), 1);
  EXPECT_TRUE(index.Revalidate());
  Fingerprint after = fingerprint();
  EXPECT_NE(after, before);
  EXPECT_FALSE(index.Revalidate());
  WriteFile(dir / "b.h", "");  // a header that was missing appears
  EXPECT_TRUE(index.Revalidate());
  EXPECT_NE(fingerprint(), after);
}

TEST(HeaderIndex, KeysContentNotPlace) {
  TempDir a, b;
  for (const TempDir* dir : {&a, &b}) WriteFile(*dir / "x/h.h", "int h;\n");
  auto fingerprint = [](const std::string& root) {
    HeaderIndex index({{root, {}}});
    Unit unit;
    unit.text = "#include <h.h>\n";
    index.Resolve(&unit);
    return unit.fingerprint;
  };
  EXPECT_EQ(fingerprint(a / "x"), fingerprint(b / "x"));
}

}  // namespace
}  // namespace kvr
