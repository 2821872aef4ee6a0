// SPDX-License-Identifier: Apache-2.0
#include "jit/directives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/status.h"
#include "jit/template.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const Config kConfig = {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}};

// "keyword name", "keyword ?" where the name is no literal.
std::vector<std::string> Found(std::string_view text) {
  std::vector<std::string> found;
  for (const FileReference& reference : FindFileReferences(text)) {
    found.push_back(std::string(reference.keyword) + " " +
                    (reference.name.empty() ? "?" : reference.name));
    if (!reference.name.empty()) {
      EXPECT_EQ(text.substr(reference.begin, reference.name.size()), reference.name);
    }
  }
  return found;
}

TEST(FindFileReferences, SeesADirectiveBehindAComment) {
  EXPECT_THAT(Found("/* x */ #include \"b.cuh\"\n"), ElementsAre("#include b.cuh"));
  EXPECT_THAT(Found("/* x\n y */ /**/ # /* z */ include /* w */ <c.h> // v\n"),
              ElementsAre("#include c.h"));
  EXPECT_THAT(Found("int x; /* y */ #include \"b.cuh\"\n"), IsEmpty());
}

TEST(FindFileReferences, SeesNoneInCommentsAndLiterals) {
  EXPECT_THAT(Found("/*\n#include \"a.h\"\n*/\n// x \\\n#include \"b.h\"\n"), IsEmpty());
  EXPECT_THAT(Found("const char* s = R\"x(\n#include \"a.h\"\n)\"\n#include \"b.h\"\n)x\";\n"),
              IsEmpty());
  EXPECT_THAT(Found("const char* s = \"\\\n#include <a.h>\";\n"), IsEmpty());
}

TEST(FindFileReferences, IsNotMisledByWhatOnlyLooksLikeACommentOrLiteral) {
  for (std::string_view before :
       {"const char* s = \"/*\";", "char c = '\"'; char d = '\\'';", "int n = 1'000; // it's",
        "#error it's /* no comment", "auto s = xR\"(\";", "auto s = 1R\"(\";", "f(0'/*');",
        "auto s = u8R\"(/*)\";", "auto s = \"\\\\\"; /**/", "a / b; c /= d;", "// R\"(", "/*/ x */",
        "#include <a//b.h>", "\"unterminated /*", "R\"bad delimiter(\"", "// ?\?/", "// x \\ "}) {
    EXPECT_THAT(Found(std::string(before) + "\n#include \"k.h\"\n"),
                testing::Contains("#include k.h"))
        << before;
  }
}

TEST(FindFileReferences, SeesEverySpelling) {
  EXPECT_THAT(
      Found("%:include <a.h>\n#inc\\\nlude \"b.h\"\n\\\r\n#include \\\n <c.h>\n\v\f #\t"
            "include<d.h>\r\n\n/\\\n* x *\\\n/ #include <e.h>"),
      ElementsAre("#include a.h", "#include b.h", "#include c.h", "#include d.h", "#include e.h"));
  EXPECT_THAT(Found("\xef\xbb\xbf#include <a.h>"), ElementsAre("#include a.h"));
  EXPECT_THAT(Found("#include_next <a.h>\n#import \"b.h\"\n#embed <c>\nimport <d>;\n"
                    "export import \"e\";\nint import = 1; import<f>();\n"),
              ElementsAre("#include_next a.h", "#import b.h", "#embed c", "import d", "import e"));
  EXPECT_THAT(Found("#include H\n#include\n#include <>\n#include \"a\n#include \"b\\\n.h\"\n"),
              ElementsAre("#include ?", "#include ?", "#include ?", "#include ?", "#include ?"));
}

