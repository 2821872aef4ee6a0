// SPDX-License-Identifier: Apache-2.0
//
// The decode bench on the host device, tiny: what it counts and what it calls an error. What is
// fast is nobody's business here.
#include "api/decode/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "api/decode/schedule.h"
#include "api/host_library.h"
#include "core/status.h"
#include "registry/selection_file.h"

namespace kvr {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

class DecodeBenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HostLibraryPath().ok()) GTEST_SKIP() << HostLibraryPath().status();
    cache_ = std::filesystem::temp_directory_path() / ("kvr-decode-" + std::to_string(getpid()));
    auto platform = Platform::Open(
        {.plugin_roots = {KVR_SOURCE_DIR "/tests/tuner/faulty"}, .cache_dir = cache_});
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = *std::move(platform);
  }
  void TearDown() override { std::filesystem::remove_all(cache_); }

  // Batches of 3 in buckets of 4, then 1.
  static DecodeBenchOptions Tiny() {
    return {.device = "host",
            .shape = *FindDecodeShape("tiny"),
            .layers = 2,
            .input_sets = 2,
            .concurrency = {3},
            .requests = 7,
            .max_tokens = 2};
  }
  static absl::Status Ready(DecodeBench& bench) {
    KVR_RETURN_IF_ERROR(bench.Load());
    return bench.Fill();
  }
  std::unique_ptr<DecodeBench> Open(const DecodeBenchOptions& options) {
    auto bench = DecodeBench::Open(*platform_, options);
    EXPECT_TRUE(bench.ok()) << bench.status();
    if (!bench.ok()) return nullptr;
    const absl::Status ready = Ready(**bench);
    EXPECT_EQ(ready, absl::OkStatus());
    return ready.ok() ? *std::move(bench) : nullptr;
  }
  std::string cache_;
  std::unique_ptr<Platform> platform_;
};

TEST_F(DecodeBenchTest, EveryRequestGetsItsTokensAndEveryRowIsRight) {
  const std::unique_ptr<DecodeBench> bench = Open(Tiny());
  ASSERT_NE(bench, nullptr);
  const absl::StatusOr<DecodeRun> run = bench->Run(0, 3);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->tokens, 14);
  EXPECT_EQ(run->steps, 6);
  EXPECT_EQ(run->errors, 0) << run->what;
  EXPECT_EQ(run->checked_steps, 3);                       // both sets at 3, one at 1
  EXPECT_THAT(run->active_experts, AllOf(Ge(2), Le(6)));  // 2 of each of 3 tokens
  EXPECT_GT(run->tokens_per_s, 0);
  EXPECT_GE(run->p99_latency_s, run->p50_latency_s);
}

TEST_F(DecodeBenchTest, WhatServesIsToldByBucket) {
  DecodeBenchOptions options = Tiny();
  options.a.parts = {"mla_sparse_decode/w8{TARGET_CTAS=512}", "mla_sparse_decode/MIN_CHUNK=16"};
  const std::unique_ptr<DecodeBench> bench = Open(options);
  ASSERT_NE(bench, nullptr);
  const std::vector<DecodeServed>& served = bench->side(0).served();
  ASSERT_EQ(served.size(), 2);
  EXPECT_EQ(served[0].variant, "w8");
  EXPECT_EQ(served[0].config.at("TARGET_CTAS"), 512);
  EXPECT_EQ(served[0].config.at("MIN_CHUNK"), 16);
  EXPECT_THAT(served[0].buckets, ElementsAre(1, 4));
  EXPECT_THAT(served[1].why, HasSubstr("baseline"));
  EXPECT_EQ(bench->side(0).digest(), "");
}

TEST_F(DecodeBenchTest, ASelectionFileServesUnderItsDigest) {
  const absl::StatusOr<std::unique_ptr<Device>> device = platform_->OpenDevice("host");
  ASSERT_TRUE(device.ok()) << device.status();
  const Catalog::Op& op = **platform_->catalog().FindOp(kDecodeAttention);
  const VariantPtr w8 = *platform_->catalog().Find(kDecodeAttention, "w8");
  GenerationBuilder builder((*device)->info().model, (*device)->info().target);
  builder.SetPolicy(kDecodeAttention, op.policy);
  Config config = DefaultConfig(w8->tunables);
  config["TARGET_CTAS"] = 512;
  const BucketedKey key = *op.policy.FromNamed({{"topk", 8}});
  ASSERT_EQ(builder.Select(kDecodeAttention, key, {.variant = w8, .config = config}),
            absl::OkStatus());
  const GenerationPtr generation = builder.Build(1);
  std::filesystem::create_directories(cache_);
  const std::string path = cache_ + "/selections.json";
  ASSERT_EQ(WriteSelectionFile(*generation, path), absl::OkStatus());

  DecodeBenchOptions options = Tiny();
  options.b = options.a;
  ASSERT_EQ(AddChange(path, &*options.b), absl::OkStatus());
  const std::unique_ptr<DecodeBench> bench = Open(options);
  ASSERT_NE(bench, nullptr);
  EXPECT_EQ(bench->side(0).served()[0].variant, "baseline");
  EXPECT_EQ(bench->side(1).served()[0].variant, "w8");
  EXPECT_EQ(bench->side(1).served()[0].config, config);
  EXPECT_EQ(bench->side(1).digest(), generation->digest().Hex());
  const absl::StatusOr<DecodeRun> run = bench->Run(1, 3);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->errors, 0) << run->what;
}

