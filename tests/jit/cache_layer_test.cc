// SPDX-License-Identifier: Apache-2.0
//
// Read-only layers: looked up first, never written; exported, shipped and imported; and what a
// machine without a compiler finds in them.
#include "jit/cache_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/status.h"
#include "tests/jit/cache_fixtures.h"

namespace kvr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CacheLayers : public testing::Test {
 protected:
  CacheOptions Options(const std::vector<std::string>& layers, const std::string& root = "user") {
    CacheOptions options;
    if (!root.empty()) options.root = dir_ / root;
    for (const std::string& layer : layers) options.layers.push_back(dir_ / layer);
    options.warn = [this](std::string_view text) { warnings_.emplace_back(text); };
    return options;
  }
  void Fill(const std::string& root, const std::string& seed, const std::string& label = "op/v {}",
            const std::string& target = "sm_90a") {
    BinaryCache(dir_ / root).Put(SomeBinary(seed, 300, target), label);
  }
  // Everything under `root`: names, sizes and times.
  std::string Picture(const std::string& root) {
    std::string picture;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / root)) {
      struct stat info;
      lstat(entry.path().c_str(), &info);
      picture += entry.path().string() + " " + std::to_string(info.st_size) + " " +
                 std::to_string(info.st_mtim.tv_nsec) + "\n";
    }
    return picture;
  }
  std::string PathIn(const std::string& root, const std::string& seed) {
    return BinaryCache(dir_ / root).PathOf(FingerprintOf(seed));
  }
  FastDir dir_;
  std::vector<std::string> warnings_;
};

TEST_F(CacheLayers, AreLookedUpInOrderAndNeverWritten) {
  Fill("first", "a");
  Fill("second", "b");
  Fill("user", "c");
  const std::string before = Picture("first") + Picture("second");
  BinaryCache cache(Options({"first", "second"}));
  for (const char* seed : {"a", "b", "c"}) EXPECT_NE(cache.Get(FingerprintOf(seed)), nullptr);
  EXPECT_EQ(cache.stats().layer_hits, 2);
  EXPECT_EQ(cache.stats().disk_hits, 1);
  cache.Put(SomeBinary("d"), "");
  EXPECT_TRUE(std::filesystem::exists(PathIn("user", "d")));
  EXPECT_EQ(Picture("first") + Picture("second"), before);
  EXPECT_THAT(cache.List(), SizeIs(4));
  EXPECT_EQ(cache.List()[0].layer, dir_ / "first");
}

TEST_F(CacheLayers, ADamagedEntryOfALayerStaysThereAndTheNextHasIt) {
  Fill("layer", "a");
  WriteFile(PathIn("layer", "a"), "garbage");
  Fill("user", "a");
  const std::string before = Picture("layer");
  BinaryCache cache(Options({"layer"}));
  EXPECT_NE(cache.Get(FingerprintOf("a")), nullptr);
  EXPECT_EQ(cache.stats().corrupt, 1);
  EXPECT_EQ(cache.stats().quarantined, 0);
  EXPECT_EQ(Picture("layer"), before);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(dir_ / "layer")));
}

TEST_F(CacheLayers, OneThatIsNotThereIsSaidOnce) {
  BinaryCache cache(Options({"nowhere"}));
  EXPECT_EQ(cache.Get(FingerprintOf("a")), nullptr);
  EXPECT_EQ(cache.Get(FingerprintOf("b")), nullptr);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("nowhere")));
}

TEST_F(CacheLayers, ServeWithoutAUsersDirectory) {
  Fill("layer", "a");
  BinaryCache cache(Options({"layer"}, ""));
  EXPECT_NE(cache.Get(FingerprintOf("a")), nullptr);
  cache.Put(SomeBinary("b"), "");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CacheLayers, ExportCopiesWhatTheFilterTakesWithAManifest) {
  Fill("user", "a", "attention/w8 {X=1}");
  Fill("user", "b", "attention/w8 {X=1}", "sm_120a");
  Fill("layer", "c", "gather/s3 {}");
  Fill("user", "d", "gather/s3 {}");
  WriteFile(PathIn("user", "d"), "garbage");
  BinaryCache cache(Options({"layer"}));
  const absl::StatusOr<Transfer> all = ExportLayer(cache, dir_ / "all", {});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->copied, 3);
  ASSERT_THAT(all->refused, SizeIs(1));
  EXPECT_EQ(all->refused[0].first, PathIn("user", "d"));
  const absl::StatusOr<LayerManifest> manifest = ReadManifest(dir_ / "all");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->targets(), ElementsAre("sm_120a", "sm_90a"));
  EXPECT_THAT(manifest->compilers(), ElementsAre("test 1"));
  EXPECT_EQ(manifest->binaries[0].op(), "attention");
  EXPECT_EQ(manifest->binaries[2].source, SomeBinary("c")->source);

  // A layer can be added to; what is there stays.
  LayerFilter some{.targets = {"sm_90a"}, .ops = {"attention"}};
  EXPECT_EQ(ExportLayer(cache, dir_ / "some", some)->copied, 1);
  EXPECT_EQ(ReadManifest(dir_ / "some")->binaries.size(), 1u);
  some.targets = {"sm_90a", "sm_120a"};
  const Transfer again = *ExportLayer(cache, dir_ / "some", some);
  EXPECT_EQ(again.copied, 1);
  EXPECT_EQ(again.present, 1);
  EXPECT_EQ(ReadManifest(dir_ / "some")->binaries.size(), 2u);

  // It is a cache directory and may be moved.
  std::filesystem::rename(dir_ / "all", dir_ / "moved");
  BinaryCache server(Options({"moved"}, "server"));
  EXPECT_NE(server.Get(FingerprintOf("c")), nullptr);

  WriteFile(dir_ / "home/notes", "mine");
  const absl::Status refused = ExportLayer(cache, dir_ / "home", {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(What(refused)), HasSubstr("notes"));
}

