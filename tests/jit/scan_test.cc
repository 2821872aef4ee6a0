// SPDX-License-Identifier: Apache-2.0
#include "jit/scan.h"

#include <gtest/gtest.h>

namespace kvr {
namespace {

TEST(BlankNonCode, RemovesCommentsAndLiteralsAndKeepsEveryOffset) {
  std::string text = "a /* b\nc */ d \"e//f\" 'g' 1'000 // h \\\n i\nR\"x(j)\")x\" k";
  std::string code = BlankNonCode(text);
  ASSERT_EQ(code.size(), text.size());
  for (char gone : {'b', 'c', 'e', 'f', 'g', 'h', 'i', 'j'})
    EXPECT_EQ(code.find(gone), std::string::npos) << gone;
  for (char kept : {'a', 'd', 'k'}) EXPECT_EQ(code.find(kept), text.find(kept)) << kept;
  EXPECT_NE(code.find("1'000"), std::string::npos);
  EXPECT_EQ(std::count(code.begin(), code.end(), '\n'), std::count(text.begin(), text.end(), '\n'));
}

TEST(BlankNonCode, SurvivesUnterminatedText) {
  for (const char* text : {"\"abc", "'", "/*", "//", "R\"(", "R\"", "\\", "\"\\", "/"})
    EXPECT_EQ(BlankNonCode(text).size(), std::string(text).size()) << text;
}

TEST(UnqualifiedName, DropsNamespacesAndArguments) {
  EXPECT_EQ(UnqualifiedName("split"), "split");
  EXPECT_EQ(UnqualifiedName("ns::inner::split<A, other::B>"), "split");
  EXPECT_EQ(UnqualifiedName(" split <1> "), "split");
  EXPECT_EQ(UnqualifiedName(""), "");
}

TEST(FindKernels, PlacesNameAndParameters) {
  std::string text =
      "// scale(no)\n"
      "__global__ void scale(int);\n"
      "template <int A>\n"
      "__global__ void __launch_bounds__(32 * A) scale(const Pair<int, float>* x,\n"
      "    float  alpha /* why, */) {}\n";
  std::vector<KernelDefinition> found = FindKernels(text, "scale");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_FALSE(found[0].is_definition);
  EXPECT_TRUE(found[1].is_definition);
  EXPECT_EQ(found[1].name.line, 4);
  EXPECT_EQ(found[1].name.column, 43);
  ASSERT_EQ(found[1].parameters.size(), 2u);
  EXPECT_EQ(found[1].parameters[0].text, "const Pair<int, float>* x");
  EXPECT_EQ(found[1].parameters[1].text, "float alpha");
  EXPECT_EQ(found[1].parameters[1].at.line, 5);
  EXPECT_EQ(found[1].parameters[1].at.column, 5);
}

TEST(FindKernels, IgnoresCallsLongerNamesAndDeviceFunctions) {
  EXPECT_TRUE(
      FindKernels("__device__ void f(int x) {}\n__global__ void fg(int) { f(1); }", "f").empty());
  EXPECT_TRUE(FindKernels("", "f").empty());
  EXPECT_TRUE(FindKernels("__global__ void f(int", "f").empty());
}

TEST(FindKernels, TellsTemplates) {
  const auto is_template = [](std::string_view text) {
    const auto found = FindKernels(text, "k");
    return found.size() == 1 && found[0].is_template;
  };
  EXPECT_TRUE(is_template("template <int N = (1 > 0)>\n__global__ void k(int* p) {}"));
  EXPECT_TRUE(is_template("#include <x>\nnamespace n { template<class T>__global__ void k(T);"));
  EXPECT_FALSE(is_template("__global__ void k(int* p) {}"));
  EXPECT_FALSE(is_template("template <int N> void f() {}\n__global__ void k(int* p) {}"));
  EXPECT_FALSE(is_template("int is_template;\n// template <>\n__global__ void k(int* p) {}"));
  EXPECT_FALSE(is_template("#define T(x) \\\n  template <class x>\n__global__ void k(int*) {}"));
  EXPECT_FALSE(is_template("# define T template <int N>\n__global__ void k(int* p) {}"));
}

}  // namespace
}  // namespace kvr
