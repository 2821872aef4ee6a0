// SPDX-License-Identifier: Apache-2.0
//
// A process that uses a cache, for tests/jit/cache_process_test.cc to start, count and kill:
//
//   build ROOT LOG KEYS THREADS [UID]   every thread builds every key; exit 0 if all are right
//   nvrtc ROOT LOG                      one real build with NVRTC; LOG gets a file if it compiled
//   hold ROOT                           holds the lock of key 0 while "compiling" for ever
//   publish ROOT SEED                   publishes entries without end, slowly
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "jit/nvrtc/nvrtc.h"
#include "tests/jit/cache_fixtures.h"

namespace kvr {
namespace {

CacheOptions Options(const std::string& root) {
  CacheOptions options;
  options.root = root;
  options.lock_wait = std::chrono::seconds(60);
  options.warn = [](std::string_view text) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  };
  return options;
}

int BuildAll(const std::string& root, const std::string& log, int keys, int threads) {
  BinaryCache cache(Options(root));
  CountingJit parts(std::make_unique<CountingCompiler>(log), &cache);
  parts.compiler->milliseconds = 5;
  std::atomic<int> wrong{0};
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int i = 0; i < keys; ++i) {
        const int number = (i + t * 3) % keys;
        const absl::StatusOr<Built> built = BuildNumber(*parts.jit, number);
        wrong += !built.ok() || built->binary->bytes.find(BlockOf(number)) == std::string::npos ||
                 built->binary->content != FingerprintOf(built->binary->bytes);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  return wrong == 0 ? 0 : 1;
}

int BuildWithNvrtc(const std::string& root, const std::string& log) {
  BinaryCache cache(Options(root));
  std::vector<std::unique_ptr<Compiler>> compilers;
  auto nvrtc = MakeNvrtcCompiler({});
  if (!nvrtc.ok()) return 77;
  compilers.push_back(*std::move(nvrtc));
  Jit jit(std::move(compilers), &cache);
  const absl::StatusOr<Built> built =
      jit.Build(ScaleOp(), ScaleVariant(), {{"BLOCK", 128}, {"UNROLL", 4}}, "sm_90a");
  if (!built.ok()) {
    std::fprintf(stderr, "%s\n", built.status().ToString().c_str());
    return 1;
  }
  if (!built->cache_hit) WriteFile(log + "/" + std::to_string(getpid()), "");
  return 0;
}

int Hold(const std::string& root) {
  BinaryCache cache(Options(root));
  CountingJit parts(std::make_unique<CountingCompiler>(), &cache);
  const auto key =
      parts.jit->Key(ScaleOp(), ScaleVariant(), {{"BLOCK", 32}, {"UNROLL", 1}}, "host");
  BinaryPtr published;
  const std::unique_ptr<KeyLock> lock = cache.Claim(*key, &published);
  if (lock == nullptr) return 1;
  std::puts("held");
  std::fflush(stdout);
  for (;;) pause();
}

// In many small writes, so that a kill mostly lands within one entry.
class SlowFiles : public CacheFiles {
 public:
  ssize_t Write(int fd, const void* from, size_t size) override {
    usleep(50);
    return CacheFiles::Write(fd, from, std::min<size_t>(size, 1000));
  }
};

int Publish(const std::string& root, int seed) {
  SlowFiles files;
  CacheOptions options = Options(root);
  options.files = &files;
  BinaryCache cache(options);
  std::puts("started");
  std::fflush(stdout);
  for (int i = seed;; ++i) {
    cache.Put(SomeBinary(std::to_string(i % 64), 3000 + static_cast<size_t>(i % 64) * 700), "");
  }
}

int Main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto number = [&](size_t i) { return std::atoi(arguments.at(i).c_str()); };
  if (arguments.at(0) == "build") {
    if (arguments.size() > 5 && setuid(static_cast<uid_t>(number(5))) != 0) return 3;
    return BuildAll(arguments.at(1), arguments.at(2), number(3), number(4));
  }
  if (arguments.at(0) == "nvrtc") return BuildWithNvrtc(arguments.at(1), arguments.at(2));
  if (arguments.at(0) == "hold") return Hold(arguments.at(1));
  if (arguments.at(0) == "publish") return Publish(arguments.at(1), number(2));
  return 2;
}

}  // namespace
}  // namespace kvr

int main(int argc, char** argv) { return kvr::Main(argc, argv); }