TEST_F(CacheLayers, ImportVerifiesEveryEntryAndRefusesTheBadByName) {
  for (const char* seed : {"a", "b", "c", "d", "e"}) Fill("made", seed);
  BinaryCache maker(Options({}, "made"));
  ASSERT_EQ(ExportLayer(maker, dir_ / "layer", {})->copied, 5);
  WriteFile(PathIn("layer", "a"), ReadFile(PathIn("layer", "a")).substr(0, 100));
  std::filesystem::remove(PathIn("layer", "b"));
  ASSERT_EQ(chmod(PathIn("layer", "c").c_str(), 0666), 0);
  Fill("user", "d");
  BinaryCache cache(Options({}));
  const absl::StatusOr<Transfer> transfer = ImportLayer(dir_ / "layer", cache, {});
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  EXPECT_EQ(transfer->copied, 1);
  EXPECT_EQ(transfer->present, 1);
  std::map<std::string, std::string> refused(transfer->refused.begin(), transfer->refused.end());
  EXPECT_THAT(refused, SizeIs(3));
  EXPECT_THAT(refused[PathIn("layer", "a")], HasSubstr("undamaged"));
  EXPECT_THAT(refused[PathIn("layer", "b")], HasSubstr("missing"));
  EXPECT_THAT(refused[PathIn("layer", "c")], HasSubstr("writable by others"));
  EXPECT_NE(cache.Get(FingerprintOf("e")), nullptr);
  EXPECT_EQ(cache.Get(FingerprintOf("a")), nullptr);
  EXPECT_FALSE(ImportLayer(dir_ / "nowhere", cache, {}).ok());
}

TEST_F(CacheLayers, AManifestThatIsNoneIsRefusedWithTheReason) {
  EXPECT_TRUE(absl::IsNotFound(ReadManifest(dir_.path()).status()));
  const char* const kBad[] = {
      "",
      "{",
      "[]",
      "{}",
      R"({"kind": "kvr-cache-layer", "schema": 2, "binaries": []})",
      R"({"kind": "other", "schema": 1, "binaries": []})",
      R"({"kind": "kvr-cache-layer", "schema": 1})",
      R"({"kind": "kvr-cache-layer", "schema": 1, "binaries": [7]})",
      R"({"kind": "kvr-cache-layer", "schema": 1, "binaries": [{"key": "12"}]})",
      R"({"kind": 5, "schema": "1", "binaries": {}})"};
  for (const char* text : kBad) {
    WriteFile(dir_ / "manifest.json", text);
    const absl::Status status = ReadManifest(dir_.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_THAT(std::string(What(status)), HasSubstr("manifest.json")) << text;
    // Who uses the layer is told and goes without.
    BinaryCache cache(dir_.path(), [&](std::string_view said) { warnings_.emplace_back(said); });
    EXPECT_EQ(cache.FindSource(FingerprintOf("s"), "sm_90a"), std::nullopt);
  }
  EXPECT_EQ(warnings_.size(), std::size(kBad));
}

// Made where there is a compiler, served where there is none.
TEST_F(CacheLayers, AMachineWithoutACompilerBuildsFromALayer) {
  {
    BinaryCache cache(Options({}, "made"));
    CountingJit maker(std::make_unique<CountingCompiler>("", "counting 1", "sm_90a"), &cache);
    ASSERT_TRUE(BuildNumber(*maker.jit, 0, "sm_90a").ok());
    ASSERT_TRUE(BuildNumber(*maker.jit, 1, "sm_90a").ok());
    ASSERT_EQ(ExportLayer(cache, dir_ / "layer", {})->copied, 2);
  }
  BinaryCache cache(Options({"layer"}));
  CountingJit server(nullptr, &cache);
  const absl::StatusOr<Built> built = BuildNumber(*server.jit, 1, "sm_90a");
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_TRUE(built->cache_hit);
  EXPECT_THAT(built->binary->bytes, HasSubstr(BlockOf(1)));
  EXPECT_EQ(server.jit->stats().compiles, 0);
  EXPECT_EQ(*server.jit->Key(ScaleOp(), ScaleVariant(), {{"BLOCK", 33}, {"UNROLL", 1}}, "sm_90a"),
            built->binary->key);
  // Another target, another config, another source: not there, and the error says what is missing.
  EXPECT_FALSE(BuildNumber(*server.jit, 1, "sm_80").ok());
  EXPECT_FALSE(BuildNumber(*server.jit, 2, "sm_90a").ok());
  Variant changed = ScaleVariant();
  changed.headers[0].content += "// changed\n";
  const absl::Status missing =
      server.jit->Build(ScaleOp(), changed, {{"BLOCK", 32}, {"UNROLL", 1}}, "sm_90a").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(What(missing)), HasSubstr("nothing here compiles for sm_90a"));
}

