// SPDX-License-Identifier: Apache-2.0
//
// The same with the kernels that KVR is for: replays of sparse MLA decode give bit for bit what the
// selected variant gives when it is launched eagerly, whatever was swapped in between.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tests/api/captures.h"

namespace kvr {
namespace {

constexpr const char* kMla = "mla_sparse_decode";
using Bytes = std::vector<char>;  // of all outputs

class CapturesMlaTest : public CapturesTest {
 protected:
  struct Choice {
    const char* variant;
    const char* config;  // what is not the default
  };
  // At 100 slots a token's list is split in 3, or in 6, or not at all: then there is neither a
  // workspace nor a second kernel.
  static constexpr Choice kChoices[] = {{"baseline", ""},       {"w8", "MIN_CHUNK=64"},
                                        {"s3", "MIN_CHUNK=16"}, {"baseline", "MIN_CHUNK=64"},
                                        {"w8", "MIN_CHUNK=16"}, {"s3", "MIN_CHUNK=64"}};
  static constexpr int kSteps = 4;  // in a graph, each on tensors of its own

  void SetUp() override {
    CapturesTest::SetUp();
    if (IsSkipped()) return;
    runtime_ = Must(Runtime::Open(EngineOptions()));
    const Catalog::Op& op = *Must(runtime_->catalog().FindOp(kMla));
    const LoadReport report = Must(runtime_->Load(kMla, {kAxes}));
    ASSERT_TRUE(report.ready()) << report.Text();
    stream_ = Must(device().CreateStream());
    ASSERT_KVR_OK(runtime_->PrepareStream(stream_));
    const AxisVector extents = Must(ResolveAxes(op.spec(), kAxes));
    inputs_ = op.spec().inputs.size();
    for (uint64_t step = 0; step < kSteps; ++step) {
      std::vector<TensorView> views = TensorShapes(op.spec(), extents);
      host_.emplace_back();
      for (TensorView& view : views) {
        host_.back().emplace_back(static_cast<size_t>(view.bytes()));
        view.data = host_.back().back().data();
      }
      ASSERT_KVR_OK(op.operation->Generate(extents, step, absl::MakeSpan(views).first(inputs_)));
      for (size_t i = 0; i < views.size(); ++i) {
        if (op.spec().tensor(static_cast<int>(i)).is_scalar) continue;
        void* const memory = Must(device().Allocate(views[i].bytes()));
        ASSERT_KVR_OK(device().CopyToDevice(memory, views[i].data, views[i].bytes(), stream_));
        views[i].data = memory;
        memory_.push_back(memory);
      }
      views_.push_back(std::move(views));
    }
    ASSERT_KVR_OK(device().Synchronize(stream_));
    for (const Choice& choice : kChoices) Expect(choice);
    // Not by chance the same bits.
    EXPECT_NE(expected_[Generation(kChoices[0])->digest()],
              expected_[Generation(kChoices[2])->digest()]);
  }
  void TearDown() override {
    if (runtime_ == nullptr) return;
    for (void* const memory : memory_) device().Free(memory);
    device().DestroyStream(stream_);
  }

  Device& device() { return runtime_->device(); }
  absl::Status LaunchAll() {
    for (const auto& views : views_) {
      KVR_RETURN_IF_ERROR(runtime_->Launch(kMla, views, stream_));
    }
    return absl::OkStatus();
  }
  GenerationPtr Generation(const Choice& choice) {
    const DeviceInfo& info = device().info();
    const OpSpec& spec = Must(runtime_->catalog().FindOp(kMla))->spec();
    const KeyPolicy policy = Must(KeyPolicy::Parse("topk:pow2", spec));
    GenerationBuilder builder(info.model, info.target);
    builder.SetPolicy(kMla, policy);
    const VariantPtr variant = Must(runtime_->catalog().Find(kMla, choice.variant));
    Config config = DefaultConfig(variant->tunables);
    for (const auto& [name, value] : Must(ParseConfig(choice.config, variant->tunables))) {
      config[name] = value;
    }
    EXPECT_KVR_OK(builder.Select(kMla, policy.Bucket(Must(ResolveAxes(spec, kAxes))),
                                 {.variant = variant, .config = config}));
    return builder.Build(1);
  }
  absl::Status Poison() {
    for (const auto& views : views_) {
      for (size_t i = inputs_; i < views.size(); ++i) {
        KVR_RETURN_IF_ERROR(device().MemsetAsync(views[i].data, 0xff, views[i].bytes(), stream_));
      }
    }
    return absl::OkStatus();
  }
  Bytes Outputs() {
    Bytes bytes;
    for (const auto& views : views_) {
      for (size_t i = inputs_; i < views.size(); ++i) {
        const auto size = static_cast<size_t>(views[i].bytes());
        bytes.resize(bytes.size() + size);
        EXPECT_KVR_OK(device().CopyToHost(bytes.data() + bytes.size() - size, views[i].data,
                                          views[i].bytes(), stream_));
        EXPECT_KVR_OK(device().Synchronize(stream_));
      }
    }
    return bytes;
  }
  // What a generation that selects `choice` gives eagerly.
  void Expect(const Choice& choice) {
    const GenerationPtr next = Generation(choice);
    const absl::StatusOr<LoadReport> report = runtime_->Publish(next);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_KVR_OK(Poison());
    ASSERT_KVR_OK(LaunchAll());
    expected_[next->digest()] = Outputs();
  }
  bool Replays(const Captured& captured) {
    EXPECT_KVR_OK(Poison());
    EXPECT_KVR_OK(captured.graph->Launch(stream_));
    return Outputs() == expected_.at(captured.binding->digest(captured.exec()));
  }
  Captured Capture(const CaptureOptions& options) {
    EXPECT_KVR_OK(device().BeginCapture(stream_, CaptureMode::kGlobal));
    const auto scope = Must(runtime_->OpenCapture(stream_, options));
    EXPECT_KVR_OK(LaunchAll());
    Captured captured;
    captured.binding = std::make_unique<GraphBinding>(Must(scope->Finish()));
    captured.graph = Must(device().EndCapture(stream_, options.keeps_graph));
    return captured;
  }

