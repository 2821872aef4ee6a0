// SPDX-License-Identifier: Apache-2.0
//
// Swaps that fail, each at its step: what served serves on, its numbers are right, and the journal
// says why.
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "core/status.h"
#include "registry/publication.h"
#include "registry/selection_file.h"
#include "tests/tuner/swapper_fixture.h"

namespace kvr::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using State = SwapResult::State;

class SwapperDrills : public SwapperTest {
 protected:
  // A process that serves the baseline and has heard of `text`.
  void OpenWith(const BundleText& text) {
    bundle_ = Write(text);
    Open({.plugin_roots = {root_ / "bundles"}});
  }
  SwapResult AskForMine(bool verify = true) {
    return Ask({.op = kOp, .variant = "mine", .verify = verify});
  }
  std::string bundle_;
};

TEST_F(SwapperDrills, CompileError) {
  OpenWith({.body = "y[i] = undeclared;"});
  const SwapResult result = AskForMine();
  ExpectRefused(result, "build", "kernel.cu");
  EXPECT_THAT(std::string(What(result.status)), HasSubstr("undeclared"));
}

TEST_F(SwapperDrills, WrongNumbers) {
  OpenWith({.body = "y[i] = x[i] * 1.5f;"});
  ExpectRefused(AskForMine(), "verify", "INCORRECT_NUMERICAL");
}

TEST_F(SwapperDrills, OutputsThatAreNotWritten) {
  OpenWith({.body = "if (i != 99) y[i] = x[i];"});
  ExpectRefused(AskForMine(), "verify", "never written");
}

TEST_F(SwapperDrills, AKernelThatTraps) {
  OpenWith({.body = "if (i == 7) __trap(); y[i] = x[i];"});
  ExpectRefused(AskForMine(), "verify", "trap");
}

TEST_F(SwapperDrills, AKernelThatKillsItsProcess) {
  OpenWith({.body = "if (i == 7) __builtin_trap(); y[i] = x[i];"});
  ExpectRefused(AskForMine(), "verify", "SIG");
}

TEST_F(SwapperDrills, AKernelThatWritesWhereItShouldNot) {
  OpenWith({.body = "y[i] = x[i]; if (i == n - 1) y[n + 5] = 1.0f;"});
  ExpectRefused(AskForMine(), "verify", "past the end of output y");
}

TEST_F(SwapperDrills, ALaunchOverTheLimits) {
  OpenWith({.block = "8 * THREADS"});
  ExpectRefused(AskForMine(), "build", "block.x = 2048");
}

TEST_F(SwapperDrills, AWorkspaceThatNobodyHas) {
  OpenWith({.body = "y[i] = x[i]; if (w == nullptr) y[i] = 0;",
            .args = "\"x\", \"y\", \"i32(n)\", \"workspace.big\"",
            .parameters = "const float* x, float* y, int n, float* w",
            .end = "\n[[workspace]]\nname = \"big\"\ndtype = \"float32\"\n"
                   "elements = \"1125899906842624\"\nzeroed = false\n"});
  // The worker has no such memory either.
  ExpectRefused(AskForMine(), "verify", "memory");
  ExpectRefused(AskForMine(/*verify=*/false), "publish", "no memory");
}

TEST_F(SwapperDrills, NamesThatNobodyKnows) {
  Open();
  ExpectRefused(Ask({.op = kOp, .variant = "basline"}), "build", "basline");
  ExpectRefused(Ask({.op = "nul", .variant = "baseline"}), "build", "nul");
  ExpectRefused(Ask({.op = kOp, .variant = "baseline{THREADS=100}"}), "build", "100");
  ExpectRefused(Ask({.op = kOp, .variant = "baseline", .keys = {{{"m", 1}}}}), "build", "m");
  ExpectRefused(Ask({.selection_file = root_ / "none.json"}), "build", "none.json");
  ExpectRefused(Ask({.bundle = root_ / "nowhere"}), "build", "nowhere");
  ExpectRefused(Ask({}), "build", "one of");
  ExpectRefused(Ask({.op = kOp}), "build", "one of");
  ExpectRefused(Ask({.op = kOp, .variant = "baseline", .rollback = "previous"}), "build", "one of");
}