TEST_F(CacheLayers, AManifestThatLiesGivesNoWrongBinary) {
  {
    BinaryCache cache(Options({}, "made"));
    CountingJit maker(std::make_unique<CountingCompiler>("", "counting 1", "sm_90a"), &cache);
    ASSERT_TRUE(BuildNumber(*maker.jit, 0, "sm_90a").ok());
    ASSERT_TRUE(BuildNumber(*maker.jit, 1, "sm_90a").ok());
    ASSERT_TRUE(ExportLayer(cache, dir_ / "layer", {}).ok());
  }
  const LayerManifest manifest = *ReadManifest(dir_ / "layer");
  ASSERT_THAT(manifest.binaries, SizeIs(2));
  std::string json = ReadFile(dir_ / "layer/manifest.json");
  const std::string one = manifest.binaries[0].source.Hex(),
                    two = manifest.binaries[1].source.Hex();
  Replace(&json, one, "swapped");
  Replace(&json, two, one);
  Replace(&json, "swapped", two);
  WriteFile(dir_ / "layer/manifest.json", json);
  BinaryCache cache(Options({"layer"}));
  CountingJit server(nullptr, &cache);
  EXPECT_EQ(BuildNumber(*server.jit, 0, "sm_90a").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CacheLayers, TwoCompilersSideBySideShareNothing) {
  std::vector<Fingerprint> keys;
  for (const std::string identity : {"nvrtc 12.9 build-id aa", "nvrtc 13.0 build-id bb"}) {
    for (int round = 0; round < 2; ++round) {
      BinaryCache cache(Options({}, "made"));
      CountingJit parts(std::make_unique<CountingCompiler>("", identity, "sm_90a"), &cache);
      const absl::StatusOr<Built> built = BuildNumber(*parts.jit, 0, "sm_90a");
      ASSERT_TRUE(built.ok()) << built.status();
      EXPECT_EQ(built->cache_hit, round == 1) << identity;
      EXPECT_EQ(built->binary->compiler, identity);
      EXPECT_THAT(built->binary->bytes, HasSubstr(identity));
      if (round == 0) keys.push_back(built->binary->key);
    }
  }
  EXPECT_NE(keys[0], keys[1]);
  // Where there is no compiler, the last by name.
  BinaryCache maker(Options({}, "made"));
  ASSERT_EQ(ExportLayer(maker, dir_ / "layer", {})->copied, 2);
  BinaryCache cache(Options({"layer"}));
  CountingJit server(nullptr, &cache);
  EXPECT_EQ((*BuildNumber(*server.jit, 0, "sm_90a")).binary->key, keys[1]);
}

TEST(DefaultCacheOptions, ReadTheEnvironment) {
  setenv("KVR_CACHE_LAYERS", "/a::/b c", 1);
  setenv("KVR_CACHE_MAX_BYTES", "12345", 1);
  EXPECT_THAT(DefaultCacheOptions("/r", nullptr).layers, testing::IsSupersetOf({"/a", "/b c"}));
  EXPECT_EQ(DefaultCacheOptions("/r", nullptr).max_bytes, 12345);
  EXPECT_EQ(DefaultCacheOptions("/r", nullptr).root, "/r");
  setenv("KVR_CACHE_MAX_BYTES", "2 GiB", 1);
  std::string warning;
  EXPECT_EQ(DefaultCacheOptions("/r", [&](std::string_view text) { warning = text; }).max_bytes,
            int64_t{2} << 30);
  EXPECT_THAT(warning, HasSubstr("2 GiB"));
  unsetenv("KVR_CACHE_LAYERS");
  unsetenv("KVR_CACHE_MAX_BYTES");
}

}  // namespace
}  // namespace kvr
