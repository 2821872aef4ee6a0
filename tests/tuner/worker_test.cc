// SPDX-License-Identifier: Apache-2.0
//
// The real kvr-worker on the null device: start, protocol, limits, cancelling, and who survives
// whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "api/platform.h"
#include "core/status.h"
#include "tests/tuner/fixture.h"
#include "tuner/worker/client.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

constexpr char kOp[] = "mla_sparse_decode";
const Axes kSmall = {
    {"num_tokens", 1}, {"num_qo_heads", 1}, {"page_size", 8}, {"num_pages", 1}, {"topk", 4}};

WorkerOptions NullWorker() {
  WorkerOptions options;
  options.executable = KVR_BIN_DIR "/kvr-worker";
  options.device = "null";
  return options;
}

class WorkerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto platform = Platform::Open({.compilers = false});
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = platform->release();
  }
  static void TearDownTestSuite() { delete platform_; }

  void SetUp() override {
    auto op = platform_->catalog().FindOp(kOp);
    ASSERT_TRUE(op.ok()) << op.status();
    auto variant = platform_->catalog().Baseline(kOp);
    ASSERT_TRUE(variant.ok()) << variant.status();
    auto axes = ResolveAxes((*op)->spec(), kSmall);
    ASSERT_TRUE(axes.ok()) << axes.status();
    shape_ = {kOp, NamedAxes((*op)->spec(), *axes), {1, 2}};
    auto files = BinaryFiles::Create();
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);

    Binary binary;  // the null device loads anything made for it
    binary.key = FingerprintOf("null binary");
    binary.target = "null";
    binary.bytes = "nothing";
    binary.content = FingerprintOf(binary.bytes);
    for (const KernelSpec& kernel : (*variant)->plan.kernels) {
      BinaryKernel compiled;
      compiled.entry = compiled.symbol = kernel.entry;
      binary.kernels.push_back(compiled);
    }
    auto path = files_->Add(binary);
    ASSERT_TRUE(path.ok()) << path.status();
    item_.variant = (*variant)->name;
    item_.fingerprint = (*variant)->fingerprint;
    item_.config = DefaultConfig((*variant)->tunables);
    item_.binary_path = *path;
  }

  static Platform* platform_;
  std::unique_ptr<BinaryFiles> files_;
  WorkShape shape_;
  WorkItem item_;
};
Platform* WorkerTest::platform_ = nullptr;

bool IsGone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const size_t end = line.rfind(')');
  return end == std::string::npos || line.substr(end, 4).find('Z') != std::string::npos;
}

bool GoesAway(pid_t pid) {
  for (int i = 0; i < 100'000; ++i) {
    if (IsGone(pid)) return true;
    usleep(10'000);
  }
  return false;
}

// A worker in front of the real one that dies on cue: the text `cue` in a stage while a sample of
// more than one subject runs.
WorkerOptions WorkerThatDiesAmongOthers(const std::string& directory, const std::string& cue) {
  const std::string path = directory + "/dying-worker";
  std::ofstream(path) << R"(#!/bin/bash
# The real worker's parent is this script.
args=(); while (($#)); do [[ $1 == --parent ]] || args+=("$1" "$2"); shift 2; done
coproc REAL { exec ")" KVR_BIN_DIR R"(/kvr-worker" "${args[@]}"; }
read -r -u "${REAL[0]}" line; echo "$line"
while read -r request; do
  echo "$request" >&"${REAL[1]}"
  while read -r -u "${REAL[0]}" reply; do
    echo "$reply"
    [[ $request == *'"job":"sample"'*'"subjects":['*,*']'* && $reply == *')"
                      << cue << R"('* ]] &&
      kill -SEGV $$
    [[ $reply == *'"findings"'* ]] && break
  done
done
)";
  chmod(path.c_str(), 0700);
  WorkerOptions options = NullWorker();
  options.executable = path;
  return options;
}

TEST_F(WorkerTest, WhoDiesAmongOthersThoughNotAloneIsGivenASecondChance) {
  std::string directory = ::testing::TempDir() + "/kvr-worker-test-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const auto worker =
      WorkerClient::Start(WorkerThatDiesAmongOthers(directory, R"("stage":"launch","subject":1)"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->device().target, "null");
  auto sampler = WorkerSampler::Open(**worker, shape_, {item_, item_, item_}, {});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const auto table = (*sampler)->Sample({0, 1, 2}, 1);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*sampler)->finding(0).status, TrialStatus::kPassed);
  EXPECT_EQ((*sampler)->finding(1).status, TrialStatus::kRuntimeError);
  EXPECT_THAT((*sampler)->finding(1).reason, HasSubstr("alone it runs"));
  EXPECT_EQ((*sampler)->finding(2).status, TrialStatus::kPassed);
  EXPECT_TRUE(std::isfinite((*table)[0][0]));
  EXPECT_TRUE(std::isnan((*table)[0][1]));
  EXPECT_EQ((*worker)->respawns(), 2);  // one to run it alone, one after it died again
  std::filesystem::remove_all(directory);
}

TEST_F(WorkerTest, ADeathThatIsNobodysIsTriedOnceMore) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto sampler = WorkerSampler::Open(**worker, shape_, {item_, item_}, {});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  for (int respawns = 1; respawns <= 2; ++respawns) {
    const pid_t pid = (*worker)->pid();
    kill(pid, SIGKILL);
    ASSERT_TRUE(GoesAway(pid));
    const auto table = (*sampler)->Sample({0, 1}, 1);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(std::isfinite((*table)[0][1]));
    EXPECT_EQ((*worker)->respawns(), respawns);
  }
}

TEST_F(WorkerTest, SaysWhichDeviceItOpened) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->device().target, "null");
  EXPECT_EQ((*worker)->respawns(), 0);
}