TEST_F(SwapperDrills, AKeyThatAFrozenRegistryHasNotLoaded) {
  Open();
  runtime_->Freeze();
  const SwapRequest request = {.op = kOp, .variant = "baseline{THREADS=128}", .keys = {{{"n", 7}}}};
  ExpectRefused(Ask(request), "build", "not loaded");
  runtime_->Thaw();  // it may be loaded later
  EXPECT_EQ(Ask(request).state, State::kPublished);
}

TEST_F(SwapperDrills, AnOperationThatIsForcedByHand) {
  Open({.forced = {.op = kOp, .variant = "planned", .tunables = {}}});
  const SwapResult result = Ask({.op = kOp, .variant = "baseline{THREADS=128}"});
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_THAT(std::string(What(result.status)), HasSubstr("--variant forces null"));
  EXPECT_EQ(Serves(), "planned{THREADS=256,WAVES=1}");
}

TEST_F(SwapperDrills, ABundleIsRefusedAndTheOneBeforeServesOn) {
  OpenWith({});
  ASSERT_EQ(AskForMine().state, State::kPublished);
  booted_ = runtime_->generation()->digest();
  Write({.body = "y[i] = -x[i];"});
  ExpectRefused(Ask({.bundle = bundle_}), "verify", "INCORRECT_NUMERICAL");
  std::ofstream(Bundle("mine") / "variant.toml") << "schema = 1\nop = \"nul";
  ExpectRefused(Ask({.bundle = bundle_}), "build", "variant.toml");
  Write({});
  std::ofstream(Bundle("mine") / "variant.toml", std::ios::app) << "\n[unknown]\nx = 1\n";
  ExpectRefused(Ask({.bundle = bundle_}), "build", "unknown");
  // What was refused is not what the name means.
  EXPECT_EQ(AskForMine().state, State::kUnchanged);
}

TEST_F(SwapperDrills, ABundleOfAnOperationThatNobodyKnows) {
  Open();
  const std::string bundle = Write({});
  std::string text;
  {
    std::ifstream in(Bundle("mine") / "variant.toml");
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  text.replace(text.find("op = \"null\""), 11, "op = \"mull\"");
  std::ofstream(Bundle("mine") / "variant.toml") << text;
  ExpectRefused(Ask({.bundle = bundle}), "build", "mull");
}

TEST_F(SwapperDrills, ABundleThatOthersMayWrite) {
  Open();
  const std::string bundle = Write({});
  std::filesystem::permissions(bundle, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  ExpectRefused(Ask({.bundle = bundle}), "build", "writable by others");
}

// No file may grow: cache, the binaries for the worker and the journal alike.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_F(SwapperDrills, AFullDisk) {
  OpenWith({});
  auto file = OpenPublicationFile(root_ / "publications.jsonl");
  ASSERT_TRUE(file.ok()) << file.status();
  const std::shared_ptr<PublicationSink> on_disk = *std::move(file);
  SwapResult refused, published;
  {
    const FullDisk full;
    refused = AskForMine();
    runtime_->SetJournal(on_disk);
    published = AskForMine(/*verify=*/false);
  }
  EXPECT_EQ(refused.state, State::kFailed);
  EXPECT_EQ(refused.step, "verify") << refused.status;
  EXPECT_THAT(journal_->records(), SizeIs(1));
  // Without the worker nothing needs a disk.
  EXPECT_EQ(published.state, State::kPublished) << published.status;
  EXPECT_EQ(on_disk->lost(), 1u);
  EXPECT_TRUE(Computes(1));
}

TEST_F(SwapperDrills, AProgramThatEndsInTheMiddleOfAVerification) {
  OpenWith({.body = "while (*(const volatile float*)x != 12345.0f) {}\n    y[i] = x[i];"});
  const uint64_t running = swapper_->Request({.op = kOp, .variant = "mine"});
  swapper_->Request({.op = kOp, .variant = "baseline{THREADS=128}"});  // waits behind it
  while (swapper_->recent().back().step != "verify") absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(swapper_->recent().back().id, running);
  swapper_.reset();
  const std::vector<PublicationRecord> records = journal_->records();
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_THAT(records[0].reason, HasSubstr("verify: the program ends"));
  EXPECT_THAT(records[1].reason, HasSubstr("the program ends"));
  EXPECT_EQ(runtime_->generation()->digest(), booted_);
  EXPECT_TRUE(Computes(1));
}

}  // namespace
}  // namespace kvr::test
