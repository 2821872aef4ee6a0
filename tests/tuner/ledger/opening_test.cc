// SPDX-License-Identifier: Apache-2.0
// How a ledger is found, made, recognized and shared: what is opened, and what is refused.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "core/status.h"
#include "tests/tuner/ledger/fixture.h"
#include "tuner/ledger/database.h"
#include "tuner/ledger/schema.h"

namespace kvr::ledger {
namespace {

using ::testing::HasSubstr;

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

// As the first KVR left it, with a trial in it.
void MakeFirstSchema(const std::string& file) {
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  SQLite::Database database(file, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  database.exec(kMigrations[0]);
  database.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
  database.exec("PRAGMA user_version = 1");
  database.exec(
      "INSERT INTO environments VALUES (1, 'e', 'cuda', 'G', 'g', 'u', 'sm_90a', '1', 'c', '0.1', "
      "'h')");
  database.exec(
      "INSERT INTO trials VALUES (1, 't', 1, '2026-01-02T03:04:05Z', 's', 'scale', 'baseline', "
      "'1.0.0', 'ab', 'W=1', 'n=4', '', 'graph cold', 'final', 'kept', 'PASSED', '', 9.5, 0.01, "
      "x'', 1980, 0)");
}

TEST_F(LedgerTest, OfTheFirstSchemaIsBroughtUpToDateByWhoWritesIt) {
  MakeFirstSchema(FileOf("a"));
  auto ledger = Open();
  ASSERT_NE(ledger, nullptr);
  const auto trials = ledger->Find<Trial>({});
  ASSERT_TRUE(trials.ok() && trials->size() == 1) << trials.status();
  EXPECT_EQ(trials->front().config, "W=1");
  EXPECT_EQ(trials->front().quality, "");
  Trial approximate = TrialOf(*ledger->Remember(Gpu()), "K0=4");
  approximate.quality = "y.relative_error=0.0125,rows_changed=0.5";
  ASSERT_TRUE(ledger->Add(approximate).ok());
  EXPECT_EQ(Open()->Find<Trial>({{"config", "K0=4"}})->front().quality, approximate.quality);
  EXPECT_EQ(SQLite::Database(FileOf("a")).execAndGet("PRAGMA user_version").getInt(),
            kSchemaVersion);
}

// Others' files in a shared directory stay theirs.
TEST_F(LedgerTest, OfTheFirstSchemaIsReadAsItLies) {
  MakeFirstSchema(FileOf("a"));
  const std::string before = ContentOf(FileOf("a"));
  auto ledger = Open("a", {.read_only = true});
  ASSERT_NE(ledger, nullptr);
  const auto trials = ledger->Find<Trial>({{"op", "scale"}});
  ASSERT_TRUE(trials.ok() && trials->size() == 1) << trials.status();
  EXPECT_EQ(trials->front().throttle_bits, 0);
  EXPECT_EQ(trials->front().clock_mhz, 1980);
  EXPECT_EQ(trials->front().quality, "");
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

}  // namespace
}  // namespace kvr::ledger
