// SPDX-License-Identifier: Apache-2.0
//
// Keys, caching and single flight, over a compiler whose binary is the unit's own text: what is
// tested is the Jit around it. tests/jit/nvrtc_test.cc does the same with NVRTC.
#include "jit/jit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>

#include "core/status.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

using testing::HasSubstr;

class TextCompiler : public Compiler {
 public:
  explicit TextCompiler(std::vector<HeaderRoot> roots, bool concurrent = true)
      : roots_(std::move(roots)), concurrent_(concurrent) {}
  const std::string& identity() const override { return identity_; }
  bool Supports(std::string_view target, std::string* reason) const override {
    if (target == "host") return true;
    if (reason != nullptr) *reason = "text is for the host only";
    return false;
  }
  std::vector<std::string> targets() const override { return {"host"}; }
  std::string Options(std::string_view) const override { return options_; }
  bool concurrent() const override { return concurrent_; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }
  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view) override {
    int now = ++inside_;
    if (now > most_inside) most_inside = now;
    ++compiles;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --inside_;
    if (unit.text.find("BLOCK = 64;") != std::string::npos)
      return Error(absl::StatusCode::kInvalidArgument, "no 64", "say 128");
    if (throws) throw std::runtime_error("boom");
    if (throws_a_number) throw 7;
    if (memory_runs_out) throw std::bad_alloc();
    CompiledUnit out;
    out.bytes = unit.text;
    for (const UnitHeader& header : unit.headers) out.bytes += *header.content;
    for (const std::string& entry : unit.entries) out.kernels.push_back({entry, entry, {}});
    return out;
  }

  std::string identity_ = "text 1", options_ = "none";
  bool throws = false, throws_a_number = false, memory_runs_out = false;
  static inline std::atomic<int> compiles{0}, most_inside{0};

 private:
  std::vector<HeaderRoot> roots_;
  bool concurrent_;
  std::atomic<int> inside_{0};
};

struct Parts {
  std::unique_ptr<Jit> jit;
  TextCompiler* compiler = nullptr;
};

Parts MakeJit(const std::string& sdk, BinaryCache* cache, bool concurrent = true,
              int max_compiles = 0) {
  TextCompiler::compiles = 0;
  TextCompiler::most_inside = 0;
  auto compiler = std::make_unique<TextCompiler>(std::vector<HeaderRoot>{{sdk, {}}}, concurrent);
  Parts parts;
  parts.compiler = compiler.get();
  std::vector<std::unique_ptr<Compiler>> compilers;
  compilers.push_back(std::move(compiler));
  parts.jit = std::make_unique<Jit>(std::move(compilers), cache, max_compiles);
  return parts;
}

const Config kConfig = {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}};

class JitTest : public testing::Test {
 protected:
  JitTest() {
    WriteFile(dir_ / "sdk/cuda_bf16.h", "#include \"inner.h\"\n");
    WriteFile(dir_ / "sdk/inner.h", "struct __nv_bfloat16;\n");
  }
  Built Build(Jit& jit, const Config& config = kConfig, Variant variant = ScaleVariant()) {
    auto built = jit.Build(ScaleOp(), variant, config, "host");
    EXPECT_TRUE(built.ok()) << built.status();
    return built.ok() ? *built : Built{};
  }
  TempDir dir_;
};

TEST_F(JitTest, CompilesOnceThenServesFromCacheAcrossProcesses) {
  BinaryCache cache(dir_ / "cache");
  Parts first = MakeJit(dir_ / "sdk", &cache);
  Built cold = Build(*first.jit);
  EXPECT_FALSE(cold.cache_hit);
  EXPECT_TRUE(Build(*first.jit).cache_hit);
  BinaryCache again(dir_ / "cache");
  Parts second = MakeJit(dir_ / "sdk", &again);
  Built warm = Build(*second.jit);
  EXPECT_TRUE(warm.cache_hit);
  EXPECT_EQ(TextCompiler::compiles, 0);
  EXPECT_EQ(warm.binary->bytes, cold.binary->bytes);
  EXPECT_EQ(second.jit->Lookup(cold.binary->key), warm.binary);
}

TEST_F(JitTest, HitsAfterTheTreeAndTheCacheMoved) {
  {
    BinaryCache cache(dir_ / "cache");
    Parts parts = MakeJit(dir_ / "sdk", &cache);
    Build(*parts.jit);
  }
  std::filesystem::rename(dir_ / "cache", dir_ / "elsewhere");
  std::filesystem::rename(dir_ / "sdk", dir_ / "moved");
  BinaryCache cache(dir_ / "elsewhere");
  Parts parts = MakeJit(dir_ / "moved", &cache);
  Variant variant = ScaleVariant();
  variant.directory = "/new/place";
  variant.sources[0].path = "/new/place/scale.cu";
  EXPECT_TRUE(Build(*parts.jit, kConfig, variant).cache_hit);
}

