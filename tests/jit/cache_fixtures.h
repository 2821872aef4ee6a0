// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the cache share: made-up binaries, a directory, and a compiler that counts.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jit/jit.h"
#include "tests/jit/fixtures.h"

namespace kvr {

inline std::shared_ptr<Binary> SomeBinary(const std::string& seed, size_t size = 200,
                                          const std::string& target = "sm_90a") {
  auto binary = std::make_shared<Binary>();
  binary->key = FingerprintOf(seed);
  binary->source = FingerprintOf("source of " + seed);
  binary->target = target;
  binary->compiler = "test 1";
  for (size_t i = 0; i < size; ++i) binary->bytes += static_cast<char>(i * 7 + seed.size());
  binary->content = FingerprintOf(binary->bytes);
  binary->kernels = {{"k<1>", "_Z1kILi1EEvv", {40, 1024, 16, 8, 128}}, {"m", "_Z1mv", {}}};
  return binary;
}

// A directory in memory where there is one: these tests flush thousands of files.
class FastDir {
 public:
  FastDir() {
    std::string pattern = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    pattern += "/kvr_cache_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~FastDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FastDir(const FastDir&) = delete;
  FastDir& operator=(const FastDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Its binary is the unit's text. A compile is a file in `log`, if one is given, so that several
// processes' are counted.
class CountingCompiler : public Compiler {
 public:
  explicit CountingCompiler(std::string log = "", std::string identity = "counting 1",
                            std::string target = "host")
      : log_(std::move(log)), identity_(std::move(identity)), target_(std::move(target)) {}
  const std::string& identity() const override { return identity_; }
  bool Supports(std::string_view target, std::string* reason) const override {
    if (target == target_) return true;
    if (reason != nullptr) *reason = identity_ + " compiles for " + target_;
    return false;
  }
  std::vector<std::string> targets() const override { return {target_}; }
  std::string Options(std::string_view) const override { return ""; }
  bool concurrent() const override { return true; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }
  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view) override {
    const int number = ++compiles_;
    if (!log_.empty()) {
      std::ofstream(log_ + "/" + std::to_string(getpid()) + "." + std::to_string(number))
          << unit.name;
    }
    if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    CompiledUnit out;
    out.bytes = Result(unit.text);
    for (const std::string& entry : unit.entries) out.kernels.push_back({entry, entry, {}});
    return out;
  }
  std::string Result(const std::string& text) const { return identity_ + "\n" + text; }
  int compiles() const { return compiles_; }
  int milliseconds = 0;

 private:
  const std::string log_, identity_, target_;
  const std::vector<HeaderRoot> roots_;
  std::atomic<int> compiles_{0};
};

// A Jit around one compiler; null: none.
struct CountingJit {
  CountingJit(std::unique_ptr<CountingCompiler> made, BinaryCache* cache) : compiler(made.get()) {
    std::vector<std::unique_ptr<Compiler>> compilers;
    if (made != nullptr) compilers.push_back(std::move(made));
    jit = std::make_unique<Jit>(std::move(compilers), cache);
  }
  CountingCompiler* compiler;
  std::unique_ptr<Jit> jit;
};

// The number-th of many configs of one small variant.
inline absl::StatusOr<Built> BuildNumber(Jit& jit, int number, const std::string& target = "host") {
  return jit.Build(ScaleOp(), ScaleVariant(), {{"BLOCK", 32 + number}, {"UNROLL", 1}}, target);
}
inline std::string BlockOf(int number) { return "BLOCK = " + std::to_string(32 + number) + ";"; }

}  // namespace kvr
