// SPDX-License-Identifier: Apache-2.0
//
// Several processes, one cache: each key compiled once where the lock works, the right binary where
// it does not, and nothing half-written however a process ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <random>

#include "tests/jit/cache_fixtures.h"

extern char** environ;

namespace kvr {
namespace {

using testing::HasSubstr;

constexpr int kKeys = 20;

class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kvr-cache-process";
    arguments.insert(arguments.begin(), program);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int out[2], err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Process() {
    if (pid_ > 0) Kill();
    close(out_);
    close(err_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void AwaitWord() {
    char c = 0;
    while (read(out_, &c, 1) == 1 && c != '\n') continue;
  }
  void Signal(int signal) { kill(pid_, signal); }
  void Kill() {
    Signal(SIGKILL);
    Wait();
  }
  // The exit code; what it said on standard error is in `said`.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    char buffer[4096];
    for (ssize_t n; (n = read(err_, buffer, sizeof buffer)) > 0;) {
      said.append(buffer, static_cast<size_t>(n));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string said;

 private:
  pid_t pid_ = 0;
  int out_ = -1, err_ = -1;
};

class CacheProcesses : public testing::Test {
 protected:
  CacheProcesses() {
    std::filesystem::create_directories(log_);
    std::filesystem::permissions(log_, std::filesystem::perms::all);
    std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
  }
  size_t Compiles() { return NamesIn(log_).size(); }
  std::unique_ptr<Process> Start(int threads, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"build", root_, log_, std::to_string(kKeys),
                                          std::to_string(threads)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return std::make_unique<Process>(arguments);
  }
  void ExpectAllRight(int processes, int threads, const std::vector<std::string>& more = {}) {
    std::vector<std::unique_ptr<Process>> running;
    for (int i = 0; i < processes; ++i) running.push_back(Start(threads, more));
    for (auto& process : running) {
      EXPECT_EQ(process->Wait(), 0) << process->said;
      said_ += process->said;
    }
  }
  void ExpectSound() {
    for (const BinaryCache::Info& info : BinaryCache(root_).List()) {
      EXPECT_TRUE(info.valid()) << info.key.Hex() << " " << info.damage;
    }
  }
  FastDir dir_;
  const std::string root_ = dir_ / "cache", log_ = dir_ / "log";
  std::string said_;
};

TEST_F(CacheProcesses, EightOfEightThreadsCompileTwentyKeysTwentyTimes) {
  ExpectAllRight(8, 8);
  EXPECT_EQ(Compiles(), static_cast<size_t>(kKeys));
  EXPECT_EQ(said_, "");
  EXPECT_EQ(BinaryCache(root_).List().size(), static_cast<size_t>(kKeys));
  ExpectSound();
}

TEST_F(CacheProcesses, ALockFileThatMayNotBeWrittenIsDoneWithout) {
  if (geteuid() != 0) GTEST_SKIP() << "another user takes root";
  std::filesystem::create_directories(root_ + "/v2");
  for (const std::string& path : {root_, root_ + "/v2"}) {
    std::filesystem::permissions(path, std::filesystem::perms::all);
  }
  WriteFile(root_ + "/v2/lock", "");
  ASSERT_EQ(chmod((root_ + "/v2/lock").c_str(), 0444), 0);
  ExpectAllRight(4, 4, {"65534"});
  EXPECT_GE(Compiles(), static_cast<size_t>(kKeys));
  EXPECT_THAT(said_, HasSubstr("without it"));
  EXPECT_LE(std::count(said_.begin(), said_.end(), '\n'), 4) << "once a process: " << said_;
  EXPECT_EQ(NamesIn(root_ + "/quarantine").size(), 0u);
}

TEST_F(CacheProcesses, ADirectoryThatMayNotBeWrittenIsDoneWithout) {
  if (geteuid() != 0) GTEST_SKIP() << "another user takes root";
  std::filesystem::create_directory(root_);
  ASSERT_EQ(chmod(root_.c_str(), 0555), 0);
  ExpectAllRight(2, 4, {"65534"});
  EXPECT_EQ(Compiles(), static_cast<size_t>(2 * kKeys)) << "once a process";
  EXPECT_THAT(said_, HasSubstr("KVR_CACHE_DIR"));
  EXPECT_THAT(NamesIn(root_), testing::IsEmpty());
}

TEST_F(CacheProcesses, AKilledHolderFreesItsKey) {
  Process holder({"hold", root_});
  holder.AwaitWord();
  std::unique_ptr<Process> waiter = Start(1);
  usleep(100000);
  EXPECT_EQ(Compiles(), 0u) << "key 0 comes first and is held";
  holder.Kill();
  EXPECT_EQ(waiter->Wait(), 0) << waiter->said;
  EXPECT_EQ(Compiles(), static_cast<size_t>(kKeys));
  EXPECT_EQ(waiter->said, "");
}

TEST_F(CacheProcesses, NvrtcRunsOnceForFour) {
  std::vector<std::unique_ptr<Process>> running;
  for (int i = 0; i < 4; ++i) {
    running.push_back(std::make_unique<Process>(std::vector<std::string>{"nvrtc", root_, log_}));
  }
  for (auto& process : running) {
    const int code = process->Wait();
    if (code == 77) GTEST_SKIP() << "no NVRTC here";
    EXPECT_EQ(code, 0) << process->said;
  }
  EXPECT_EQ(Compiles(), 1u);
  ExpectSound();
}

// Label stress: see CMakeLists.txt.
TEST_F(CacheProcesses, KilledInMidPublishTwoHundredTimes) {
  std::mt19937 random(11);
  const auto kill_some = [&] {
    for (int i = 0; i < 200; ++i) {
      Process writer({"publish", root_, std::to_string(random() % 64)});
      writer.AwaitWord();
      usleep(random() % 8000);
      writer.Kill();
      EXPECT_EQ(writer.said, "");
    }
  };
  const auto killed_within = [&] {
    const std::filesystem::recursive_directory_iterator entries(root_);
    return std::count_if(begin(entries), end(entries), [](const auto& entry) {
      const std::string name = entry.path().filename();
      return name.size() > 64 && name.substr(name.size() - 4) == ".tmp";
    });
  };
  kill_some();
  // Writers that get few turns are killed before they publish: then more of them.
  for (int more = 0; more < 10 && killed_within() <= 50; ++more) kill_some();
  EXPECT_GT(killed_within(), 50) << "the kills were to land within a publication";
  ExpectSound();
  // Every entry that is there is the right one, and those that are not can be written.
  BinaryCache cache(root_);
  for (int i = 0; i < 64; ++i) {
    const auto right = SomeBinary(std::to_string(i), 3000 + static_cast<size_t>(i) * 700);
    const BinaryPtr got = cache.Get(right->key);
    if (got == nullptr) {
      cache.Put(right, "");
    } else {
      EXPECT_EQ(got->bytes, right->bytes) << i;
    }
    EXPECT_NE(BinaryCache(root_).Get(right->key), nullptr) << i;
  }
  EXPECT_EQ(cache.stats().corrupt, 0);
}

}  // namespace
}  // namespace kvr
