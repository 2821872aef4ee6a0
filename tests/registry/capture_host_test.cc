// SPDX-License-Identifier: Apache-2.0
//
// Captures and swaps with kernels that really run, on the host device: every replay computes what
// the generation says that its executable had when it was launched.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "core/status.h"
#include "core/strings.h"
#include "registry/capture_scope.h"
#include "registry/dispatcher.h"
#include "registry/publication.h"
#include "tests/devices/host/host_fixture.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

constexpr int64_t kElements = 300;

template <typename T>
T Must(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return *std::move(value);
}

// out[i] = alpha * x[i] + `constant`, by one kernel.
std::shared_ptr<Variant> Single(const std::string& name, int constant, bool baseline = false) {
  std::shared_ptr<Variant> variant = AxpyVariant(name, baseline);
  variant->targets = {"host"};
  KernelSpec& kernel = variant->plan.kernels[0];
  kernel.entry = StrCat(name, "<BLOCK>");
  kernel.args.erase(kernel.args.begin() + 4);
  variant->plan.regions.clear();
  variant->sources[0].content =
      StrCat("template <int B>\n__global__ void ", name,
             "(const float* x, const float* y, float alpha, float* out, int n) {\n"
             "  const int i = blockIdx.x * B + threadIdx.x;\n"
             "  if (i < n) out[i] = alpha * x[i] + ",
             constant, ";\n}\n");
  return variant;
}

// The same by two kernels, which count launches since the workspace was cleared: one.
std::shared_ptr<Variant> Counting(const std::string& name, int constant) {
  std::shared_ptr<Variant> variant = AxpyVariant(name);
  variant->targets = {"host"};
  PlanProgram& plan = variant->plan;
  plan.kernels.push_back(plan.kernels[0]);
  plan.kernels[0].name = plan.kernels[0].entry = StrCat(name, "_count<BLOCK>");
  plan.kernels[1].name = plan.kernels[1].entry = StrCat(name, "_write<BLOCK>");
  const std::string rest =
      "(const float* x, const float* y, float alpha, float* out, int* counts, int n) {\n"
      "  const int i = blockIdx.x * B + threadIdx.x;\n  ";
  variant->sources[0].content =
      StrCat("template <int B>\n__global__ void ", name, "_count", rest,
             "if (i == 0) counts[0] += 1;\n}\ntemplate <int B>\n__global__ void ", name, "_write",
             rest, "if (i < n) out[i] = alpha * x[i] + ", constant - 1, " + counts[0];\n}\n");
  return variant;
}

class HostCaptureTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kLayers = 3;
  HostCaptureTest() {
    std::vector<std::unique_ptr<Operation>> operations;
    operations.push_back(std::make_unique<AxpyOp>());
    catalog = std::make_unique<Catalog>(Must(Catalog::Create(std::move(operations))));
    for (const auto& variant :
         {Single("plain", 1000, true), Single("other", 2000), Counting("counting", 3000)}) {
      EXPECT_TRUE(catalog->Admit(variant).ok());
    }
    std::vector<std::unique_ptr<Compiler>> compilers;
    compilers.push_back(OpenHostCompiler(KVR_SOURCE_DIR "/sdk/device"));
    jit = std::make_unique<Jit>(std::move(compilers), &cache);
    dispatcher = std::make_unique<Dispatcher>(*catalog, device, *jit, DispatcherOptions{});
    const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", kElements}}});
    EXPECT_TRUE(report->ready()) << report->Text();
    EXPECT_TRUE(dispatcher->PrepareStream(stream).ok());
    for (int layer = 0; layer < kLayers; ++layer) {
      layers.push_back(std::make_unique<AxpyTensors>(kElements));
      for (int64_t i = 0; i < kElements; ++i) {
        layers.back()->memory[static_cast<size_t>(i)] = static_cast<float>(i + layer);
      }
    }
  }
  ~HostCaptureTest() override {
    EXPECT_TRUE(device.Synchronize(stream).ok());
    device.DestroyStream(stream);
  }

  // Generation `number` of a kind has a digest of its own.
  GenerationPtr Generation(const std::string& name, int64_t number) {
    const OpSpec& spec = catalog->ops()[0]->spec();
    const KeyPolicy policy = Must(KeyPolicy::Parse("n:pow2", spec));
    GenerationBuilder builder(device.info().model, device.info().target);
    builder.SetPolicy("axpy", policy);
    const auto select = [&](int64_t n, const std::string& variant_name) {
      const VariantPtr variant = Must(catalog->Find("axpy", variant_name));
      const Selection selection{.variant = variant, .config = DefaultConfig(variant->tunables)};
      const BucketedKey key = policy.Bucket(Must(ResolveAxes(spec, {{"n", n}})));
      EXPECT_TRUE(builder.Select("axpy", key, selection).ok());
    };
    select(kElements, name);
    select(int64_t{1} << (12 + number % 20), "plain");
    GenerationPtr built = builder.Build(number);
    constants[built->digest()] = name == "plain" ? 1000 : name == "other" ? 2000 : 3000;
    return built;
  }
  absl::Status LaunchLayers(Stream on) {
    for (const auto& layer : layers) {
      KVR_RETURN_IF_ERROR(dispatcher->Launch("axpy", layer->views, on));
    }
    return absl::OkStatus();
  }

  std::map<Fingerprint, int> constants;
  SteppedDevice device{HostDeviceUnderTest()};
  BinaryCache cache{""};
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<Jit> jit;
  std::unique_ptr<Dispatcher> dispatcher;
  const Stream stream = Must(device.CreateStream());
  std::vector<std::unique_ptr<AxpyTensors>> layers;
};
INSTANTIATE_TEST_SUITE_P(Ways, HostCaptureTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "NodeByNode" : "WholeGraph"; });

