// SPDX-License-Identifier: Apache-2.0
//
// A session's check of the numbers, over launches and over replays: the null device records fills
// and replays them, so what a launch function enqueues is what a graph holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/registry/fakes.h"
#include "tests/tuner/fixture.h"
#include "tuner/worker/measure.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

constexpr LaunchMode kLaunchModes[] = {LaunchMode::kGraph, LaunchMode::kEager};

// out[n] is all `level`, or all of the first byte of x[n]. Its launch function fills `out` with
// what it reads when it is called, on the host: right by a scalar, which a recording keeps as
// every launch does, and by a tensor right as long as nothing is recorded.
class FillOp : public Operation {
 public:
  explicit FillOp(bool by_tensor) : by_tensor_(by_tensor) {
    spec_.name = "fill";
    spec_.axes = {test::Axis("n", 64)};
    TensorSpec level;
    level.name = "level";
    level.dtype = DType::kI32;
    level.is_scalar = true;
    spec_.inputs = {test::Tensor("x", DType::kU8, {0}), level};
    spec_.outputs = {test::Tensor("out", DType::kU8, {0})};
  }
  const OpSpec& spec() const override { return spec_; }
  bool by_tensor() const { return by_tensor_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>(1);
  }
  int64_t MinimumBytes(const AxisVector& axes) const override { return 2 * axes[0]; }
  InputSetPtr Set(uint8_t value) const {
    auto set = std::make_shared<InputSet>();
    set->inputs = TensorShapes(spec_, {64});
    set->inputs.pop_back();
    for (TensorView& input : set->inputs) {
      EXPECT_TRUE(set->storage.emplace_back().Reserve(64));
      input.data = set->storage.back().get();
      std::memset(input.data, 0, 64);
    }
    std::memset(set->inputs[0].data, value, 64);
    const int32_t level = by_tensor_ ? 0 : value;
    std::memcpy(set->inputs[1].data, &level, sizeof level);
    ReferenceOutput reference;
    reference.expected.assign(64, value);
    reference.bound.assign(64, 0);
    set->reference = {reference};
    return set;
  }

 private:
  const bool by_tensor_;
  OpSpec spec_;
};

class FillCode : public VariantCode {
 public:
  FillCode(Device& device, bool by_tensor) : device_(device), by_tensor_(by_tensor) {}
  absl::Status Load() const override { return absl::OkStatus(); }
  absl::Status Values(absl::Span<const int64_t>, absl::Span<const int64_t>, const DeviceInfo&,
                      absl::Span<int64_t>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(const DeviceInfo&,
                                                       absl::Span<const int64_t>) const override {
    class Function : public LaunchFunction {
     public:
      Function(Device& device, bool by_tensor) : device_(device), by_tensor_(by_tensor) {}
      absl::Status Launch(const FunctionLaunch& launch) const override {
        const uint8_t value = *static_cast<const uint8_t*>(launch.tensors[by_tensor_ ? 0 : 1].data);
        const TensorView& out = launch.tensors[2];
        return device_.MemsetAsync(out.data, value, out.bytes(), Stream{launch.stream});
      }

     private:
      Device& device_;
      const bool by_tensor_;
    };
    return std::make_unique<Function>(device_, by_tensor_);
  }

 private:
  Device& device_;
  const bool by_tensor_;
};

// A session of two subjects that are the same.
void WithFills(bool by_tensor, const MeasureMode& mode,
               const std::function<void(MeasureSession& session)>& body) {
  const FillOp op(by_tensor);
  const std::unique_ptr<NullDevice> null = OpenNull();
  CallingDevice device(*null);
  auto variant = std::make_shared<Variant>();
  variant->op = "fill";
  variant->name = "fill";
  variant->targets = {"host"};
  variant->has_launch_function = true;
  variant->plan.axis_count = 1;
  variant->code = std::make_shared<FillCode>(device, by_tensor);
  auto binary = std::make_shared<Binary>();
  binary->target = "null";
  auto prepared = Prepare(device, op.spec(), variant, {}, binary);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto stream = device.CreateStream();
  Bench bench{device, *stream, MemoryBudget{}, [](Stage, int, const std::string&) {}};
  {
    auto session =
        MeasureSession::Open(bench, op, {64}, {op.Set(3), op.Set(5)}, {*prepared, *prepared},
                             SessionOptions{mode, 0, ""}, nullptr);
    ASSERT_TRUE(session.ok()) << session.status();
    body(**session);
  }
  device.DestroyStream(*stream);
}

void SampleFills(MeasureSession& session, const std::vector<int>& subjects) {
  Outcome fault;
  EXPECT_TRUE(session.Sample(subjects, 5, &fault).ok());
  EXPECT_EQ(fault.finding.status, TrialStatus::kPassed) << fault.finding.reason;
}

Finding CheckOne(MeasureSession& session, int subject) {
  const auto checked = session.Check(subject);
  EXPECT_TRUE(checked.ok()) << checked.status();
  return checked.ok() ? checked->finding : Finding();
}

Finding CheckFill(bool by_tensor, LaunchMode mode) {
  Finding finding;
  WithFills(by_tensor, {mode, CacheMode::kCold}, [&](MeasureSession& session) {
    SampleFills(session, {0, 1});
    for (int i = 0; i < 5 && finding.status == TrialStatus::kPassed; ++i) {
      finding = CheckOne(session, i % 2);
    }
  });
  return finding;
}

TEST(CheckTest, AReplayGivesWhatLaunchesGive) {
  for (LaunchMode mode : kLaunchModes) {
    const Finding finding = CheckFill(/*by_tensor=*/false, mode);
    EXPECT_EQ(finding.status, TrialStatus::kPassed) << finding.reason;
  }
}

TEST(CheckTest, WhatIsRightEagerlyAndWrongReplayedIsFound) {
  EXPECT_EQ(CheckFill(/*by_tensor=*/true, LaunchMode::kEager).status, TrialStatus::kPassed);
  const Finding finding = CheckFill(/*by_tensor=*/true, LaunchMode::kGraph);
  EXPECT_EQ(finding.status, TrialStatus::kIncorrectNumerical);
  EXPECT_THAT(finding.reason, HasSubstr("after timing"));
}

// The buffers have other inputs since the first check: neither a recording that was made before nor
// one that is made now may have seen them.
TEST(CheckTest, WhatIsWrongReplayedIsFoundAfterOthersWereChecked) {
  const MeasureMode two_buffer_sets{LaunchMode::kGraph, CacheMode::kHot};
  WithFills(/*by_tensor=*/true, two_buffer_sets, [](MeasureSession& session) {
    SampleFills(session, {0, 1});
    EXPECT_EQ(CheckOne(session, 0).status, TrialStatus::kIncorrectNumerical);
    EXPECT_EQ(CheckOne(session, 1).status, TrialStatus::kIncorrectNumerical);
    for (int i = 0; i < 20; ++i) {  // which buffers a check uses is drawn
      SampleFills(session, {1});    // the recordings of the other are dropped
      EXPECT_EQ(CheckOne(session, 1).status, TrialStatus::kIncorrectNumerical);
      EXPECT_EQ(CheckOne(session, 0).status, TrialStatus::kIncorrectNumerical);
    }
  });
}

}  // namespace
}  // namespace kvr
