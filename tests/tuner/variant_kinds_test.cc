// SPDX-License-Identifier: Apache-2.0
//
// Compiling, verifying and measuring variants that are not compiled. The worker's server runs in
// this process, on the null device, which calls launch functions for once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "tests/registry/fakes.h"
#include "tuner/tune.h"
#include "tuner/work.h"
#include "tuner/worker/server.h"

namespace kvr {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Axpy with inputs and a reference.
class RealAxpyOp : public AxpyOp {
 public:
  absl::Status Generate(const AxisVector& axes, uint64_t seed,
                        absl::Span<const TensorView> inputs) const override {
    for (int64_t i = 0; i < axes[0]; ++i) {
      static_cast<float*>(inputs[0].data)[i] = static_cast<float>((seed + i) % 17);
      static_cast<float*>(inputs[1].data)[i] = static_cast<float>(i % 5);
    }
    *static_cast<float*>(inputs[2].data) = 3;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector& axes,
                                                         absl::Span<const TensorView> inputs,
                                                         int) const override {
    ReferenceOutput out;
    for (int64_t i = 0; i < axes[0]; ++i) {
      out.expected.push_back(3.0 * static_cast<float*>(inputs[0].data)[i] +
                             static_cast<float*>(inputs[1].data)[i]);
    }
    out.bound.assign(out.expected.size(), 1e-6);
    return std::vector<ReferenceOutput>{out};
  }
};

using Launcher = std::function<absl::Status(const FunctionLaunch&)>;

absl::Status Axpy(const FunctionLaunch& launch) {
  const auto* x = static_cast<const float*>(launch.tensors[0].data);
  const auto* y = static_cast<const float*>(launch.tensors[1].data);
  const float alpha = *static_cast<const float*>(launch.tensors[2].data);
  auto* out = static_cast<float*>(launch.tensors[3].data);
  for (int64_t i = 0; i < launch.axes[0]; ++i) out[i] = alpha * x[i] + y[i];
  // Zeroed, says the manifest; and all of it is ours.
  auto* counts = static_cast<int32_t*>(launch.workspace[0]);
  for (int64_t i = 0; i < launch.workspace_bytes[0] / 4; ++i) {
    if (counts[i]++ != 0) return Error(absl::StatusCode::kInternal, "dirty workspace", "clear it");
  }
  return absl::OkStatus();
}

class Code : public VariantCode {
 public:
  explicit Code(Launcher launcher) : launcher_(std::move(launcher)) {}
  absl::Status Load() const override { return absl::OkStatus(); }
  absl::Status Values(absl::Span<const int64_t>, absl::Span<const int64_t>, const DeviceInfo&,
                      absl::Span<int64_t>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(const DeviceInfo&,
                                                       absl::Span<const int64_t>) const override {
    class Function : public LaunchFunction {
     public:
      explicit Function(Launcher launcher) : launcher_(std::move(launcher)) {}
      absl::Status Launch(const FunctionLaunch& launch) const override { return launcher_(launch); }

     private:
      const Launcher launcher_;
    };
    return std::make_unique<Function>(launcher_);
  }

 private:
  const Launcher launcher_;
};

class VariantKindsTest : public testing::Test {
 protected:
  VariantKindsTest() {
    std::vector<std::unique_ptr<Operation>> operations;
    operations.push_back(std::make_unique<RealAxpyOp>());
    catalog_ = std::make_unique<Catalog>(*Catalog::Create(std::move(operations)));
    EXPECT_TRUE(catalog_->Admit(AxpyVariant("baseline", true)).ok());
    files_ = *BinaryFiles::Create();
    WorkerServerOptions options;
    options.threads = 1;
    server_ =
        std::make_unique<WorkerServer>(device_, *catalog_, options, [this](const Message& message) {
          if (message.kind == Message::Kind::kReply) reply_ = message;
        });
    EXPECT_TRUE(server_->Start().ok());
  }

  VariantPtr Admit(const std::string& name, Launcher launcher) {
    std::shared_ptr<Variant> variant = AxpyVariant(name);
    variant->sources.clear();
    variant->plan.kernels.clear();
    variant->has_launch_function = true;
    variant->code = std::make_shared<Code>(std::move(launcher));
    EXPECT_TRUE(catalog_->Admit(variant).ok());
    return variant;
  }
  WorkItem Item(const VariantPtr& variant) {
    const Config config = DefaultConfig(variant->tunables);
    const absl::StatusOr<Built> built =
        jit_.Build(catalog_->ops()[0]->spec(), *variant, config, "null");
    EXPECT_TRUE(built.ok()) << built.status();
    return ItemOf({variant, config}, *files_->Add(*built->binary));
  }
  Message Handle(Request request) {
    request.op = "axpy";
    request.axes = {{"n", 300}};
    request.seeds = {1, 2};
    server_->Handle(request);
    EXPECT_TRUE(reply_.error.ok()) << reply_.error;
    return std::exchange(reply_, {});
  }
  Finding Verify(const VariantPtr& variant) {
    Request request;
    request.items = {Item(variant)};
    const Message reply = Handle(request);
    EXPECT_EQ(reply.findings.size(), 1u);
    return reply.findings.empty() ? Finding{} : reply.findings[0];
  }