  inline static const Axes kAxes = {
      {"num_tokens", 2}, {"num_qo_heads", 17}, {"page_size", 16}, {"num_pages", 16}, {"topk", 100}};
  std::unique_ptr<Runtime> runtime_;
  Stream stream_;
  size_t inputs_ = 0;
  std::vector<std::vector<Bytes>> host_;
  std::vector<std::vector<TensorView>> views_;
  std::vector<void*> memory_;
  std::map<Fingerprint, Bytes> expected_;
};

TEST_F(CapturesMlaTest, ReplaysGiveTheBitsOfWhatIsApplied) {
  for (const bool keeps_graph : {true, false}) {
    ASSERT_TRUE(runtime_->Publish(Generation(kChoices[0])).ok());
    const Captured captured = Capture({.spare_nodes = 1, .keeps_graph = keeps_graph});
    EXPECT_TRUE(Replays(captured));
    for (const Choice& choice : kChoices) {
      SCOPED_TRACE(StrCat(choice.variant, " ", choice.config));
      const GenerationPtr next = Generation(choice);
      ASSERT_TRUE(runtime_->Publish(next).ok());
      const Applied applied = Must(captured.binding->Apply(captured.exec()));
      ASSERT_NE(applied.outcome, Applied::kNeedsRecapture) << applied.reason;
      ASSERT_EQ(applied.digest, next->digest());
      EXPECT_TRUE(Replays(captured));
    }
  }
}

TEST_F(CapturesMlaTest, SwapsDuringReplaysGiveTheBitsOfTheGenerationThatTheBindingNames) {
  ASSERT_TRUE(runtime_->Publish(Generation(kChoices[0])).ok());
  const Captured captured = Capture({.spare_nodes = 1, .keeps_graph = OnGpu()});
  std::vector<GenerationPtr> generations;
  for (const Choice& choice : kChoices) generations.push_back(Generation(choice));
  const int swaps = OnGpu() ? 1000 : 12;
  std::atomic<uint64_t> applied{0};
  std::atomic<bool> done{false};
  std::thread publisher([&] {
    for (int i = 1; i <= swaps; ++i) {
      const uint64_t before = applied;
      EXPECT_TRUE(runtime_->Publish(generations[static_cast<size_t>(i) % 6]).ok());
      while (applied == before && !testing::Test::HasFailure()) std::this_thread::yield();
    }
    done = true;
  });
  int steps = 0;
  for (bool last = false; !last; ++steps) {
    last = done;
    const absl::StatusOr<Applied> now = captured.binding->Apply(captured.exec());
    EXPECT_TRUE(now.ok()) << now.status();
    if (!now.ok()) break;
    EXPECT_NE(now->outcome, Applied::kNeedsRecapture) << now->reason;
    applied += now->outcome == Applied::kApplied;
    const bool right = Replays(captured);
    EXPECT_TRUE(right) << "step " << steps;
    if (!right) break;
  }
  publisher.join();
  EXPECT_EQ(applied, static_cast<uint64_t>(swaps));
  std::printf("%d swaps, %d steps\n", swaps, steps);
}

}  // namespace
}  // namespace kvr