TEST_P(HostCaptureTest, EveryReplayComputesWhatItsGenerationSays) {
  ASSERT_TRUE(dispatcher->Publish(Generation("other", 1)).ok());
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope =
      Must(dispatcher->OpenCapture(stream, {.spare_nodes = 2, .keeps_graph = GetParam()}));
  ASSERT_TRUE(LaunchLayers(stream).ok());
  GraphBinding binding = Must(scope->Finish());
  const auto graph = Must(device.EndCapture(stream, GetParam()));

  struct Replay {
    int constant;
    std::vector<float> out[kLayers];
  };
  std::vector<std::unique_ptr<Replay>> replays;
  std::mt19937 random(7);
  const char* const names[] = {"plain", "other", "counting"};
  for (int step = 0; step < 120; ++step) {
    if (random() % 3 == 0) {
      ASSERT_TRUE(dispatcher->Publish(Generation(names[random() % 3], step)).ok());
    }
    if (random() % 2 == 0) {
      // While earlier replays run.
      const std::vector<GenerationPtr> history = dispatcher->history();
      const GenerationPtr& wanted = history[random() % history.size()];
      constants.emplace(wanted->digest(), 1000);  // generation 0 is the baseline
      const absl::StatusOr<Applied> applied = random() % 2 == 0
                                                  ? binding.Apply(graph->exec())
                                                  : binding.Apply(graph->exec(), wanted->digest());
      ASSERT_TRUE(applied.ok()) << applied.status();
      ASSERT_NE(applied->outcome, Applied::kNeedsRecapture) << applied->reason;
    }
    auto& replay = *replays.emplace_back(std::make_unique<Replay>());
    replay.constant = constants.at(binding.digest(graph->exec()));
    ASSERT_TRUE(graph->Launch(stream).ok());
    for (int layer = 0; layer < kLayers; ++layer) {
      replay.out[layer].resize(kElements);
      ASSERT_TRUE(device
                      .CopyToHost(replay.out[layer].data(), layers[layer]->views[3].data,
                                  kElements * 4, stream)
                      .ok());
    }
  }
  ASSERT_TRUE(device.Synchronize(stream).ok());
  for (size_t at = 0; at < replays.size(); ++at) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int64_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(replays[at]->out[layer][static_cast<size_t>(i)],
                  static_cast<float>(2 * (i + layer) + replays[at]->constant))
            << "replay " << at << ", layer " << layer << ", element " << i;
      }
    }
  }
  EXPECT_GT(dispatcher->counters().applied, 20u);
}

class MemoryJournal : public PublicationSink {
 public:
  void Record(const PublicationRecord& record) override { records.push_back(record); }
  uint64_t lost() const override { return 0; }
  std::vector<PublicationRecord> records;
};

