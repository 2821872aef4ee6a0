// SPDX-License-Identifier: Apache-2.0
//
// Two CUDA releases side by side in one cache. Takes the toolkits in /usr/local and the wheels of
// KVR_WHEELS; skipped where they are not two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "jit/cache_layer.h"
#include "jit/jit.h"
#include "jit/nvrtc/nvrtc.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

std::unique_ptr<Compiler> Nvrtc(const std::string& home) {
  auto compiler = MakeNvrtcCompiler({.sdk_dir = KVR_SOURCE_DIR "/sdk/device", .cuda_home = home});
  return compiler.ok() ? *std::move(compiler) : nullptr;
}

TEST(TwoToolkits, ShareNoEntry) {
  std::vector<std::string> places = {WheelsDirectory()};
  for (const auto& entry : std::filesystem::directory_iterator("/usr/local")) {
    if (entry.path().filename().string().rfind("cuda", 0) == 0) places.push_back(entry.path());
  }
  std::map<std::string, std::string> homes;  // by identity
  for (const std::string& place : places) {
    if (place.empty()) continue;
    if (const auto compiler = Nvrtc(place)) homes.emplace(compiler->identity(), place);
  }
  if (homes.size() < 2) GTEST_SKIP() << "one release of NVRTC here; set KVR_WHEELS to another's";

  TempDir dir;
  std::set<Fingerprint> keys, sources;
  for (const bool warm : {false, true}) {
    for (const auto& [identity, home] : homes) {
      BinaryCache cache(dir / "cache");
      std::vector<std::unique_ptr<Compiler>> compilers;
      compilers.push_back(Nvrtc(home));
      Jit jit(std::move(compilers), &cache);
      const absl::StatusOr<Built> built =
          jit.Build(ScaleOp(), ScaleVariant(), {{"BLOCK", 128}, {"UNROLL", 4}}, "sm_90a");
      ASSERT_TRUE(built.ok()) << built.status();
      EXPECT_EQ(built->cache_hit, warm) << identity;
      EXPECT_EQ(built->binary->compiler, identity);
      keys.insert(built->binary->key);
      sources.insert(built->binary->source);
    }
  }
  EXPECT_EQ(keys.size(), homes.size());
  EXPECT_EQ(sources.size(), 1u) << "the variant is one";
}

}  // namespace
}  // namespace kvr
