// SPDX-License-Identifier: Apache-2.0
//
// A measuring session over the null device, watched: which buffers launches use in what order, and
// what calibration makes of a clock that hiccups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "devices/null/null.h"
#include "tests/tuner/fixture.h"
#include "tuner/worker/bench.h"

namespace kvr {
namespace {

using test::DecodeOp;

TEST(SizeRingTest, WhatIsTouchedBetweenTwoUsesExceedsTheCacheTwice) {
  // A launch that uses 0.6 MB of 38 MB allocated.
  const RingSize ring = SizeRing(62'900'000, 600'000, 38'000'000, 2);
  EXPECT_GE((ring.cold - 1) * 600'000, 2 * 62'900'000);
  EXPECT_GE(ring.sets, ring.cold);
  EXPECT_EQ(ring.sets % 2, 0);
}

TEST(SizeRingTest, IsCappedInSetsAndInBytesAndThenNotCold) {
  EXPECT_EQ(SizeRing(60 << 20, 1000, 1000, 2).sets, 512);
  const RingSize large = SizeRing(60 << 20, 1 << 20, int64_t{1} << 30, 2);
  EXPECT_EQ(large.sets, 12);
  EXPECT_GT(large.cold, large.sets);
}

TEST(SizeRingTest, HoldsEveryInputSetHoweverMany) {
  EXPECT_EQ(SizeRing(0, 1000, 1000, 2).sets, 2);
  EXPECT_EQ(SizeRing(0, 1000, 1000, 2).cold, 0);
  EXPECT_EQ(SizeRing(1000, 1000, 1000, 100).sets, 100);
  EXPECT_EQ(SizeRing(60 << 20, 1000, 1000, 1000).sets, 1000);
  EXPECT_EQ(SizeRing(100, 0, 0, 3).sets % 3, 0);
}

// The null device with a given L2, whose launches are recorded and whose clock is ours.
class WatchedDevice : public Device {
 public:
  explicit WatchedDevice(int64_t l2_bytes) : null_(OpenNull()), info_(null_->info()) {
    info_.kind = "cuda";  // one untimed launch before every epoch
    info_.l2_bytes = l2_bytes;
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return null_->Allocate(bytes); }
  void Free(void* memory) override { null_->Free(memory); }
  absl::Status CopyToDevice(void* dst, const void* src, int64_t bytes, Stream s) override {
    return null_->CopyToDevice(dst, src, bytes, s);
  }
  absl::Status CopyToHost(void* dst, const void* src, int64_t bytes, Stream s) override {
    return null_->CopyToHost(dst, src, bytes, s);
  }
  absl::Status MemsetAsync(void* dst, uint8_t value, int64_t bytes, Stream s) override {
    return null_->MemsetAsync(dst, value, bytes, s);
  }
  absl::StatusOr<Stream> CreateStream() override { return null_->CreateStream(); }
  void DestroyStream(Stream s) override { null_->DestroyStream(s); }
  absl::Status Synchronize(Stream s) override { return null_->Synchronize(s); }
  absl::StatusOr<bool> IsCapturing(Stream s) override { return null_->IsCapturing(s); }
  absl::StatusOr<Event> CreateEvent() override { return null_->CreateEvent(); }
  void DestroyEvent(Event event) override { null_->DestroyEvent(event); }
  absl::Status Record(Event event, Stream s) override {
    timing_ = !timing_;
    if (timing_) timed_.emplace_back();
    return null_->Record(event, s);
  }
  absl::StatusOr<double> ElapsedUs(Event, Event) override {
    const double us = us_per_launch * static_cast<double>(timed_.back().size());
    return timed_.size() == 1 ? us + hiccup_us : us;
  }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) override {
    return null_->Load(binary);
  }
  absl::StatusOr<int> BlocksPerSm(Function function, int threads, int64_t smem) override {
    return null_->BlocksPerSm(function, threads, smem);
  }
  absl::Status Launch(Function, const KernelLaunch&, const LaunchAttributes&, void* const* params,
                      Stream) override {
    const void* q = *static_cast<void* const*>(params[0]);
    used_.push_back(q);
    if (timing_) timed_.back().push_back(q);
    return absl::OkStatus();
  }
  absl::Status EncodeTensorMap(const TensorMapLaunch& map, const void* data,
                               TensorMap* encoded) override {
    return null_->EncodeTensorMap(map, data, encoded);
  }
  absl::Status Call(const LaunchFunction& function, const FunctionLaunch& launch,
                    Stream s) override {
    return null_->Call(function, launch, s);
  }
  absl::StatusOr<std::unique_ptr<Graph>> Capture(
      Stream s, absl::FunctionRef<absl::Status()> enqueue) override {
    return null_->Capture(s, enqueue);
  }
  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override {
    return null_->WithContext(work);
  }

  double us_per_launch = 10, hiccup_us = 0;  // hiccup: of the first epoch
  const std::vector<const void*>& used() const { return used_; }
  const std::vector<std::vector<const void*>>& timed() const { return timed_; }

 private:
  std::unique_ptr<NullDevice> null_;
  DeviceInfo info_;
  bool timing_ = false;
  std::vector<const void*> used_;                // every launch's q
  std::vector<std::vector<const void*>> timed_;  // by epoch
};

class MeasureSessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<MeasureSession> Open(WatchedDevice& device, int subjects, double epoch_us) {
    axes_ = test::Shape(op_.spec(), {{"num_tokens", 96}, {"topk", 32}});  // one kernel a launch
    auto binary = std::make_shared<Binary>();
    binary->target = "null";
    const VariantPtr variant = test::SplitVariant(op_.spec());
    for (const KernelSpec& kernel : variant->plan.kernels) {
      BinaryKernel& compiled = binary->kernels.emplace_back();
      compiled.entry = compiled.symbol = kernel.entry;
    }
    std::vector<PreparedPtr> prepared;
    for (int i = 0; i < subjects; ++i) {
      auto one = Prepare(device, op_.spec(), variant, DefaultConfig(variant->tunables), binary);
      EXPECT_TRUE(one.ok()) << one.status();
      if (!one.ok()) return nullptr;
      prepared.push_back(*one);
    }
    std::vector<InputSetPtr> sets;
    for (unsigned char mark : {1, 2}) {  // its inputs' every byte
      auto set = std::make_shared<InputSet>();
      TensorView q = TensorShapes(op_.spec(), axes_)[0];
      set->storage.push_back(std::make_unique<unsigned char[]>(q.bytes()));
      q.data = set->storage.back().get();
      std::fill_n(set->storage.back().get(), q.bytes(), mark);
      set->inputs = {q};
      sets.push_back(set);
    }
    bench_ = std::make_unique<Bench>(
        Bench{device, Stream{}, MemoryBudget{}, [](Stage, int, const std::string&) {}});
    SessionOptions options;
    options.mode.launch = LaunchMode::kEager;
    options.epoch_us = epoch_us;
    auto session = MeasureSession::Open(*bench_, op_, axes_, sets, prepared, options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  DecodeOp op_;
  AxisVector axes_{};
  std::unique_ptr<Bench> bench_;
};

TEST_F(MeasureSessionTest, NothingIsUsedAgainBeforeTheCacheHasForgottenIt) {
  // DecodeOp touches 1000 bytes a token, bounded by what is allocated.
  const int64_t l2 = 200'000;
  WatchedDevice device(l2);
  const auto session = Open(device, 3, 30);
  ASSERT_NE(session, nullptr);
  Outcome fault;
  ASSERT_TRUE(session->Sample({0, 1, 2}, 7, &fault).ok());
  EXPECT_TRUE(session->info().cold);
  EXPECT_EQ(session->info().launches_most, 3);

  int64_t touched = 0;
  for (const TensorView& tensor : TensorShapes(op_.spec(), axes_)) touched += tensor.bytes();
  touched = std::min(touched, op_.MinimumBytes(axes_));
  std::map<const void*, size_t> last;
  for (size_t i = 0; i < device.used().size(); ++i) {
    const auto [use, first] = last.emplace(device.used()[i], i);
    if (first) continue;
    EXPECT_GT(static_cast<int64_t>(i - use->second - 1) * touched, l2);
    use->second = i;
  }
  EXPECT_EQ(last.size(), static_cast<size_t>(session->info().buffer_sets));
}

TEST_F(MeasureSessionTest, ARoundsSubjectsStartOnTheSameInputsInOtherBuffers) {
  WatchedDevice device(200'000);
  const auto session = Open(device, 3, 0);
  ASSERT_NE(session, nullptr);
  Outcome fault;
  ASSERT_TRUE(session->Sample({0, 1, 2}, 1, &fault).ok());  // calibrates
  for (int round = 0; round < 20; ++round) {
    const size_t before = device.timed().size();
    ASSERT_TRUE(session->Sample({0, 1, 2}, 1, &fault).ok());
    ASSERT_EQ(device.timed().size(), before + 3);
    const void* const first = device.timed()[before][0];
    for (size_t epoch = before + 1; epoch < before + 3; ++epoch) {
      const void* const other = device.timed()[epoch][0];
      EXPECT_NE(other, first);
      EXPECT_EQ(*static_cast<const char*>(other), *static_cast<const char*>(first));
    }
  }
}

TEST_F(MeasureSessionTest, AHiccupDoesNotPassForALongEpoch) {
  WatchedDevice device(0);
  device.hiccup_us = 500;
  const auto session = Open(device, 1, 100);
  ASSERT_NE(session, nullptr);
  Outcome fault;
  ASSERT_TRUE(session->Sample({0}, 1, &fault).ok());
  EXPECT_GE(session->info().launches_least, 10);
  EXPECT_FALSE(session->info().cold);
}

}  // namespace
}  // namespace kvr
