// SPDX-License-Identifier: Apache-2.0
//
// A measuring session over the null device, watched: which buffers launches use in what order, what
// is recorded and replayed, and what calibration makes of a clock that hiccups.
#include "tuner/worker/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/status.h"
#include "devices/null/null.h"
#include "tests/tuner/fixture.h"

namespace kvr {
namespace {

using test::DecodeOp;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr LaunchMode kLaunchModes[] = {LaunchMode::kGraph, LaunchMode::kEager};

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

// Subjects with epochs of all lengths take turns in random order, as in a race.
TEST(RingTest, BeforeASetIsTimedAllOthersHaveBeenUsedAndStartsAreFew) {
  std::mt19937 random(1);
  for (size_t inputs : {1u, 2u, 3u, 5u}) {
    for (size_t turns : {1u, 2u, 7u, 40u, 101u}) {
      const Ring ring{turns * inputs, inputs};
      for (LaunchMode mode : kLaunchModes) {
        std::map<int, std::set<size_t>> starts;
        std::vector<size_t> last(ring.sets, 0);
        size_t cursor = 0, used = 0, untimed = 0, epochs = 0;
        for (int i = 0; i < 400; ++i) {
          const int launches = ring.WholeTurns(1 + static_cast<int>(random() % 120));
          const size_t phase = random() % inputs;
          const size_t first = ring.Start(mode, launches, phase, cursor);
          ASSERT_LT(first, ring.sets);
          if (launches < static_cast<int>(inputs)) {
            EXPECT_EQ(first % inputs, phase);
          } else {
            EXPECT_EQ(launches % static_cast<int>(inputs), 0);
          }
          starts[launches].insert(first);
          untimed += ring.Gap(cursor, first);
          ++epochs;
          for (; cursor != first; cursor = (cursor + 1) % ring.sets) last[cursor] = ++used;
          for (int l = 0; l < launches; ++l, cursor = (cursor + 1) % ring.sets) {
            ++used;
            if (last[cursor] != 0) {
              ASSERT_EQ(used - last[cursor], ring.sets);
            }
            last[cursor] = used;
          }
        }
        for (const auto& [launches, of_launches] : starts) {
          EXPECT_LE(of_launches.size(), ring.Starts(mode, launches));
          // Recorded launches of a subject: about one turn of the ring.
          if (mode == LaunchMode::kGraph) {
            EXPECT_LE(ring.Starts(mode, launches) * static_cast<size_t>(launches),
                      2 * inputs * ring.sets + static_cast<size_t>(launches));
          }
        }
        EXPECT_LE(untimed, epochs * (120 + inputs));
      }
    }
  }
}

class NoGraph : public Graph {
 public:
  explicit NoGraph(int* live) : live_(live) { ++*live_; }
  ~NoGraph() override { --*live_; }
  absl::Status Launch(Stream) override { return absl::OkStatus(); }
  GraphExec exec() const override { return {}; }