TEST_F(WorkerTest, OutputsThatNobodyWroteAreIncorrect) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto finding = (*worker)->Verify(shape_, item_);
  ASSERT_TRUE(finding.ok()) << finding.status();
  EXPECT_EQ(finding->status, TrialStatus::kIncorrectNumerical);
  EXPECT_THAT(finding->reason, HasSubstr("never written"));
}

TEST_F(WorkerTest, ASessionGivesASampleForEverySubjectAndRound) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto sampler = WorkerSampler::Open(**worker, shape_, {item_, item_, item_}, {});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  EXPECT_EQ((*sampler)->info().input_sets, 2);
  EXPECT_GE((*sampler)->info().buffer_sets, 2);
  const auto table = (*sampler)->Sample({0, 2}, 5);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->size(), 5u);
  for (const std::vector<double>& round : *table) {
    ASSERT_EQ(round.size(), 2u);
    for (double us : round) EXPECT_TRUE(std::isfinite(us));
  }
  EXPECT_EQ((*sampler)->info().launches_least, 1);  // known once they are timed
}

TEST_F(WorkerTest, ASessionSaysWhatItMeasuresAndHow) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto sentinel = files_->Add(*test::NullSentinel());
  ASSERT_TRUE(sentinel.ok()) << sentinel.status();
  for (const char* text : {"graph cold", "eager hot"}) {
    SessionOptions options;
    options.mode = *ParseMode(text);
    options.sentinel_path = *sentinel;
    const auto sampler = WorkerSampler::Open(**worker, shape_, {item_, item_}, options);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    ASSERT_TRUE((*sampler)->Sample({0, 1}, 10).ok());
    ASSERT_TRUE((*sampler)->Sample({0, 1}, 10).ok());
    const SessionInfo& info = (*sampler)->info();
    EXPECT_EQ(ModeText(info.mode), text);
    EXPECT_GT(info.plan_us, 0);
    EXPECT_EQ(info.sentinel_us.size(), 4u);  // of both calls
    EXPECT_EQ(info.throttle_bits, 0u);
    EXPECT_EQ((*sampler)->trouble(), "");  // the null device's clock is not judged
  }
}

TEST_F(WorkerTest, ARestartIsAFreshProcessInWhichSessionsGoOn) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto sampler = WorkerSampler::Open(**worker, shape_, {item_, item_}, {});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const pid_t before = (*worker)->pid();
  ASSERT_TRUE((*worker)->Restart().ok());
  EXPECT_NE((*worker)->pid(), before);
  EXPECT_TRUE(GoesAway(before));
  EXPECT_EQ((*worker)->respawns(), 0);  // nothing brought it down
  auto table = (*sampler)->Sample({0, 1}, 2);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(std::isfinite((*table)[1][1]));
  ASSERT_TRUE((*worker)->Restart().ok());
  const auto next = WorkerSampler::Open(**worker, shape_, {item_}, {});
  ASSERT_TRUE(next.ok()) << next.status();
  table = (*next)->Sample({0}, 1);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(std::isfinite((*table)[0][0]));
  EXPECT_EQ((*next)->finding(0).status, TrialStatus::kPassed);
}

TEST_F(WorkerTest, NumbersThatAreWrongAfterTimingCondemnTheSubject) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto sampler = WorkerSampler::Open(**worker, shape_, {item_}, {});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  ASSERT_TRUE((*sampler)->Check({0}).ok());
  EXPECT_EQ((*sampler)->finding(0).status, TrialStatus::kIncorrectNumerical);
  EXPECT_THAT((*sampler)->finding(0).reason, HasSubstr("after timing"));
  const auto table = (*sampler)->Sample({0}, 2);  // it takes no further part
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(std::isnan((*table)[0][0]));
}