TEST_F(JitTest, MissesWhenATransitivelyIncludedHeaderChanges) {
  BinaryCache cache(dir_ / "cache");
  Parts first = MakeJit(dir_ / "sdk", &cache);
  Build(*first.jit);
  WriteFile(dir_ / "sdk/inner.h", "struct __nv_bfloat16; // changed\n");
  EXPECT_TRUE(Build(*first.jit).cache_hit) << "one process, one snapshot";
  first.jit->Reload();
  EXPECT_FALSE(Build(*first.jit).cache_hit);
  // A touched time alone changes nothing.
  std::filesystem::last_write_time(
      dir_ / "sdk/inner.h", std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  first.jit->Reload();
  EXPECT_TRUE(Build(*first.jit).cache_hit);
}

TEST_F(JitTest, KeysEverythingThatCanChangeTheBinary) {
  Parts parts = MakeJit(dir_ / "sdk", nullptr);
  std::vector<Fingerprint> keys;
  auto key = [&](const Variant& variant, const Config& config) {
    auto k = parts.jit->Key(ScaleOp(), variant, config, "host");
    EXPECT_TRUE(k.ok()) << k.status();
    keys.push_back(*k);
  };
  key(ScaleVariant(), kConfig);
  key(ScaleVariant(), {{"BLOCK", 128}, {"UNROLL", 1}});
  Variant variant = ScaleVariant();
  variant.headers[0].content += "\n";
  key(variant, kConfig);
  variant = ScaleVariant();
  variant.sources[0].content += "\n";
  key(variant, kConfig);
  parts.compiler->identity_ = "text 2";
  key(ScaleVariant(), kConfig);
  parts.compiler->options_ = "other";
  key(ScaleVariant(), kConfig);
  for (size_t i = 0; i < keys.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " " << j;
  EXPECT_EQ(TextCompiler::compiles, 0);
}

TEST_F(JitTest, SharesOneBinaryBetweenVariantsOfEqualSource) {
  Parts parts = MakeJit(dir_ / "sdk", nullptr);
  Build(*parts.jit);
  Variant twin = ScaleVariant();
  twin.name = "twin";
  EXPECT_TRUE(
      Build(*parts.jit, {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 2}}, twin).cache_hit);
}

TEST_F(JitTest, CompilesEachColdKeyOnceForEightThreads) {
  for (bool on_disk : {true, false}) {
    BinaryCache cache(on_disk ? dir_ / "cache" : "");
    Parts parts = MakeJit(dir_ / "sdk", &cache);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (int64_t unroll = 1; unroll <= 4; ++unroll) {
          auto built = parts.jit->Build(ScaleOp(), ScaleVariant(),
                                        {{"BLOCK", 128}, {"UNROLL", unroll}}, "host");
          wrong += !built.ok() || built->binary->bytes.find("UNROLL = " + std::to_string(unroll)) ==
                                      std::string::npos;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(TextCompiler::compiles, 4);
  }
}

TEST_F(JitTest, TellsEveryWaiterOfAFailureAndRemembersIt) {
  BinaryCache cache(dir_ / "cache");
  Parts parts = MakeJit(dir_ / "sdk", &cache);
  const Config bad = {{"BLOCK", 64}, {"UNROLL", 4}};
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      auto built = parts.jit->Build(ScaleOp(), ScaleVariant(), bad, "host");
      failures += !built.ok() &&
                  What(built.status()) == "scale/plain {BLOCK=64,UNROLL=4} for host: no 64" &&
                  Fix(built.status()) == "say 128";
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 8);
  EXPECT_FALSE(parts.jit->Build(ScaleOp(), ScaleVariant(), bad, "host").ok());
  EXPECT_EQ(TextCompiler::compiles, 1);
  parts.jit->Reload();
  EXPECT_FALSE(parts.jit->Build(ScaleOp(), ScaleVariant(), bad, "host").ok());
  EXPECT_EQ(TextCompiler::compiles, 2);
}

TEST_F(JitTest, TurnsAThrowingCompilerIntoAnError) {
  Parts parts = MakeJit(dir_ / "sdk", nullptr);
  parts.compiler->throws = true;
  auto built = parts.jit->Build(ScaleOp(), ScaleVariant(), kConfig, "host");
  EXPECT_EQ(built.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(What(built.status())), HasSubstr("boom"));
}

TEST_F(JitTest, TellsEveryWaiterOfWhateverIsThrown) {
  BinaryCache cache(dir_ / "cache");
  Parts parts = MakeJit(dir_ / "sdk", &cache);
  parts.compiler->throws_a_number = true;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto built = parts.jit->Build(ScaleOp(), ScaleVariant(), kConfig, "host");
      failures += built.status().code() == absl::StatusCode::kInternal;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 4);
  // Its place is free again.
  parts.compiler->throws_a_number = false;
  parts.jit->Reload();
  EXPECT_FALSE(Build(*parts.jit).cache_hit);
}

