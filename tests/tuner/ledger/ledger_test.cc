// SPDX-License-Identifier: Apache-2.0
#include "tuner/ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "core/status.h"
#include "tuner/ledger/check.h"
#include "tuner/ledger/database.h"
#include "tuner/ledger/schema.h"
#include "tuner/stats/summary.h"

namespace kvr::ledger {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() {
    char path[] = "/tmp/kvr-ledger-XXXXXX";
    directory_ = mkdtemp(path);
  }
  ~LedgerTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Ledger> Open(const std::string& name = "a", OpenOptions options = {}) {
    absl::StatusOr<std::unique_ptr<Ledger>> ledger = Ledger::Open(directory_ + "/" + name, options);
    if (!ledger.ok()) ADD_FAILURE() << ledger.status();
    return ledger.ok() ? *std::move(ledger) : nullptr;
  }
  std::string FileOf(const std::string& name) { return directory_ + "/" + name + "/ledger.db"; }

  // What `child` returns, in a process that is nobody, or ours where there is no other.
  template <class Child>
  int AsNobody(Child child) {
    chmod(directory_.c_str(), 0755);
    const pid_t pid = fork();
    if (pid == 0) {
      if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);
      _exit(child());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string directory_;
};

Environment Gpu(const std::string& model = "nvidia-h200") {
  return {.device_kind = "cuda",
          .device_name = "NVIDIA H200",
          .device_model = model,
          .device_uuid = "GPU-1",
          .target = "sm_90a",
          .driver = "580.1",
          .compiler = "nvrtc 13.0",
          .kvr_version = "0.1.0",
          .host = "a"};
}

Trial TrialOf(int64_t environment, const std::string& config) {
  return {.environment = environment,
          .session = "s1",
          .op = "scale",
          .variant = "baseline",
          .version = "1.0.0",
          .fingerprint = "ab",
          .config = config,
          .axes = "n=4",
          .mode = "graph cold",
          .stage = "final",
          .status = "PASSED",
          .median_us = 9.5,
          .spread = 0.01,
          .samples = {9.25, 9.5, std::nan(""), 10}};
}

void AddOneOfEach(Ledger& ledger, int64_t environment) {
  EXPECT_TRUE(ledger.Add(TrialOf(environment, "W=1")).ok());
  EXPECT_TRUE(
      ledger
          .Add(Build{
              .environment = environment, .op = "scale", .variant = "baseline", .status = "built"})
          .ok());
  EXPECT_TRUE(ledger
                  .Add(Band{.environment = environment,
                            .op = "scale",
                            .mode = "graph cold",
                            .session_medians = {0.01}})
                  .ok());
  EXPECT_TRUE(
      ledger.Add(Publication{.environment = environment, .trigger = "tune", .outcome = "published"})
          .ok());
  EXPECT_TRUE(ledger
                  .Add(Verdict{.environment = environment,
                               .op = "scale",
                               .mode = "graph cold",
                               .kind = "quick",
                               .challenger = "wide",
                               .verdict = "INCONCLUSIVE",
                               .low = -INFINITY})
                  .ok());
}

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

TEST_F(LedgerTest, IsMadeOnceByProcessesThatStartTogether) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string name = "a" + std::to_string(attempt);
    std::vector<pid_t> children;
    for (int p = 0; p < 4; ++p) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      auto ledger = Open(name);
      _exit(ledger != nullptr && ledger->Remember(Gpu()).ok() ? 0 : 1);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(Open(name)->Find<Environment>({})->size(), 1u);
  }
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

TEST_F(LedgerTest, LeavesALedgerOfANewerKvrAsItIs) {
  Open();
  const std::string file = FileOf("a");
  {
    std::fstream raw(file, std::ios::in | std::ios::out | std::ios::binary);
    raw.seekp(60);
    raw.write("\0\0\0\x7f", 4);
  }
  std::ifstream before_file(file, std::ios::binary);
  const std::string before(std::istreambuf_iterator<char>(before_file), {});
  const absl::Status status = Ledger::Open(directory_ + "/a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("schema 127"));
  std::ifstream after_file(file, std::ios::binary);
  const std::string after(std::istreambuf_iterator<char>(after_file), {});
  EXPECT_EQ(before, after);
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/a")) {
    EXPECT_EQ(entry.path().filename(), "ledger.db");
  }
}