TEST_F(DecodeBenchTest, UnwrittenOutputsAreErrors) {
  DecodeBenchOptions options = Tiny();
  options.a.parts = {"mla_sparse_decode/faulty{MODE=8}"};
  const std::unique_ptr<DecodeBench> bench = Open(options);
  ASSERT_NE(bench, nullptr);
  const absl::StatusOr<DecodeRun> run = bench->Run(0, 3);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_GT(run->errors, 0);
  EXPECT_THAT(run->what, AllOf(HasSubstr("mla_sparse_decode, layer 0: "), HasSubstr("nan")));

  options.b = options.a;
  options.a.parts.clear();
  const std::unique_ptr<DecodeBench> both = Open(options);
  ASSERT_NE(both, nullptr);
  const absl::StatusOr<DecodeComparison> ab = both->Compare({.rules = {.rounds = 1}});
  ASSERT_TRUE(ab.ok()) << ab.status();
  EXPECT_EQ(ab->verdict.verdict, stats::Verdict::kInvalid);
  EXPECT_THAT(ab->verdict.errors, ElementsAre(0, 1));
  EXPECT_THAT(ab->what, HasSubstr("mla_sparse_decode"));
}

TEST_F(DecodeBenchTest, BothSidesTakeAsManyStepsOfEachInputSet) {
  DecodeBenchOptions options = Tiny();
  options.input_sets = 3;
  options.concurrency = {2, 3};
  options.b = options.a;
  const std::unique_ptr<DecodeBench> bench = Open(options);
  ASSERT_NE(bench, nullptr);
  const absl::StatusOr<DecodeComparison> quick =
      bench->Compare({.rules = {.rounds = 2}, .block = 4, .seed = 5});
  ASSERT_TRUE(quick.ok()) << quick.status();
  EXPECT_EQ(quick->block, 6);
  EXPECT_EQ(quick->seed, 5);
  ASSERT_EQ(quick->verdict.buckets.size(), 2);
  EXPECT_EQ(quick->verdict.buckets[0].name, "2");
  for (const LiveBucket& bucket : quick->verdict.buckets) {
    EXPECT_THAT(bucket.steps, ElementsAre(2 * 2 * 6, 2 * 2 * 6));
  }
  EXPECT_THAT(quick->verdict.errors, ElementsAre(0, 0));

  const absl::StatusOr<DecodeComparison> ship =
      bench->Compare({.rules = {.ship = true, .rounds = 1, .sessions = 2}, .block = 6});
  ASSERT_TRUE(ship.ok()) << ship.status();
  EXPECT_EQ(ship->verdict.rounds, 2);
  EXPECT_FALSE(ship->verdict.ship);
}

TEST_F(DecodeBenchTest, CancellingEndsItEarly) {
  DecodeBenchOptions options = Tiny();
  std::atomic<bool> cancel = false;
  options.cancel = &cancel;
  options.b = options.a;
  const std::unique_ptr<DecodeBench> bench = Open(options);
  ASSERT_NE(bench, nullptr);
  cancel = true;
  const absl::StatusOr<DecodeRun> run = bench->Run(0, 3);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->cancelled);
  EXPECT_EQ(run->tokens, 0);
  EXPECT_EQ(run->checked_steps, 0);
  EXPECT_EQ(run->p50_step_us, 0);
  const absl::StatusOr<DecodeComparison> ab = bench->Compare({});
  ASSERT_TRUE(ab.ok()) << ab.status();
  EXPECT_TRUE(ab->cancelled);
  EXPECT_EQ(ab->verdict.verdict, stats::Verdict::kInconclusive);
}

