// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/arrows/include_arrows.h"

namespace kvr {
namespace {

namespace fs = std::filesystem;

// A source tree in a temporary directory.
class Tree {
 public:
  Tree() {
    std::string pattern = (fs::temp_directory_path() / "kvr-arrows-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~Tree() { fs::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  void Add(const std::string& path, const std::vector<std::string>& includes) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream file(root_ / path);
    file << "// SPDX-License-Identifier: Apache-2.0\n";
    for (const std::string& include : includes) file << "#include " << include << "\n";
  }

  std::vector<std::string> Violations() const {
    std::vector<std::string> texts;
    for (const Violation& violation : CheckArrows(root_).violations) {
      texts.push_back(violation.Text());
    }
    return texts;
  }

 private:
  fs::path root_;
};

TEST(Arrows, ThisTreeObeysThem) {
  const ArrowReport report = CheckArrows(KVR_SOURCE_DIR);
  EXPECT_GT(report.files, 20);
  for (const Violation& violation : report.violations) ADD_FAILURE() << violation.Text();
}

TEST(Arrows, DownwardIncludesAreAllowed) {
  Tree tree;
  tree.Add("sdk/kvr.h", {"<cstdint>"});
  tree.Add("core/plan.h", {"\"sdk/kvr.h\"", "\"core/expr.h\"", "\"absl/status/status.h\""});
  tree.Add("jit/jit.cc", {"\"jit/jit.h\"", "\"core/plan.h\"", "\"nvrtc/nvrtc.h\""});
  tree.Add("jit/nvrtc/nvrtc.h", {"\"../jit.h\""});
  tree.Add("registry/load.cc", {"\"jit/jit.h\"", "\"devices/cuda/cuda.h\"", "\"plugins/scan.h\""});
  tree.Add("api/runtime.cc", {"\"api/platform.h\"", "\"registry/catalog.h\""});
  tree.Add("api/tune.cc", {"\"tuner/tune.h\"", "\"api/runtime.h\""});
  tree.Add("cli/tune.cc", {"\"api/tune.h\"", "\"tuner/space.h\""});
  tree.Add("variants/op/op.cc",
           {"\"core/op.h\"", "\"variants/op/reference.h\"", "\"variants/common/random.h\""});
  tree.Add("bench/rooflines/read/op.cc", {"\"variants/common/random.h\"", "\"kvr_plugin.h\""});
  tree.Add("tests/variants/op_test.cc", {"\"variants/op/reference.h\"", "\"tests/samples.h\""});
  tree.Add("tests/jit/jit_test.cc", {"\"jit/jit.h\"", "\"api/runtime.h\""});
  tree.Add("docs/example.cc", {"\"cli/command.h\""});
  EXPECT_THAT(tree.Violations(), testing::IsEmpty());
}

TEST(Arrows, EveryPlantedViolationIsCaughtAtItsLine) {
  struct Case {
    std::string file, include, why;
  };
  const Case cases[] = {
      {"core/a.h", "\"jit/b.h\"", "jit is above core"},
      {"core/b.cc", "<registry/catalog.h>", "registry is above core"},
      {"sdk/c.h", "\"core/op.h\"", "core is above sdk"},
      {"jit/d.cc", "\"devices/cuda/cuda.h\"", "jit and devices do not know each other"},
      {"plugins/e.h", "\"jit/jit.h\"", "plugins and jit do not know each other"},
      {"devices/host/f.cc", "\"plugins/scan.h\"", "devices and plugins do not know"},
      {"registry/g.cc", "\"../tuner/tune.h\"", "tuner is above registry"},
      {"tuner/h.h", "\"api/runtime.h\"", "api is above tuner"},
      {"bench/i.cc", "\"cli/table.h\"", "bench and cli do not know each other"},
      {"cli/j.cc", "\"variants/op/reference.h\"", "no house includes a file of variants/"},
      {"registry/k.cc", "\"variants/op/op.h\"", "no house includes a file of variants/"},
      {"bench/rooflines/read/l.cc", "\"variants/op/op.h\"",
       "no house includes a file of variants/"},
      {"bench/l.cc", "\"variants/common/random.h\"", "no house includes a file of variants/"},
      {"tests/core/l.cc", "\"variants/op/op.h\"", "no house includes a file of variants/"},
      {"variants/one/m.cc", "\"variants/two/x.h\"", "no house includes a file of variants/"},
      {"variants/common/p.h", "\"variants/one/x.h\"", "no house includes a file of variants/"},
      {"variants/one/n.cc", "\"registry/catalog.h\"", "registry is above variants"},
      {"cli/o.cc", "\"tests/core/samples.h\"", "tests is above cli"},
      {"api/runtime.h", "\"tuner/tune.h\"", "serving links no tuner"},
  };
  for (const Case& c : cases) {
    Tree tree;
    tree.Add(c.file, {"<vector>", c.include});
    EXPECT_THAT(tree.Violations(),
                testing::ElementsAre(testing::AllOf(testing::StartsWith(c.file + ":3: includes \""),
                                                    testing::HasSubstr(c.why))))
        << c.file;
  }
}

TEST(Arrows, RuntimeMayNotReachTheTunerThroughOthersInApi) {
  Tree tree;
  tree.Add("api/runtime.cc", {"\"api/platform.h\""});
  tree.Add("api/platform.h", {"\"helper.h\""});
  tree.Add("api/helper.h", {"\"tuner/ledger.h\""});
  EXPECT_THAT(tree.Violations(), testing::ElementsAre(testing::StartsWith(
                                     "api/helper.h:2: includes \"tuner/ledger.h\": api/runtime")));
}

TEST(Arrows, OnlyIncludeLinesCount) {
  Tree tree;
  tree.Add("core/a.h", {});
  tree.Add("core/b.h", {"MACRO_HEADER", "\"unterminated"});
  EXPECT_THAT(tree.Violations(), testing::IsEmpty());
  tree.Add("core/c.h", {"\"core/a.h\"\n  #  include\t\"jit/x.h\"  // why"});
  EXPECT_THAT(tree.Violations(), testing::SizeIs(1));
}

}  // namespace
}  // namespace kvr