  std::unique_ptr<NullDevice> null_ = OpenNull();
  CallingDevice device_{*null_};
  std::unique_ptr<Catalog> catalog_;
  Jit jit_{{}, nullptr};  // no compiler at all
  std::unique_ptr<BinaryFiles> files_;
  Message reply_;
  std::unique_ptr<WorkerServer> server_;
};

TEST_F(VariantKindsTest, ALaunchFunctionIsVerifiedLikeAnyOther) {
  const Finding right = Verify(Admit("right", Axpy));
  EXPECT_EQ(right.status, TrialStatus::kPassed) << right.reason;

  const Finding wrong = Verify(Admit("wrong", [](const FunctionLaunch& launch) {
    KVR_RETURN_IF_ERROR(Axpy(launch));
    static_cast<float*>(launch.tensors[3].data)[7] += 1;
    return absl::OkStatus();
  }));
  EXPECT_EQ(wrong.status, TrialStatus::kIncorrectNumerical);
  EXPECT_THAT(wrong.reason, HasSubstr("worst [7]"));

  const Finding beyond = Verify(Admit("beyond", [](const FunctionLaunch& launch) {
    KVR_RETURN_IF_ERROR(Axpy(launch));
    static_cast<char*>(launch.workspace[0])[launch.workspace_bytes[0]] = 1;
    return absl::OkStatus();
  }));
  EXPECT_EQ(beyond.status, TrialStatus::kRuntimeError);
  EXPECT_THAT(beyond.reason, HasSubstr("workspace counts"));

  const Finding failing = Verify(Admit("failing", [](const FunctionLaunch&) {
    return Error(absl::StatusCode::kInternal, "cublasGemmEx gave 13", "look it up");
  }));
  EXPECT_EQ(failing.status, TrialStatus::kRuntimeError);
  EXPECT_THAT(failing.reason, HasSubstr("launch function: cublasGemmEx gave 13"));
}

TEST_F(VariantKindsTest, ALaunchFunctionIsMeasuredBesideOthers) {
  int calls = 0;
  const VariantPtr counted = Admit("counted", [&calls](const FunctionLaunch& launch) {
    ++calls;
    return Axpy(launch);
  });
  Request open;
  open.job = Job::kOpen;
  open.items = {Item(counted), Item(Admit("other", Axpy))};
  open.subjects = {0, 1};
  open.session.mode.launch = LaunchMode::kEager;  // this device runs calls at once
  open.session.epoch_us = 20;
  EXPECT_THAT(Handle(open).findings, IsEmpty());
  Request sample;
  sample.job = Job::kSample;
  sample.subjects = {0, 1};
  sample.rounds = 2;
  const Message samples = Handle(sample);
  ASSERT_EQ(samples.samples.size(), 2u);
  EXPECT_GT(samples.samples[0][0], 0);
  EXPECT_GT(calls, 2);
  Request check;
  check.job = Job::kCheck;
  check.subjects = {0};
  const Message checked = Handle(check);
  ASSERT_EQ(checked.findings.size(), 1u);
  EXPECT_EQ(checked.findings[0].status, TrialStatus::kPassed) << checked.findings[0].reason;
}

TEST_F(VariantKindsTest, CompilingWhatIsBroughtNeedsNoCompiler) {
  Admit("own", Axpy);
  const Workbench bench{*catalog_, jit_, {}};
  CompileRequest request;
  request.op = "axpy";
  request.targets = {{"null", NullDeviceInfo()}};
  request.variants = {"own"};
  absl::StatusOr<CompileReport> report = CompileVariants(bench, request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->binaries.size(), 1u);
  const CompileResult& own = report->binaries[0];
  EXPECT_EQ(own.status, TrialStatus::kPassed);
  EXPECT_EQ(own.origin, Origin::kLaunchFunction);
  EXPECT_EQ(own.smem_dynamic, -1);
  EXPECT_EQ(own.spill_bytes, -1);
  EXPECT_EQ(own.binary_bytes, 0);
  // With sources among them, it does.
  request.variants.clear();
  report = CompileVariants(bench, request);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace kvr
