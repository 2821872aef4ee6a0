// SPDX-License-Identifier: Apache-2.0
#include "tuner/ledger/ledger.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <fstream>
#include <thread>
#include <vector>

#include "core/status.h"
#include "tests/tuner/ledger/fixture.h"
#include "tuner/ledger/database.h"

namespace kvr::ledger {
namespace {

using ::testing::HasSubstr;

TEST_F(LedgerTest, GivesBackWhatItWasGiven) {
  auto ledger = Open();
  const int64_t environment = *ledger->Remember(Gpu());
  ASSERT_TRUE(ledger->Add(TrialOf(environment, "W=4")).ok());
  Verdict open_ended{.environment = environment, .op = "scale", .verdict = "INCONCLUSIVE"};
  open_ended.low = -INFINITY;
  ASSERT_TRUE(ledger->Add(open_ended).ok());
  ledger.reset();

  ledger = Open();
  const std::vector<Trial> trials = *ledger->Find<Trial>({{"config", "W=4"}});
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(trials[0].uid.size(), 32u);
  EXPECT_EQ(trials[0].time.size(), std::string("2026-11-30T11:22:33.444Z").size());
  EXPECT_EQ(trials[0].median_us, 9.5);
  ASSERT_EQ(trials[0].samples.size(), 4u);
  EXPECT_EQ(trials[0].samples[0], 9.25);
  EXPECT_TRUE(std::isnan(trials[0].samples[2]));
  EXPECT_EQ(ledger->EnvironmentOf(trials[0])->device_name, "NVIDIA H200");
  EXPECT_TRUE(std::isnan(ledger->Find<Verdict>({})->at(0).low));
  EXPECT_TRUE(ledger->Find<Trial>({{"config", "W=8"}})->empty());
}

TEST_F(LedgerTest, KeepsATrialThatWasNeverMeasured) {
  auto ledger = Open();
  Trial failed = TrialOf(*ledger->Remember(Gpu()), "W=4");
  failed.status = "COMPILE_ERROR";
  failed.samples.clear();
  ASSERT_TRUE(ledger->Add(failed).ok());
  const std::vector<Trial> trials = *ledger->Find<Trial>({});
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(trials[0].status, "COMPILE_ERROR");
  EXPECT_TRUE(trials[0].samples.empty());
}

TEST_F(LedgerTest, StoresEqualEnvironmentsOnce) {
  auto ledger = Open();
  const int64_t first = *ledger->Remember(Gpu());
  EXPECT_EQ(*ledger->Remember(Gpu()), first);
  EXPECT_NE(*ledger->Remember(Gpu("nvidia-h100")), first);
  EXPECT_EQ(ledger->Find<Environment>({})->size(), 2u);
}

TEST_F(LedgerTest, RefusesColumnsThatItDoesNotHave) {
  auto ledger = Open();
  const absl::Status status = ledger->Find<Trial>({{"confg", "W=4"}}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("'config'"));
}

TEST_F(LedgerTest, KeepsTheOrderOfWritingWhateverTheClockSays) {
  auto ledger = Open();
  const int64_t environment = *ledger->Remember(Gpu());
  Trial later = TrialOf(environment, "W=1"), earlier = TrialOf(environment, "W=2");
  later.time = "2026-11-30T12:00:00.000Z";
  earlier.time = "2020-01-01T00:00:00.000Z";
  ASSERT_TRUE(ledger->Add(later).ok());
  ASSERT_TRUE(ledger->Add(earlier).ok());
  EXPECT_EQ(ledger->Find<Trial>({}, 1)->at(0).config, "W=2");
  EXPECT_EQ(ledger->Find<Trial>({})->at(0).config, "W=1");
}

TEST_F(LedgerTest, TakesConcurrentWriters) {
  auto first = Open(), second = Open();
  const int64_t environment = *first->Remember(Gpu());
  std::vector<std::thread> threads;
  for (Ledger* ledger : {first.get(), second.get()}) {
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([=] {
        for (int i = 0; i < 50; ++i) EXPECT_TRUE(ledger->Add(TrialOf(environment, "W=1")).ok());
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first->Find<Trial>({})->size(), 200u);
}

TEST_F(LedgerTest, TakesWritersOfSeveralProcesses) {
  const int64_t environment = *Open()->Remember(Gpu());
  std::vector<pid_t> children;
  for (int p = 0; p < 3; ++p) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    auto ledger = Open();
    for (int i = 0; i < 50; ++i) {
      if (!ledger->Add(TrialOf(environment, "W=1")).ok()) _exit(1);
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Open()->Find<Trial>({})->size(), 150u);
}

// The child says what Add has returned for; all of that must be there after it is killed. One
// ledger throughout, so that each child starts on what the last one left behind.
TEST_F(LedgerTest, LosesNothingFinishedWhenKilled) {
  size_t acknowledged = 0;
  constexpr size_t kKills = 50;
  for (size_t attempt = 0; attempt < kKills; ++attempt) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(fds[0]);
      auto ledger = Open();
      const int64_t environment = *ledger->Remember(Gpu());
      for (;;) {
        if (!ledger->Add(TrialOf(environment, "W=1")).ok()) _exit(1);
        if (write(fds[1], "x", 1) != 1) _exit(1);
      }
    }
    close(fds[1]);
    const size_t enough = acknowledged + attempt % 7;
    char byte;
    while (acknowledged < enough && read(fds[0], &byte, 1) == 1) ++acknowledged;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(fds[0], &byte, 1) == 1) ++acknowledged;
    close(fds[0]);
  }
  auto ledger = Open();
  const size_t found = ledger->Find<Trial>({})->size();
  EXPECT_GE(found, acknowledged);
  EXPECT_LE(found, acknowledged + kKills);  // finished, and killed before it could say so
  EXPECT_TRUE(ledger->Add(TrialOf(*ledger->Remember(Gpu()), "W=2")).ok());
}

TEST_F(LedgerTest, SurvivesADiskThatIsFull) {
  auto ledger = Open();
  const int64_t environment = *ledger->Remember(Gpu());
  ASSERT_TRUE(ledger->Add(TrialOf(environment, "W=1")).ok());
  // In a child: the limit on file sizes cannot be raised again.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto full = Open();
    const rlimit limit{64 << 10, 64 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    Trial large = TrialOf(environment, "W=2");
    large.samples.assign(100000, 1.0);
    const absl::Status status = full->Add(large);
    _exit(status.code() == absl::StatusCode::kUnavailable ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ledger->Find<Trial>({})->size(), 1u);
  EXPECT_TRUE(ledger->Add(TrialOf(environment, "W=3")).ok());
}

// On a disk of its own, where one may be mounted.
TEST_F(LedgerTest, GoesOnWhenAFullDiskHasRoomAgain) {
  std::filesystem::create_directories(directory_ + "/disk");
  const pid_t child = fork();
  if (child == 0) {
    const std::string disk = directory_ + "/disk";
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(77);
    if (mount("kvr", disk.c_str(), "tmpfs", 0, "size=512k") != 0) _exit(77);
    std::ofstream(disk + "/ballast") << std::string(256 << 10, 'x');
    auto ledger = Open("disk");
    const int64_t environment = *ledger->Remember(Gpu());
    size_t added = 0;
    absl::Status status;
    while (added < 1000 && (status = ledger->Add(TrialOf(environment, "W=1"))).ok()) ++added;
    if (status.code() != absl::StatusCode::kUnavailable) _exit(1);
    if (ledger->Find<Trial>({})->size() != added) _exit(2);
    std::filesystem::remove(disk + "/ballast");
    if (!ledger->Add(TrialOf(environment, "W=2")).ok()) _exit(3);
    ledger.reset();
    _exit(Open("disk")->Find<Trial>({})->size() == added + 1 ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no disk can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST_F(LedgerTest, SaysThatAFullDatabaseNeedsRoom) {
  Open();
  auto database = OpenDatabase(FileOf("a"), /*read_only=*/false, /*wal=*/true);
  ASSERT_TRUE(database.ok());
  (*database)->exec("PRAGMA max_page_count = 1");  // SQLite makes that what there is
  Environment environment = Gpu();
  environment.host.assign(100000, 'x');
  absl::Status status;
  try {
    Insert(**database, environment);
  } catch (const SQLite::Exception& error) {
    status = FromSqlite("ledger.db", error);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Fix(status), "make room on its disk");
}

TEST_F(LedgerTest, FindsARecordByTheBeginningOfItsUid) {
  auto ledger = Open();
  const int64_t environment = *ledger->Remember(Gpu());
  for (const char* uid : {"abc1", "abd2", "_b"}) {
    Trial trial = TrialOf(environment, "W=1");
    trial.uid = uid;
    ASSERT_TRUE(ledger->Add(trial).ok());
  }
  EXPECT_EQ(ledger->FindUid<Trial>("ab")->size(), 2u);
  EXPECT_EQ(ledger->FindUid<Trial>("abc")->size(), 1u);
  EXPECT_EQ(ledger->FindUid<Trial>("_")->size(), 1u);
  EXPECT_TRUE(ledger->FindUid<Trial>("%")->empty());
  EXPECT_TRUE(ledger->FindUid<Verdict>("ab")->empty());
}

TEST_F(LedgerTest, LeavesSamplesOutWhenAsked) {
  auto ledger = Open();
  Trial trial = TrialOf(*ledger->Remember(Gpu()), "W=4");
  trial.clock_mhz = 1980;
  ASSERT_TRUE(ledger->Add(trial).ok());
  const auto all = ledger->Find<Trial>({});
  const auto without = ledger->Find<Trial>({}, 0, Samples::kLeaveOut);
  ASSERT_TRUE(without.ok()) << without.status();
  ASSERT_EQ(without->size(), 1u);
  EXPECT_EQ(all->front().samples.size(), trial.samples.size());
  EXPECT_TRUE(without->front().samples.empty());
  EXPECT_EQ(without->front().median_us, trial.median_us);
  EXPECT_EQ(without->front().clock_mhz, trial.clock_mhz);  // columns after it are in their place
}

}  // namespace
}  // namespace kvr::ledger