TEST_F(JitTest, TriesAgainWhereMemoryRanOut) {
  Parts parts = MakeJit(dir_ / "sdk", nullptr);
  parts.compiler->memory_runs_out = true;
  const auto built = parts.jit->Build(ScaleOp(), ScaleVariant(), kConfig, "host");
  EXPECT_EQ(built.status().code(), absl::StatusCode::kResourceExhausted) << built.status();
  parts.compiler->memory_runs_out = false;
  EXPECT_FALSE(Build(*parts.jit).cache_hit);
}

TEST_F(JitTest, RunsNoMoreCompilersThanThereArePlacesWhoeverAsks) {
  Parts parts = MakeJit(dir_ / "sdk", nullptr, /*concurrent=*/true, /*max_compiles=*/3);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 12; ++t) {
    threads.emplace_back([&, t] { Build(*parts.jit, {{"BLOCK", 128}, {"UNROLL", t}}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(TextCompiler::compiles, 12);
  EXPECT_LE(TextCompiler::most_inside, 3);
}

// One place each, one directory: threads wait for threads, and for the other's locks.
TEST_F(JitTest, WaitersHoldNoPlaceThatTheCompileNeedsWhichTheyWaitFor) {
  constexpr int64_t kKeys = 12;
  BinaryCache one_cache(dir_ / "cache"), other_cache(dir_ / "cache");
  Parts one = MakeJit(dir_ / "sdk", &one_cache, /*concurrent=*/true, /*max_compiles=*/1);
  Parts other = MakeJit(dir_ / "sdk", &other_cache, /*concurrent=*/false, /*max_compiles=*/1);
  std::vector<std::thread> threads;
  for (Jit* jit : {one.jit.get(), other.jit.get()}) {
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, jit, t] {
        for (int64_t i = 0; i < kKeys; ++i) {
          const int64_t unroll = t % 2 == 0 ? i : kKeys - 1 - i;
          Build(*jit, {{"BLOCK", 128}, {"UNROLL", unroll}});
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(TextCompiler::compiles, kKeys);
}

TEST_F(JitTest, SerialisesACompilerThatIsNotConcurrent) {
  for (bool concurrent : {false, true}) {
    Parts parts = MakeJit(dir_ / "sdk", nullptr, concurrent);
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] { Build(*parts.jit, {{"BLOCK", 128}, {"UNROLL", t}}); });
    }
    for (std::thread& thread : threads) thread.join();
    if (!concurrent) {
      EXPECT_EQ(TextCompiler::most_inside, 1);
    }
    EXPECT_EQ(TextCompiler::compiles, 4);
  }
}

TEST_F(JitTest, RebuildsADamagedEntry) {
  BinaryCache cache(dir_ / "cache");
  Parts first = MakeJit(dir_ / "sdk", &cache);
  Fingerprint key = Build(*first.jit).binary->key;
  std::string whole = ReadFile(cache.PathOf(key));
  WriteFile(cache.PathOf(key), whole.substr(0, whole.size() / 2));
  BinaryCache again(dir_ / "cache");
  Parts second = MakeJit(dir_ / "sdk", &again);
  EXPECT_FALSE(Build(*second.jit).cache_hit);
  EXPECT_EQ(again.stats().corrupt, 1);
  EXPECT_EQ(ReadFile(cache.PathOf(key)), whole);
}

TEST_F(JitTest, SaysWhyATargetIsRefused) {
  Parts parts = MakeJit(dir_ / "sdk", nullptr);
  auto built = parts.jit->Build(ScaleOp(), ScaleVariant(), kConfig, "sm_90a");
  EXPECT_EQ(built.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(What(built.status())), HasSubstr("text is for the host only"));
  Variant variant = ScaleVariant();
  variant.targets = {"sm_90a"};
  variant.host_skip_reason = "uses wgmma";
  built = parts.jit->Build(ScaleOp(), variant, kConfig, "host");
  EXPECT_EQ(built.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(What(built.status())), HasSubstr("uses wgmma"));
  std::string reason;
  EXPECT_FALSE(Jit({}, nullptr).CanCompile("host", &reason));
  EXPECT_THAT(reason, HasSubstr("no compiler"));
}

}  // namespace
}  // namespace kvr