TEST_F(DecodeBenchTest, WhatIsInterruptedWhileItIsFilledStopsBetweenTensors) {
  class CancelAt : public Progress {
   public:
    explicit CancelAt(std::atomic<bool>* cancel) : cancel_(cancel) {}
    void Update(const ProgressUpdate& update) override {
      if (update.phase != Phase::kFill) return;
      last_ = update;
      if (update.done == 3) *cancel_ = true;
    }
    void Note(std::string_view) override {}
    ProgressUpdate last_;

   private:
    std::atomic<bool>* const cancel_;
  };
  std::atomic<bool> cancel = false;
  CancelAt progress(&cancel);
  DecodeBenchOptions options = Tiny();
  options.cancel = &cancel;
  options.progress = &progress;
  const auto bench = DecodeBench::Open(*platform_, options);
  ASSERT_TRUE(bench.ok()) << bench.status();
  EXPECT_EQ(Ready(**bench).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(progress.last_.done, 3);
  EXPECT_GT(progress.last_.total, 3);
}

TEST_F(DecodeBenchTest, WhatDoesNotFitIsRefusedBeforeItIsFilled) {
  DecodeBenchOptions options = Tiny();
  options.shape.moe["num_experts"] = 256;
  options.shape.moe["hidden"] = 1 << 16;
  options.shape.moe["inner"] = 1 << 16;
  options.shape.moe["gate_up"] = 1 << 17;
  options.layers = 8;
  const absl::Status status = DecodeBench::Open(*platform_, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tiny with 8 layers needs 56"), HasSubstr("GB are free")));
}

TEST_F(DecodeBenchTest, AVariantTakesThePlaceOfTheOthersWithItsValues) {
  DecodeBenchOptions options = Tiny();
  options.a.parts = {"mla_sparse_decode/w8{TARGET_CTAS=512}", "mla_sparse_decode/MIN_CHUNK=16"};
  options.b = options.a;
  options.b->changes = {"mla_sparse_decode/w8"};
  const auto bench = DecodeBench::Open(*platform_, options);
  ASSERT_TRUE(bench.ok()) << bench.status();
  ASSERT_EQ((*bench)->Load(), absl::OkStatus());
  EXPECT_EQ((*bench)->side(0).served()[0].config.at("TARGET_CTAS"), 512);
  EXPECT_NE((*bench)->side(1).served()[0].config.at("TARGET_CTAS"), 512);
  EXPECT_EQ((*bench)->side(1).served()[0].config.at("MIN_CHUNK"), 16);
}

TEST_F(DecodeBenchTest, WrongOptionsSayWhatWouldBeRight) {
  const auto refusal = [&](auto change) {
    DecodeBenchOptions options = Tiny();
    change(options);
    const auto bench = DecodeBench::Open(*platform_, options);
    return std::string((bench.ok() ? (*bench)->Load() : bench.status()).message());
  };
  using O = DecodeBenchOptions;
  EXPECT_THAT(refusal([](O& o) { o.concurrency = {513}; }), HasSubstr("1 to 512"));
  EXPECT_THAT(refusal([](O& o) { o.input_sets = 1; }), HasSubstr("2 or more"));
  EXPECT_THAT(refusal([](O& o) { o.device = "null"; }), HasSubstr("cuda or host"));
  EXPECT_THAT(refusal([](O& o) { o.shape.moe["top_k"] = 9; }), HasSubstr("top_k"));
  EXPECT_THAT(refusal([](O& o) { o.a.parts = {"moe_decode/w8"}; }), HasSubstr("topk"));
  EXPECT_THAT(refusal([](O& o) { o.a.parts = {"mla_sparse_decode/w8{BLOCK_H=16"}; }),
              HasSubstr("closing brace"));
  EXPECT_THAT(refusal([](O& o) { o.a.parts = {"mla_sparse_decode/TARGET_CTAS=7"}; }),
              HasSubstr("legal values"));
  DecodeContestant contestant;
  EXPECT_THAT(std::string(AddChange("w8", &contestant).message()), HasSubstr("no selection file"));
}

TEST(DecodeShape, AxesAreChangedByName) {
  DecodeShape shape = *FindDecodeShape("qwen3-30b-a3b");
  EXPECT_EQ(shape.moe.at("gate_up"), 1536);
  EXPECT_EQ(ChangeDecodeAxes("moe_decode/inner=512,correlation=0", &shape), absl::OkStatus());
  EXPECT_EQ(shape.moe.at("gate_up"), 1024);
  EXPECT_EQ(ChangeDecodeAxes("mla_sparse_decode/topk=4096", &shape), absl::OkStatus());
  EXPECT_EQ(shape.context, 4096);  // a row's slots are distinct
  EXPECT_THAT(std::string(ChangeDecodeAxes("topk=1", &shape).message()), HasSubstr("moe_decode/"));
  EXPECT_THAT(std::string(ChangeDecodeAxes("null/n=1", &shape).message()), HasSubstr("moe_decode"));
  EXPECT_THAT(std::string(ChangeDecodeAxes("moe_decode/num_tokens=1", &shape).message()),
              HasSubstr("the batch gives"));
  EXPECT_FALSE(FindDecodeShape("gpt").ok());
}

}  // namespace
}  // namespace kvr