TEST(FindFileReferences, SeesQueriesWhereverTheyStand) {
  EXPECT_THAT(
      Found("#if X && __has_include(<a.h>) || __has_include ( /**/ \"b.h\" )\n"
            "#elif __has_include(H) || __has_embed(<c>)\n"),
      ElementsAre("__has_include a.h", "__has_include b.h", "__has_include ?", "__has_embed c"));
  EXPECT_THAT(Found("#define HI __has_include\n"), ElementsAre("__has_include ?"));
  EXPECT_THAT(Found("#ifdef __has_include\n#if defined(__has_include) && defined __has_embed\n"),
              IsEmpty());
}

TEST(FindFileReferences, SeesAssemblyThatNamesAFile) {
  EXPECT_THAT(Found("asm(\".incbin \\\"/x\\\"\"); asm(R\"(.INCLUDE \"/x\")\");"),
              ElementsAre(".incbin ?", ".include ?"));
  EXPECT_THAT(Found("f(\"x.include.md\", \".includes\", \"\");"), IsEmpty());
}

// What the whole of RenderUnit says about a bundle whose source begins like this.
absl::Status Render(const std::string& head) {
  Variant variant = ScaleVariant();
  variant.sources[0].content = head + variant.sources[0].content;
  return RenderUnit(ScaleOp(), variant, kConfig).status();
}

TEST(CheckFileReferences, RefusesAnAbsoluteIncludeAtItsPlace) {
  absl::Status status = Render("// x\n  #include \"/abs/x.h\"\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(What(status),
            "scale.cu:2:3: error: #include of an absolute path: what lies there is not part of the "
            "binary's key\n"
            "  #include \"/abs/x.h\"\n"
            "  ^");
  EXPECT_THAT(std::string(Fix(status)),
              HasSubstr("put the file into the bundle and list it under headers"));
}

TEST(CheckFileReferences, RefusesEveryWayToAnUnhashedFile) {
  for (const char* head :
       {"#include </abs/x.h>\n", "/* x */ #include \"/abs/x.h\"\n", "%:include \"/abs/x.h\"\n",
        "#inc\\\nlude \"/abs/x.h\"\n", "#define H \"/abs/x.h\"\n#include H\n",
        "#include __FILE__\n", "#include \"\\\n/abs/x.h\"\n", "#include_next <x.h>\n",
        "#import \"x.h\"\n", "#embed \"x\"\n", "import \"x.h\";\n",
        "#if __has_include(\"/abs/x.h\")\n#endif\n", "#if __has_include(H)\n#endif\n",
        "#define HI __has_include\n", "#if __has_include_next(<x.h>)\n#endif\n",
        "#if __has_embed(<x>)\n#endif\n", "asm(\".incbin \\\"/abs/x\\\"\");\n",
        "asm(\".include \\\"/abs/x.s\\\"\");\n", "#if 0\n#include \"/abs/x.h\"\n#endif\n"}) {
    absl::Status status = Render(head);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << head;
    EXPECT_THAT(std::string(What(status)), StartsWith("scale.cu:")) << head;
    EXPECT_THAT(std::string(Fix(status)), testing::Not(IsEmpty())) << head;
  }
}

TEST(CheckFileReferences, LooksIntoHeadersToo) {
  Variant variant = ScaleVariant();
  variant.headers[0].path = "/bundle/tile.cuh";
  variant.headers[0].content += "#include \"/abs/x.h\"\n";
  absl::Status status = RenderUnit(ScaleOp(), variant, kConfig).status();
  EXPECT_THAT(std::string(What(status)),
              StartsWith("/bundle/tile.cuh:3:1: error: #include of an "));
}

TEST(CheckFileReferences, AcceptsWhatStaysInside) {
  for (const char* head :
       {"// #include \"/abs/x.h\"\n", "/*\n#include H\n*/\n", "#include <missing.h>\n",
        "#if __has_include(<x.h>)\n#endif\n", "#if defined(__has_include)\n#endif\n",
        "#line 7 \"/abs/x.cu\"\n", "inline const char* path = \"/abs/x.h\";\n"}) {
    EXPECT_TRUE(Render(head).ok()) << head << Render(head);
  }
}

}  // namespace
}  // namespace kvr