TEST_F(WorkerTest, AWorkerThatWasKilledIsReplaced) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  kill((*worker)->pid(), SIGKILL);
  const auto finding = (*worker)->Verify(shape_, item_);
  ASSERT_TRUE(finding.ok()) << finding.status();
  EXPECT_EQ(finding->status, TrialStatus::kIncorrectNumerical);
  EXPECT_EQ((*worker)->respawns(), 1);
}

TEST_F(WorkerTest, TheMemoryLimitIsAnErrorOfTheJobAndTheWorkerLivesOn) {
  WorkerOptions options = NullWorker();
  options.memory_bytes = 1 << 20;
  const auto worker = WorkerClient::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  WorkShape large = shape_;
  large.axes["num_pages"] = 512;
  const auto finding = (*worker)->Verify(large, item_);
  EXPECT_EQ(finding.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(finding.status().message()), HasSubstr("insufficient memory"));
  EXPECT_TRUE((*worker)->Verify(shape_, item_).ok());
  EXPECT_EQ((*worker)->respawns(), 0);
}

TEST_F(WorkerTest, MemoryIsAskedForBeforeMinutesOfReference) {
  WorkerOptions options = NullWorker();
  options.memory_bytes = 1 << 20;
  options.prepare_timeout_s = 300;  // where the reference came first, this would be over
  const auto worker = WorkerClient::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  WorkShape large = shape_;
  large.axes["num_tokens"] = 30'720;
  large.axes["num_qo_heads"] = 128;
  large.axes["topk"] = 4096;
  EXPECT_THAT(std::string((*worker)->Verify(large, item_).status().message()),
              HasSubstr("insufficient memory"));
}

TEST_F(WorkerTest, ABinaryFileThatIsNotWholeIsARuntimeErrorOfItsItem) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  WorkItem missing = item_;
  missing.binary_path += ".gone";
  const auto finding = (*worker)->Verify(shape_, missing);
  ASSERT_TRUE(finding.ok()) << finding.status();
  EXPECT_EQ(finding->status, TrialStatus::kRuntimeError);
}

TEST_F(WorkerTest, AVariantThatChangedOnDiskIsNotRun) {
  const auto worker = WorkerClient::Start(NullWorker());
  ASSERT_TRUE(worker.ok()) << worker.status();
  WorkItem other = item_;
  other.fingerprint = FingerprintOf("another text");
  EXPECT_EQ((*worker)->Verify(shape_, other).status().code(), absl::StatusCode::kAborted);
}

TEST_F(WorkerTest, WhatCannotStartSaysWhy) {
  WorkerOptions options = NullWorker();
  options.device = "gpu";
  const absl::Status device = WorkerClient::Start(options).status();
  EXPECT_THAT(std::string(device.message()), HasSubstr("gpu"));
  options.executable = "/nonexistent/kvr-worker";
  EXPECT_FALSE(WorkerClient::Start(options).ok());
  options.executable = "/bin/true";  // starts, says nothing, ends
  EXPECT_THAT(std::string(WorkerClient::Start(options).status().message()),
              HasSubstr("exited with status 0"));
}

TEST_F(WorkerTest, CancellingEndsTheWaitAndTheWorker) {
  std::atomic<bool> cancel{false};
  WorkerOptions options = NullWorker();
  options.cancel = &cancel;
  const auto worker = WorkerClient::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const pid_t pid = (*worker)->pid();
  cancel = true;
  EXPECT_TRUE(absl::IsCancelled((*worker)->Verify(shape_, item_).status()));
  EXPECT_TRUE(GoesAway(pid));
}

TEST_F(WorkerTest, TheWorkerDiesWithItsClient) {
  pid_t pid;
  {
    const auto worker = WorkerClient::Start(NullWorker());
    ASSERT_TRUE(worker.ok()) << worker.status();
    pid = (*worker)->pid();
  }
  EXPECT_TRUE(GoesAway(pid));
}

TEST_F(WorkerTest, TheWorkerDiesWhenItsParentIsKilled) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto worker = WorkerClient::Start(NullWorker());
    const pid_t pid = worker.ok() ? (*worker)->pid() : -1;
    if (write(channel[1], &pid, sizeof pid) != sizeof pid) _exit(1);
    for (;;) pause();
  }
  pid_t worker = -1;
  ASSERT_EQ(read(channel[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  ASSERT_GT(worker, 0);
  EXPECT_FALSE(IsGone(worker));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(GoesAway(worker));
  close(channel[0]);
  close(channel[1]);
}

}  // namespace
}  // namespace kvr