// A serving loop in which each call that brings a graph to the next generation fails in turn.
TEST_P(HostCaptureTest, APatchThatFailsLosesNoStepAndTheJournalSaysWhy) {
  const auto journal = std::make_shared<MemoryJournal>();
  dispatcher->SetJournal(journal);
  ASSERT_TRUE(dispatcher->Publish(Generation("other", 1)).ok());
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kThreadLocal).ok());
  const auto scope =
      Must(dispatcher->OpenCapture(stream, {.spare_nodes = 2, .keeps_graph = GetParam()}));
  ASSERT_TRUE(LaunchLayers(stream).ok());
  GraphBinding binding = Must(scope->Finish());
  const auto graph = Must(device.EndCapture(stream, GetParam()));
  int call = 0, fails_at = 0;
  device.on_set_node = device.on_copy = [&] {
    return ++call == fails_at ? absl::UnavailableError("the driver refuses") : absl::OkStatus();
  };
  const auto serves = [&](int constant) {
    for (const auto& layer : layers) {
      std::fill_n(layer->memory.begin() + 2 * kElements, kElements, -1.0f);
    }
    EXPECT_TRUE(graph->Launch(stream).ok());
    EXPECT_TRUE(device.Synchronize(stream).ok());
    for (const auto& layer : layers) {
      for (size_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(layer->memory[2 * kElements + i],
                  2 * layer->memory[i] + static_cast<float>(constant));
      }
    }
  };
  serves(2000);

  const Fingerprint before = dispatcher->generation()->digest();
  const GenerationPtr next = Generation("counting", 2);
  ASSERT_TRUE(dispatcher->Publish(next).ok());
  // Three layers of three nodes; a whole graph is updated after that.
  const int calls = GetParam() ? 9 : 10;
  for (fails_at = 1; fails_at <= calls; ++fails_at) {
    call = 0;
    const absl::Status status = binding.Apply(graph->exec()).status();
    EXPECT_EQ(What(status), "the driver refuses") << fails_at;
    EXPECT_EQ(binding.digest(graph->exec()), before);
    serves(2000);
  }
  ASSERT_EQ(journal->records.size(), 3u) << "told once, however often it is tried";
  const PublicationRecord& told = journal->records.back();
  EXPECT_EQ(told.trigger, "apply");
  EXPECT_EQ(told.outcome, "failed");
  EXPECT_EQ(told.before, before.Hex());
  EXPECT_EQ(told.after, next->digest().Hex());
  EXPECT_EQ(told.reason, "the driver refuses");
  EXPECT_FALSE(told.who.empty());
  EXPECT_EQ(dispatcher->counters().failed, 1u);

  fails_at = 0;
  EXPECT_EQ(Must(binding.Apply(graph->exec())).outcome, Applied::kApplied);
  serves(3000);
  EXPECT_EQ(journal->records.size(), 3u);
}

TEST_P(HostCaptureTest, ForkedStreamsRunBesideEachOtherInOneCapture) {
  ASSERT_TRUE(dispatcher->Publish(Generation("counting", 1)).ok());
  const Stream side = Must(device.CreateStream());
  ASSERT_TRUE(dispatcher->PrepareStream(side).ok());
  ASSERT_TRUE(device.BeginCapture(stream, CaptureMode::kGlobal).ok());
  const auto scope = Must(dispatcher->OpenCapture(stream, {.keeps_graph = GetParam()}));
  ASSERT_TRUE(device.Wait(side, stream).ok());
  ASSERT_TRUE(dispatcher->Launch("axpy", layers[0]->views, stream).ok());
  ASSERT_TRUE(dispatcher->Launch("axpy", layers[1]->views, side).ok());
  std::thread([&] { EXPECT_TRUE(dispatcher->Publish(Generation("other", 2)).ok()); }).join();
  ASSERT_TRUE(dispatcher->Launch("axpy", layers[2]->views, side).ok());
  ASSERT_TRUE(device.Wait(stream, side).ok());
  GraphBinding binding = Must(scope->Finish());
  const auto graph = Must(device.EndCapture(stream, GetParam()));
  for (const int constant : {3000, 2000}) {
    ASSERT_TRUE(graph->Launch(stream).ok());
    ASSERT_TRUE(device.Synchronize(stream).ok());
    for (const auto& layer : layers) {
      EXPECT_EQ(layer->memory[2 * kElements + 5], 2 * layer->memory[5] + constant);
    }
    ASSERT_TRUE(binding.Apply(graph->exec()).ok());
  }
  device.DestroyStream(side);
}

}  // namespace
}  // namespace kvr