 private:
  int* live_;
};

TEST(RecordingsTest, HoldSoManyLaunchesAndDropWhatWasUsedLongestAgo) {
  int live = 0;
  Recordings recordings;
  for (size_t first = 0; first < 200; ++first) {
    recordings.Keep(0, first, 100, std::make_unique<NoGraph>(&live));
    EXPECT_NE(recordings.Find(0, 0), nullptr);  // used all the time
    EXPECT_LE(recordings.launches(), Recordings::kMostLaunches);
    EXPECT_EQ(static_cast<size_t>(live), recordings.graphs());
  }
  EXPECT_EQ(recordings.graphs(), 163u);
  EXPECT_EQ(recordings.Find(0, 1), nullptr);
  EXPECT_NE(recordings.Find(0, 199), nullptr);
  recordings.Keep(7, 3, 1, std::make_unique<NoGraph>(&live));
  recordings.Drop(0);
  EXPECT_EQ(live, 1);
  recordings.KeepOnly({0, 7});
  EXPECT_NE(recordings.Find(7, 3), nullptr);
  recordings.KeepOnly({0});
  EXPECT_EQ(live, 0);
  EXPECT_EQ(recordings.launches(), 0);
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
    ++copies_to_device;
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
    us_per_launch *= speed_up;
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
    Use(*static_cast<void* const*>(params[0]));
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
  absl::Status BeginCapture(Stream, CaptureMode) override {
    if (!refuse_captures.empty()) {
      const absl::Status refusal = refuse_captures.back();
      refuse_captures.pop_back();
      return refusal;
    }
    recording_.emplace();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream, bool) override {
    class Recorded : public Graph {
     public:
      Recorded(WatchedDevice* device, std::vector<const void*> uses)
          : device_(device), uses_(std::move(uses)) {}
      absl::Status Launch(Stream) override {
        ++device_->graph_launches;
        for (const void* q : uses_) device_->Use(q);
        return absl::OkStatus();
      }
      GraphExec exec() const override { return {}; }

     private:
      WatchedDevice* const device_;
      const std::vector<const void*> uses_;
    };
    return std::make_unique<Recorded>(this, *std::exchange(recording_, std::nullopt));
  }
  absl::Status Wait(Stream s, Stream earlier) override { return null_->Wait(s, earlier); }
  absl::StatusOr<std::unique_ptr<Recording>> RecordingOf(Stream) override { return nullptr; }
  absl::Status SetNode(GraphExec exec, Node node, const NodeWork& work) override {
    return null_->SetNode(exec, node, work);
  }
  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override {
    return null_->WithContext(work);
  }
  uint64_t ThrottleBits() override { return 0x4; }

  std::vector<absl::Status> refuse_captures;  // the next ones, the last of them first
  int graph_launches = 0, copies_to_device = 0;
  double us_per_launch = 10, hiccup_us = 0;  // hiccup: of the first epoch
  double speed_up = 1;                       // of each epoch's launches over the one before
  struct Used {
    const void* q;
    bool timed;
  };
  const std::vector<Used>& used() const { return used_; }
  const std::vector<std::vector<const void*>>& timed() const { return timed_; }

 private:
  void Use(const void* q) {
    if (recording_.has_value()) {
      recording_->push_back(q);
      return;
    }
    used_.push_back({q, timing_});
    if (timing_) timed_.back().push_back(q);
  }

  std::unique_ptr<NullDevice> null_;
  DeviceInfo info_;
  std::optional<std::vector<const void*>> recording_;
  bool timing_ = false;
  std::vector<Used> used_;                       // every launch's q
  std::vector<std::vector<const void*>> timed_;  // by epoch
};

SessionOptions Options(LaunchMode launch, CacheMode cache = CacheMode::kCold, double epoch_us = 0) {
  SessionOptions options;
  options.mode = {launch, cache};
  options.epoch_us = epoch_us;
  return options;
}

class MeasureSessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<MeasureSession> Open(WatchedDevice& device, int subjects,
                                       const SessionOptions& options, bool sentinel = false,
                                       int64_t memory = 0) {
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
      EXPECT_TRUE(set->storage.emplace_back().Reserve(q.bytes()));
      q.data = set->storage.back().get();
      std::fill_n(set->storage.back().get(), q.bytes(), mark);
      set->inputs = {q};
      sets.push_back(set);
    }
    bench_ = std::make_unique<Bench>(
        Bench{device, Stream{}, MemoryBudget{memory, 0}, [](Stage, int, const std::string&) {}});
    std::unique_ptr<Sentinel> watcher;
    if (sentinel) {
      auto loaded = Sentinel::Load(device, bench_->memory, test::NullSentinel());
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      watcher = *std::move(loaded);
    }
    auto session =
        MeasureSession::Open(*bench_, op_, axes_, sets, prepared, options, std::move(watcher));
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  DecodeOp op_;
  AxisVector axes_{};
  std::unique_ptr<Bench> bench_;
};

TEST_F(MeasureSessionTest, NothingIsTimedBeforeTheCacheHasForgottenItTwice) {
  for (LaunchMode mode : kLaunchModes) {
    // DecodeOp touches 1000 bytes a token, bounded by what is allocated.
    const int64_t l2 = 200'000;
    WatchedDevice device(l2);
    const auto session = Open(device, 3, Options(mode, CacheMode::kCold, 30));
    ASSERT_NE(session, nullptr);
    Outcome fault;
    ASSERT_TRUE(session->Sample({0, 1, 2}, 7, &fault).ok());
    ASSERT_TRUE(session->Check(1).ok());
    ASSERT_TRUE(session->Sample({0, 2}, 7, &fault).ok());
    const SessionInfo info = session->TakeInfo();
    EXPECT_TRUE(info.cold);
    EXPECT_EQ(info.launches_most, 4);  // 30 us of 10, in whole turns over two inputs
    EXPECT_EQ(info.least_epoch_us, 40);
    EXPECT_GT(info.plan_us, 0);
    EXPECT_EQ(ModeText(info.mode), ModeText({mode, CacheMode::kCold}));

    int64_t touched = 0;
    for (const TensorView& tensor : TensorShapes(op_.spec(), axes_)) touched += tensor.bytes();
    touched = std::min(touched, op_.MinimumBytes(axes_));
    std::map<const void*, size_t> last;
    for (size_t i = 0; i < device.used().size(); ++i) {
      const auto [use, first] = last.emplace(device.used()[i].q, i);
      if (first) continue;
      if (device.used()[i].timed) {
        EXPECT_GE(static_cast<int64_t>(i - use->second - 1) * touched, 2 * l2);
      }
      use->second = i;
    }
    EXPECT_EQ(last.size(), static_cast<size_t>(info.buffer_sets));
  }
}

TEST_F(MeasureSessionTest, AnEpochIsOneLaunchOfAGraph) {
  WatchedDevice device(200'000);
  const auto session = Open(device, 2, Options(LaunchMode::kGraph, CacheMode::kCold, 30));
  ASSERT_NE(session, nullptr);
  Outcome fault;
  ASSERT_TRUE(session->Sample({0, 1}, 3, &fault).ok());
  EXPECT_EQ(static_cast<size_t>(device.graph_launches), device.timed().size());
  const int before = device.graph_launches;
  const size_t epochs = device.timed().size();
  ASSERT_TRUE(session->Sample({0, 1}, 5, &fault).ok());
  EXPECT_EQ(device.graph_launches, before + 10);
  ASSERT_EQ(device.timed().size(), epochs + 10);
  for (size_t i = epochs; i < epochs + 10; ++i) EXPECT_THAT(device.timed()[i], SizeIs(4));
}

// One of the two buffer sets has the other's inputs meanwhile.
TEST_F(MeasureSessionTest, ChecksOfWhoWasTimedCopyInputsOnce) {
  for (LaunchMode mode : kLaunchModes) {
    WatchedDevice device(0);
    const auto session = Open(device, 4, Options(mode, CacheMode::kCold, 30));
    ASSERT_NE(session, nullptr);
    const auto inputs_in_use = [&] {
      std::set<const void*> buffers;
      std::set<char> contents;
      for (size_t i = device.used().size() - 4; i < device.used().size(); ++i) {
        const void* const q = device.used()[i].q;
        buffers.insert(q);
        contents.insert(*static_cast<const char*>(q));
      }
      EXPECT_THAT(buffers, SizeIs(2));
      return contents;
    };
    Outcome fault;
    ASSERT_TRUE(session->Sample({0, 1, 2}, 7, &fault).ok());
    EXPECT_THAT(inputs_in_use(), SizeIs(2));
    device.copies_to_device = 0;
    for (const int timed : {0, 1, 2}) {
      ASSERT_TRUE(session->Check(timed).ok());
      EXPECT_THAT(inputs_in_use(), SizeIs(1));
    }
    EXPECT_EQ(device.copies_to_device, 1);
    // Who has not run yet begins on its usual inputs, so that it cannot remember the others.
    ASSERT_TRUE(session->Check(3).ok());
    EXPECT_EQ(device.copies_to_device, 3);
    ASSERT_TRUE(session->Sample({0, 1, 2}, 1, &fault).ok());
    EXPECT_EQ(device.copies_to_device, 4);
    EXPECT_THAT(inputs_in_use(), SizeIs(2));
  }
}

TEST_F(MeasureSessionTest, GraphsAreBoundedAndThoseOfWhoLeftTheRaceGo) {
  WatchedDevice device(200'000);
  const auto session = Open(device, 3, Options(LaunchMode::kGraph, CacheMode::kCold, 30));
  ASSERT_NE(session, nullptr);
  Outcome fault;
  ASSERT_TRUE(session->Sample({0, 1, 2}, 100, &fault).ok());
  const SessionInfo info = session->TakeInfo();
  const Ring ring{static_cast<size_t>(info.buffer_sets), 2};
  const size_t most = ring.Starts(LaunchMode::kGraph, info.launches_most);
  EXPECT_GT(session->recordings().graphs(), 3u);
  EXPECT_LE(session->recordings().graphs(), 3 * most);
  ASSERT_TRUE(session->Sample({1}, 1, &fault).ok());
  EXPECT_LE(session->recordings().graphs(), most);
}

TEST_F(MeasureSessionTest, HotEpochsReuseWhatWasJustUsed) {
  for (LaunchMode mode : kLaunchModes) {
    WatchedDevice device(200'000);
    const auto session = Open(device, 2, Options(mode, CacheMode::kHot, 60));
    ASSERT_NE(session, nullptr);
    Outcome fault;
    ASSERT_TRUE(session->Sample({0, 1}, 4, &fault).ok());
    const SessionInfo info = session->TakeInfo();
    EXPECT_EQ(info.buffer_sets, 2);
    EXPECT_FALSE(info.cold);
    for (size_t i = 2; i < device.used().size(); ++i) {
      if (!device.used()[i].timed) continue;
      EXPECT_TRUE(device.used()[i].q == device.used()[i - 1].q ||
                  device.used()[i].q == device.used()[i - 2].q);
    }
  }
}

TEST_F(MeasureSessionTest, ARoundsSubjectsStartOnTheSameInputsInOtherBuffers) {
  for (LaunchMode mode : kLaunchModes) {
    WatchedDevice device(200'000);
    const auto session = Open(device, 3, Options(mode));
    ASSERT_NE(session, nullptr);
    Outcome fault;
    ASSERT_TRUE(session->Sample({0, 1, 2}, 1, &fault).ok());  // calibrates
    std::set<char> seen;
    for (int round = 0; round < 40; ++round) {
      const size_t before = device.timed().size();
      ASSERT_TRUE(session->Sample({0, 1, 2}, 1, &fault).ok());
      ASSERT_EQ(device.timed().size(), before + 3);
      const void* const first = device.timed()[before][0];
      seen.insert(*static_cast<const char*>(first));
      for (size_t epoch = before + 1; epoch < before + 3; ++epoch) {
        const void* const other = device.timed()[epoch][0];
        EXPECT_NE(other, first);
        EXPECT_EQ(*static_cast<const char*>(other), *static_cast<const char*>(first));
      }
    }
    EXPECT_THAT(seen, SizeIs(2));
  }
}

TEST_F(MeasureSessionTest, AHiccupDoesNotPassForALongEpoch) {
  for (LaunchMode mode : kLaunchModes) {
    WatchedDevice device(0);
    device.hiccup_us = 500;
    const auto session = Open(device, 1, Options(mode, CacheMode::kCold, 100));
    ASSERT_NE(session, nullptr);
    Outcome fault;
    ASSERT_TRUE(session->Sample({0}, 1, &fault).ok());
    const SessionInfo info = session->TakeInfo();
    EXPECT_GE(info.launches_least, 10);
    EXPECT_FALSE(info.cold);
  }
}

// What an epoch's beginning takes is shared by its launches: 10 and 16 of them differ by it alone.
TEST_F(MeasureSessionTest, AllSubjectsHaveAsManyLaunchesAnEpoch) {
  for (LaunchMode mode : kLaunchModes) {
    WatchedDevice device(0);
    device.speed_up = 0.9;  // whoever is calibrated later needs more
    const auto session = Open(device, 3, Options(mode, CacheMode::kCold, 100));
    ASSERT_NE(session, nullptr);
    Outcome fault;
    ASSERT_TRUE(session->Sample({0, 1}, 1, &fault).ok());
    const size_t before = device.timed().size();
    device.speed_up = 1;
    ASSERT_TRUE(session->Sample({0, 1, 2}, 4, &fault).ok());
    const SessionInfo info = session->TakeInfo();
    EXPECT_EQ(info.launches_least, info.launches_most);
    ASSERT_GE(device.timed().size(), before + 12);
    for (size_t epoch = device.timed().size() - 12; epoch < device.timed().size(); ++epoch) {
      EXPECT_EQ(device.timed()[epoch].size(), static_cast<size_t>(info.launches_most));
    }
  }
}

TEST_F(MeasureSessionTest, TheSentinelIsReportedEveryFewEpochsHoweverManySubjectsRace) {
  WatchedDevice device(200'000);
  const auto session = Open(device, 5, Options(LaunchMode::kGraph), /*sentinel=*/true);
  ASSERT_NE(session, nullptr);
  Outcome fault;
  ASSERT_TRUE(session->Sample({0, 1, 2, 3, 4}, 7, &fault).ok());  // 35 epochs
  SessionInfo info = session->TakeInfo();
  EXPECT_THAT(info.sentinel_us, SizeIs(3));
  EXPECT_THAT(info.lead_us, SizeIs(3));
  EXPECT_EQ(info.clock_mhz, 0);  // no timer of the device's own
  EXPECT_EQ(info.throttle_bits, 0x4u);
  ASSERT_TRUE(session->Sample({0}, 4, &fault).ok());
  EXPECT_THAT(session->TakeInfo().sentinel_us, SizeIs(0));
  ASSERT_TRUE(session->Sample({0}, 1, &fault).ok());
  EXPECT_THAT(session->TakeInfo().sentinel_us, SizeIs(1));
}

TEST_F(MeasureSessionTest, ShortOfMemoryTheRingShrinksAndIsNotCold) {
  WatchedDevice device(200'000);
  auto session = Open(device, 1, Options(LaunchMode::kGraph));
  ASSERT_NE(session, nullptr);
  const SessionInfo whole = session->TakeInfo();
  const int64_t used = bench_->memory.used;
  session.reset();
  session = Open(device, 1, Options(LaunchMode::kGraph), false, used / 2);
  ASSERT_NE(session, nullptr);
  const SessionInfo part = session->TakeInfo();
  EXPECT_FALSE(part.cold);
  EXPECT_GE(part.buffer_sets, whole.buffer_sets / 4);
  EXPECT_LT(bench_->memory.used, used / 2);  // something is left for others
  Outcome fault;
  ASSERT_TRUE(session->Sample({0}, 3, &fault).ok());
  EXPECT_EQ(fault.finding.status, TrialStatus::kPassed);
}

TEST_F(MeasureSessionTest, WhatCannotBeRecordedIsTheSubjectsFaultAndMemoryIsTheJobs) {
  WatchedDevice device(200'000);
  const absl::Status memory = Error(absl::StatusCode::kResourceExhausted, "no memory", "free some");
  const auto session = Open(device, 2, Options(LaunchMode::kGraph));
  ASSERT_NE(session, nullptr);
  Outcome fault;
  device.refuse_captures = {memory};  // tried again without the others' graphs
  ASSERT_TRUE(session->Sample({0, 1}, 1, &fault).ok());
  EXPECT_EQ(fault.finding.status, TrialStatus::kPassed);
  ASSERT_TRUE(session->Sample({0}, 1, &fault).ok());
  device.refuse_captures = {memory, memory};
  const absl::Status status = session->Sample({1}, 1, &fault).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("insufficient memory"));
  device.refuse_captures = {
      Error(absl::StatusCode::kFailedPrecondition, "it allocates", "allocate before")};
  ASSERT_TRUE(session->Sample({0, 1}, 1, &fault).ok());
  EXPECT_EQ(fault.finding.status, TrialStatus::kRuntimeError);
  EXPECT_EQ(fault.finding.reason, "it allocates");
}

}  // namespace
}  // namespace kvr
