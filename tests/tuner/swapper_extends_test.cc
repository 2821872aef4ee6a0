// SPDX-License-Identifier: Apache-2.0
//
// A variant is edited that another one, which serves, extends.
#include <fstream>

#include "core/status.h"
#include "tests/tuner/swapper_fixture.h"

namespace kvr::test {
namespace {

using ::testing::HasSubstr;
using State = SwapResult::State;

class SwapperExtendsTest : public SwapperTest {
 protected:
  // "child", which extends "mine", serves.
  void ServeChild(SwapperOptions options = {}) {
    Write({});
    std::filesystem::create_directory(Bundle("child"));
    std::ofstream(Bundle("child") / "variant.toml")
        << "schema = 1\nop = \"null\"\nname = \"child\"\nversion = \"1.0.0\"\n"
        << "description = \"of a test\"\nextends = { variant = \"mine\", version = \"1\" }\n";
    Open({.plugin_roots = {root_ / "bundles"}}, std::move(options));
    ASSERT_EQ(Ask({.op = kOp, .variant = "child"}).state, State::kPublished);
    before_ = runtime_->served()[0].fingerprint;
    booted_ = runtime_->generation()->digest();  // what a refusal leaves serving
  }
  void ExpectEditServes() {
    EXPECT_EQ(Serves(), "child{THREADS=256}");
    for (const ServedInfo& served : runtime_->served()) EXPECT_NE(served.fingerprint, before_);
    EXPECT_TRUE(Computes(1));
  }
  Fingerprint before_;
};

TEST_F(SwapperExtendsTest, ItServesTheEditToo) {
  ServeChild();
  Write({.body = "y[i] = 1.0f * x[i];"});
  const SwapResult result = Ask({.bundle = Bundle("mine")});
  ASSERT_EQ(result.state, State::kPublished) << result.status;
  ExpectEditServes();
  // Its name means that one from then on, and it does not count as stale.
  EXPECT_EQ(Ask({.op = kOp, .variant = "child"}).state, State::kUnchanged);
  EXPECT_EQ(Ask({.bundle = Bundle("child")}).state, State::kUnchanged);
}

TEST_F(SwapperExtendsTest, AnEditThatIsWrongForItIsRefused) {
  ServeChild();
  Write({.body = "y[i] = 2.0f * x[i];"});
  ExpectRefused(Ask({.bundle = Bundle("mine")}), "verify", "child");
  EXPECT_EQ(runtime_->served()[0].fingerprint, before_);
}

TEST_F(SwapperExtendsTest, AWatchedDirectoryBringsIt) {
  ServeChild({.debounce = absl::Milliseconds(100)});
  ASSERT_TRUE(swapper_->WatchBundles(root_ / "bundles").ok());
  Write({.body = "y[i] = 1.0f * x[i];"});
  const PublicationRecord edited = journal_->WaitFor(2);
  EXPECT_EQ(edited.outcome, "published") << edited.reason;
  ExpectEditServes();
}

}  // namespace
}  // namespace kvr::test