std::string ContentOf(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// As a newer KVR leaves it while it runs: the file itself does not say so yet.
TEST_F(LedgerTest, LeavesALedgerThatANewerKvrIsWritingAsItIs) {
  Open();
  SQLite::Database newer(FileOf("a"), SQLite::OPEN_READWRITE);
  newer.exec("PRAGMA user_version = 999");
  const std::string before = ContentOf(FileOf("a")), log = ContentOf(FileOf("a") + "-wal");
  for (const bool read_only : {false, true}) {
    const absl::Status status = Ledger::Open(directory_ + "/a", {.read_only = read_only}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("schema 999"));
  }
  EXPECT_EQ(ContentOf(FileOf("a")), before);
  EXPECT_EQ(ContentOf(FileOf("a") + "-wal"), log);
}

TEST_F(LedgerTest, LeavesADatabaseOfSomethingElseAsItIs) {
  std::filesystem::create_directories(directory_ + "/a");
  for (const char* schema : {"CREATE TABLE trials (id INTEGER)", "PRAGMA user_version = 1"}) {
    std::filesystem::remove(FileOf("a"));
    SQLite::Database(FileOf("a"), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec(schema);
    const std::string before = ContentOf(FileOf("a"));
    for (const bool read_only : {false, true}) {
      const absl::Status status =
          Ledger::Open(directory_ + "/a", {.read_only = read_only}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), HasSubstr("is no ledger"));
    }
    EXPECT_EQ(ContentOf(FileOf("a")), before);
  }
}

TEST_F(LedgerTest, WhoOnlyReadsMakesAndMigratesNothing) {
  std::filesystem::create_directories(directory_ + "/a");
  std::ofstream(FileOf("a")).flush();  // as SQLite makes it before anything is in it
  EXPECT_EQ(Ledger::Open(directory_ + "/a", {.read_only = true}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(std::filesystem::file_size(FileOf("a")), 0u);
  Open();
  SQLite::Database(FileOf("a"), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 0");
  const std::string before = ContentOf(FileOf("a"));
  const absl::Status status = Ledger::Open(directory_ + "/a", {.read_only = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ContentOf(FileOf("a")), before);
}

TEST_F(LedgerTest, IsReadByWhoMayNotWriteIt) {
  auto ledger = Open();
  ASSERT_TRUE(ledger->Add(TrialOf(*ledger->Remember(Gpu()), "W=1")).ok());
  size_t expected = 1;
  const auto read = [&] {
    auto reader = Open("a", {.read_only = true});
    if (reader == nullptr) return 1;
    const auto found = reader->Find<Trial>({});
    if (!found.ok()) ADD_FAILURE() << found.status();
    return found.ok() && found->size() == expected ? 0 : 2;
  };
  // A child of a process that has SQLite files open believes that it holds their locks.
  ledger.reset();
  const mode_t modes[][2] = {{0444, 0555}, {0644, 0755}, {0444, 0777}};
  for (const auto& [file, directory] : modes) {
    chmod(FileOf("a").c_str(), file);
    chmod((directory_ + "/a").c_str(), directory);
    const int rc = AsNobody(read);
    if (rc == 77) GTEST_SKIP() << "nobody cannot be had here";
    EXPECT_EQ(rc, 0) << std::oct << file << " in " << directory;
    EXPECT_FALSE(std::filesystem::exists(FileOf("a") + "-wal"));
  }
  chmod((directory_ + "/a").c_str(), 0755);
  // While another writes, what is in the log is read too.
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    auto own = Open();
    if (!own->Add(TrialOf(*own->Remember(Gpu()), "W=2")).ok() || write(fds[1], "x", 1) != 1) {
      _exit(1);
    }
    pause();
  }
  char byte;
  ASSERT_EQ(::read(fds[0], &byte, 1), 1);
  expected = 2;
  EXPECT_EQ(AsNobody(read), 0);
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  EXPECT_EQ(AsNobody(read), 0);  // and what it left there
}

TEST_F(LedgerTest, SaysWhatKeepsItFromALedger) {
  Open();
  const auto said = [&](const std::string& name) {
    return std::string(
        Ledger::Open(directory_ + "/" + name, {.read_only = true}).status().message());
  };
  std::ofstream(directory_ + "/file") << "x";
  std::filesystem::create_symlink("loop", directory_ + "/loop");
  std::filesystem::create_directories(directory_ + "/b/ledger.db");
  EXPECT_THAT(said("file"), HasSubstr("Not a directory"));
  EXPECT_THAT(said("loop"), HasSubstr("Too many levels of symbolic links"));
  EXPECT_THAT(said("b"), HasSubstr("is no ledger"));
  EXPECT_THAT(said("none"), HasSubstr("there is no ledger"));
  const auto denied = [&] {
    return said("a").find("Permission denied") != std::string::npos ? 0 : 1;
  };
  for (const mode_t mode : {0000, 0311}) {
    chmod((directory_ + "/a").c_str(), mode);
    const int rc = AsNobody(denied);
    EXPECT_TRUE(rc == 0 || rc == 77) << rc << " " << std::oct << mode;
  }
  chmod((directory_ + "/a").c_str(), 0755);
  chmod(FileOf("a").c_str(), 0000);
  const int rc = AsNobody(denied);
  EXPECT_TRUE(rc == 0 || rc == 77) << rc;
}

// Were its locks lost, the other process would believe that it is the last, and delete the log.
TEST_F(LedgerTest, KeepsItsLocksWhenItIsOpenedTwice) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t other = fork();
  if (other == 0) {
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    auto ledger = Open();
    const bool opened = ledger != nullptr;
    ledger.reset();  // the last one deletes the log
    _exit(opened ? 0 : 2);
  }
  auto first = Open();
  ASSERT_TRUE(first->Remember(Gpu()).ok());
  Open("a", {.read_only = true});
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::exists(FileOf("a") + "-wal"));
}

TEST_F(LedgerTest, SaysWhatIsNoLedger) {
  std::filesystem::create_directories(directory_ + "/a");
  std::ofstream(FileOf("a")) << std::string(4096, 'x');
  EXPECT_EQ(Ledger::Open(directory_ + "/a").status().code(),
            absl::StatusCode::kDataLoss);  // 'xxxx' would read as a version beyond ours
  std::ofstream(FileOf("a"), std::ios::trunc) << "short and no database";
  EXPECT_EQ(Ledger::Open(directory_ + "/a").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Ledger::Open(directory_ + "/none", {.read_only = true}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Ledger::Open("").status().code(), absl::StatusCode::kInvalidArgument);
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

TEST_F(LedgerTest, IsReadFromAReadOnlyDisk) {
  std::filesystem::create_directories(directory_ + "/disk");
  const pid_t child = fork();
  if (child == 0) {
    const std::string disk = directory_ + "/disk";
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(77);
    if (mount("kvr", disk.c_str(), "tmpfs", 0, "size=1m") != 0) _exit(77);
    auto ledger = Open("disk/50%#");
    if (!ledger->Add(TrialOf(*ledger->Remember(Gpu()), "W=1")).ok()) _exit(1);
    ledger.reset();
    if (mount("kvr", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") != 0) _exit(77);
    auto reader = Open("disk/50%#", {.read_only = true});
    if (reader == nullptr) _exit(2);
    const auto found = reader->Find<Trial>({});
    _exit(found.ok() && found->size() == 1 ? 0 : 3);
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

TEST_F(LedgerTest, ReadsTheFilesOfOtherHosts) {
  OpenOptions per_host;
  per_host.per_host = OpenOptions::PerHost::kYes;
  auto other = Open("shared", {});  // stands for another host: ledger.db
  const int64_t elsewhere = *other->Remember(Gpu("nvidia-h100"));
  ASSERT_TRUE(other->Add(TrialOf(elsewhere, "W=1")).ok());
  other.reset();
  auto own = Open("shared", per_host);
  const int64_t here = *own->Remember(Gpu());
  EXPECT_EQ(here, elsewhere);  // ids are of one file
  ASSERT_TRUE(own->Add(TrialOf(here, "W=2")).ok());
  const std::vector<Trial> trials = *own->Find<Trial>({});
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(own->EnvironmentOf(trials[0])->device_model, "nvidia-h100");
  EXPECT_EQ(own->EnvironmentOf(trials[1])->device_model, "nvidia-h200");
}

TEST_F(LedgerTest, WhoOnlyReadsIsContentWithTheFilesOfOtherHosts) {
  auto other = Open("shared");  // stands for another host: ledger.db
  ASSERT_TRUE(other->Add(TrialOf(*other->Remember(Gpu()), "W=1")).ok());
  OpenOptions reader{.read_only = true, .per_host = OpenOptions::PerHost::kYes};
  auto ledger = Open("shared", reader);
  ASSERT_NE(ledger, nullptr);
  EXPECT_EQ(ledger->Find<Trial>({})->size(), 1u);
  EXPECT_EQ(ledger->Remember(Gpu()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ledger->Add(Band{}).code(), absl::StatusCode::kFailedPrecondition);
  std::stringstream none;
  EXPECT_EQ(ledger->Import(none).status().code(), absl::StatusCode::kFailedPrecondition);
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

// Figures that came as a table read as their authors read them, but for what the band swallows.
TEST_F(LedgerTest, TakesResultsThatCameWithoutSamples) {
  auto ledger = Open();
  std::ifstream file(std::string(KVR_SOURCE_DIR) + "/tests/tuner/ledger/campaign.jsonl");
  const auto imported = ledger->Import(file);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->added, 13);
  std::set<std::string> wins, losses;
  const std::vector<Summary> summaries = *ledger->Find<Summary>({});
  for (const Summary& summary : summaries) {
    const stats::Verdict verdict = stats::JudgeSummary(summary.percents, summary.band_percent);
    const std::string at = summary.challenger + " " + summary.axes;
    if (verdict == stats::Verdict::kWin) wins.insert(at);
    if (verdict == stats::Verdict::kLoss) losses.insert(at);
    EXPECT_EQ(ledger->EnvironmentOf(summary)->target, "sm_120a");
  }
  EXPECT_EQ(wins, std::set<std::string>({"baseline num_tokens=64"}));
  EXPECT_EQ(losses,
            std::set<std::string>({"w8 num_tokens=1", "w8 num_tokens=8", "s3 num_tokens=64"}));
}

TEST_F(LedgerTest, ExchangesEverythingOnce) {
  auto source = Open("a"), target = Open("b");
  ASSERT_TRUE(target->Remember(Gpu("nvidia-l40s")).ok());  // so that ids differ
  const int64_t environment = *source->Remember(Gpu());
  AddOneOfEach(*source, environment);
  ASSERT_TRUE(source->Remember({.target = "sm_90a"}).ok());  // built for without a device
  std::stringstream lines;
  ASSERT_TRUE(source->Export(lines).ok());
  const std::string text = lines.str();
  EXPECT_EQ(target->Import(lines)->added, 7);
  std::stringstream again(text);
  EXPECT_EQ(target->Import(again)->known, 7);
  const std::vector<Trial> trials = *target->Find<Trial>({});
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(target->EnvironmentOf(trials[0])->device_model, "nvidia-h200");
  EXPECT_EQ(trials[0].samples.size(), 4u);
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

TEST_F(LedgerTest, RehearsesAnImportWithoutAFile) {
  auto source = Open();
  ASSERT_TRUE(source->Add(TrialOf(*source->Remember(Gpu()), "W=4")).ok());
  std::stringstream lines;
  const auto count = source->Export(lines);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 2);  // the environment and the trial
  const auto rehearsed = Ledger::Rehearse(lines);
  ASSERT_TRUE(rehearsed.ok()) << rehearsed.status();
  EXPECT_EQ(rehearsed->added, 2);
  std::stringstream bad("{}");
  EXPECT_THAT(std::string(What(Ledger::Rehearse(bad).status())), HasSubstr("line 1"));
}

TEST_F(LedgerTest, ImportsAllOrNothing) {
  auto source = Open("a");
  const int64_t environment = *source->Remember(Gpu());
  ASSERT_TRUE(source->Add(TrialOf(environment, "W=1")).ok());
  std::stringstream lines;
  ASSERT_TRUE(source->Export(lines).ok());
  const std::string good = lines.str();
  const std::vector<std::pair<std::string, std::string>> bad = {
      {good + "{\"table\": \"trials\"", "line 3 of the import is no JSON object"},
      {good + "[]", "line 3 of the import is no JSON object"},
      {good + R"({"table": "spells", "uid": "1"})", "'spells'"},
      {good + R"({"table": "builds", "uid": "1"})", "has no 'time'"},
      {good.substr(good.find('\n') + 1), "names an environment that no line before it has"},
  };
  for (const auto& [text, message] : bad) {
    auto target = Open("b");
    std::stringstream in(text);
    const absl::Status status = target->Import(in).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_TRUE(target->Find<Trial>({})->empty());
    EXPECT_TRUE(target->Find<Environment>({})->empty());
  }
}

std::string Exported(const Ledger& ledger) {
  std::stringstream lines;
  EXPECT_TRUE(ledger.Export(lines).ok());
  return lines.str();
}

// `text` with the one `what` in it replaced.
std::string With(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

std::string Refusal(Ledger& ledger, const std::string& text) {
  std::stringstream in(text);
  const absl::Status status = ledger.Import(in).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST_F(LedgerTest, TakesNoEnvironmentForAnother) {
  auto source = Open("a"), target = Open("b");
  ASSERT_TRUE(source->Add(TrialOf(*source->Remember(Gpu()), "W=1")).ok());
  const std::string good = Exported(*source);
  const std::string forged = With(good, "NVIDIA H200", "NVIDIA H100");
  const std::string uid = source->Find<Environment>({})->at(0).uid;
  // Whether or not the ledger knows the environment whose uid it bears.
  for (int known = 0; known < 2; ++known) {
    EXPECT_THAT(Refusal(*target, forged),
                AllOf(HasSubstr("line 1 of the import (environments '" + uid.substr(0, 12)),
                      HasSubstr("has a 'uid' that is not its content's")));
    EXPECT_EQ(target->Find<Environment>({})->size(), static_cast<size_t>(known));
    ASSERT_TRUE(target->Remember(Gpu()).ok());
  }
}

// By hand nobody writes the uid of a content: a name will do, within the text.
TEST_F(LedgerTest, KnowsAnEnvironmentWrittenByHandByItsContent) {
  auto source = Open("a"), target = Open("b");
  const int64_t here = *source->Remember(Gpu());
  ASSERT_TRUE(source->Add(TrialOf(here, "W=1")).ok());
  const std::string uid = source->Find<Environment>({})->at(0).uid;
  std::string named = Exported(*source);
  for (int i = 0; i < 2; ++i) named = With(named, uid, "mine");
  std::stringstream in(named);
  EXPECT_EQ(target->Import(in)->added, 2);
  EXPECT_EQ(target->Find<Environment>({})->at(0).uid, uid);
  std::stringstream again(Exported(*source));
  EXPECT_EQ(target->Import(again)->known, 2);
  const std::string line = named.substr(0, named.find('\n') + 1);
  EXPECT_THAT(Refusal(*target, line + With(line, "NVIDIA H200", "NVIDIA H100")),
              HasSubstr("line 2 of the import (environments 'mine') has the 'uid' of another"));
}

TEST_F(LedgerTest, TakesNoRecordForAnother) {
  auto source = Open("a"), target = Open("b");
  const int64_t environment = *source->Remember(Gpu());
  AddOneOfEach(*source, environment);
  const std::string good = Exported(*source);
  std::stringstream in(good);
  ASSERT_EQ(target->Import(in)->added, 6);
  for (const char* table : {"builds", "trials", "verdicts", "bands", "publications"}) {
    std::stringstream lines(good);
    std::string first, line;
    std::getline(lines, first);
    while (line.find(std::string("\"") + table) == std::string::npos) std::getline(lines, line);
    const std::string other = With(line, "\"time\":\"2", "\"time\":\"1");
    EXPECT_THAT(Refusal(*target, first + "\n" + other),
                HasSubstr("has the 'uid' of another record, which differs"));
  }
  EXPECT_EQ(Exported(*target), good);
}

TEST_F(LedgerTest, ImportsNothingThatCannotBe) {
  auto source = Open("a"), target = Open("b");
  Trial trial = TrialOf(*source->Remember(Gpu()), "W=1");
  trial.uid = "aa";
  trial.clock_mhz = 1980;
  ASSERT_TRUE(source->Add(trial).ok());
  const std::string good_trial = Exported(*source);
  const std::string environment = good_trial.substr(0, good_trial.find('\n') + 1);
  const std::string of = R"(, "environment": ")" + source->Find<Environment>({})->at(0).uid +
                         R"(", "time": "2026-11-30T11:22:33.444Z", "op": "scale", "axes": "n=4")";
  const std::string good_verdict = environment + R"({"table": "verdicts", "uid": "bb")" + of +
                                   R"(, "session": "s", "mode": "graph cold", "kind": "quick",
      "incumbent": "baseline", "incumbent_fingerprint": "", "incumbent_config": "",
      "challenger": "wide", "challenger_fingerprint": "", "challenger_config": "",
      "verdict": "WIN", "reason": "", "difference": -0.2, "low": -0.3, "high": -0.1,
      "band": 0.01, "rounds": 20, "sessions": 1})";
  const std::string good_band = environment + R"({"table": "bands", "uid": "cc")" + of +
                                R"(, "mode": "graph cold", "band": 0.02, "sigma": 0.01,
      "floor": 0.003, "sessions": 3, "rounds": 20, "session_medians": [0.01, -0.01]})";
  const std::string good_build = environment + R"({"table": "builds", "uid": "dd")" +
                                 With(of, R"(, "axes": "n=4")", "") +
                                 R"(, "variant": "wide", "version": "1.0.0", "fingerprint": "",
      "config": "", "target": "sm_90a", "binary": "", "status": "hit", "reason": "",
      "milliseconds": 2})";
  const auto one_line = [](std::string text) {
    const size_t first = text.find('\n') + 1;
    std::replace(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(), '\n', ' ');
    return text;
  };
  struct Case {
    std::string text, what, by, message;
  };
  const std::vector<Case> cases = {
      {good_trial, R"("uid":"aa")", R"("uid":"")", "'uid'"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":1e308)", "'clock_mhz' of 1e+308"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":18446744073709551615)",
       "'clock_mhz' of 18446744073709551615"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":1.5)", "'clock_mhz' of 1.5"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":-1)", "'clock_mhz' of -1"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":true)", "'clock_mhz' of another type"},
      {good_trial, R"("median_us":9.5)", R"("median_us":-9.5)", "'median_us' of -9.5"},
      {good_trial, R"([9.25,)", R"([-9.25,)", "'samples' of -9.25"},
      {good_trial, R"("PASSED")", R"("PAST")", "'status' of 'PAST'"},
      {good_trial, R"("graph cold")", R"("graph lukewarm")", "'mode' of 'graph lukewarm'"},
      {good_trial, R"("time":"2)", R"("time":" 2)", "'time' of ' 2"},
      {good_verdict, "33.444Z", "33.444", "'time'"},
      {good_verdict, "2026-11-30", "2026-11-31", "'time'"},
      {good_verdict, "2026-11-30T11:22:33.444Z", "infinite-future", "'time'"},
      {good_verdict, R"("WIN")", R"("WON")", "'verdict' of 'WON'"},
      {good_verdict, R"("quick")", R"("quickly")", "'kind' of 'quickly'"},
      {good_verdict, R"("low": -0.3)", R"("low": 0.3)", "'low' of 0.3"},
      {good_verdict, R"("sessions": 1)", R"("sessions": -5)", "'sessions' of -5"},
      {good_band, R"("band": 0.02)", R"("band": -0.02)", "'band' of -0.02"},
      {good_band, R"("sigma": 0.01)", R"("sigma": null)", "'sigma' of nan"},
      {good_build, R"("hit")", R"("missed")", "'status' of 'missed'"},
      {good_build, R"("milliseconds": 2)", R"("milliseconds": -2)", "'milliseconds' of -2"},
  };
  for (const Case& c : cases) {
    const std::string said = Refusal(*target, one_line(With(c.text, c.what, c.by)));
    EXPECT_THAT(said, HasSubstr("line 2 of the import ("));
    EXPECT_THAT(said, HasSubstr(c.message));
  }
  for (const std::string& good : {good_trial, good_verdict, good_band, good_build}) {
    std::stringstream in(one_line(good));
    const auto imported = target->Import(in);
    EXPECT_TRUE(imported.ok()) << imported.status();
  }
}

TEST_F(LedgerTest, TakesEveryVerdictThatThereIs) {
  Verdict verdict{.uid = "a",
                  .time = Now(),
                  .op = "scale",
                  .mode = "graph cold",
                  .kind = "ship",
                  .challenger = "wide"};
  for (int i = 0; i <= static_cast<int>(stats::Verdict::kInvalid); ++i) {
    verdict.verdict = std::string(stats::VerdictName(static_cast<stats::Verdict>(i)));
    EXPECT_TRUE(Check(verdict).ok()) << Check(verdict);
  }
}

TEST_F(LedgerTest, ExportsWhatIsNoUtf8) {
  auto source = Open("a"), target = Open("b");
  Environment environment = Gpu();
  environment.host = "caf\xe9";
  Trial trial = TrialOf(*source->Remember(environment), "W=1");
  trial.reason = "it said \xff\xfe";
  ASSERT_TRUE(source->Add(trial).ok());
  const std::string text = Exported(*source);
  EXPECT_THAT(text, HasSubstr("it said \xef\xbf\xbd"));
  std::stringstream in(text), again(text), back(text);
  EXPECT_EQ(target->Import(in)->added, 2);
  EXPECT_EQ(target->Import(again)->known, 2);
  EXPECT_EQ(Exported(*target), text);
  ASSERT_TRUE(source->Import(back).ok());
  EXPECT_EQ(source->Find<Trial>({})->size(), 1u);
}

}  // namespace
}  // namespace kvr::ledger
