// SPDX-License-Identifier: Apache-2.0
//
// Every exact variant of moe_decode_fp8 on what the generator does not draw: absent tensors, every
// e4m3 code, repeated launches. KVR_TEST_DEVICE says where.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "api/runtime.h"
#include "core/dtype.h"
#include "core/status.h"
#include "tests/variants/problem.h"
#include "variants/moe_decode_fp8/op.h"

namespace kvr::moe_decode_fp8 {
namespace {

constexpr char kOp[] = "moe_decode_fp8";

// Outputs as bytes, in the op's order; those left out are empty.
using Outputs = std::vector<std::vector<char>>;

// Of what the device can run.
std::vector<std::string> ExactVariants() {
  std::vector<std::string> names;
  auto runtime = Runtime::Open({.device = KVR_TEST_DEVICE});
  if (!runtime.ok()) return names;
  for (const VariantPtr& variant : (*(*runtime)->catalog().FindOp(kOp))->variants) {
    if (variant->semantics == Semantics::kExact &&
        variant->Supports((*runtime)->device().info().target)) {
      names.push_back(variant->name);
    }
  }
  return names;
}

class MoeFp8Launch : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    RuntimeOptions options{.device = KVR_TEST_DEVICE};
    options.forced = {.op = kOp, .variant = GetParam()};
    auto opened = Runtime::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    runtime_ = *std::move(opened);
    stream_ = runtime_->device().CreateStream().value();
  }
  void TearDown() override { runtime_->device().DestroyStream(stream_); }

  const Operation& op() const { return *(*runtime_->catalog().FindOp(kOp))->operation; }

  Problem Draw(uint64_t seed) const {
    Problem problem(op(), {{"seq_len", 19}, {"local_expert_offset", 5}});
    problem.Generate(seed);
    return problem;
  }

  absl::StatusOr<Outputs> TryLaunch(const Problem& problem, bool all_outputs) {
    Device& device = runtime_->device();
    KVR_ASSIGN_OR_RETURN(LoadReport report,
                         runtime_->Load(kOp, {NamedAxes(op().spec(), problem.axes)}));
    KVR_RETURN_IF_ERROR(report.items.front().status);
    KVR_RETURN_IF_ERROR(runtime_->PrepareStream(stream_));
    std::vector<TensorView> tensors = TensorShapes(op().spec(), problem.axes);
    std::vector<void*> memory;
    Outputs outputs(op().spec().outputs.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool input = i < problem.inputs.size();
      const size_t output = i - problem.inputs.size();
      if (input) tensors[i].data = problem.inputs[i].data;
      if (tensors[i].rank == 0 || (input && tensors[i].data == nullptr)) continue;
      if (!input && output != kOutput && !all_outputs) continue;
      KVR_ASSIGN_OR_RETURN(void* const data, device.Allocate(tensors[i].bytes()));
      memory.push_back(data);
      if (input) {
        KVR_RETURN_IF_ERROR(
            device.CopyToDevice(data, tensors[i].data, tensors[i].bytes(), stream_));
      } else {
        KVR_RETURN_IF_ERROR(device.MemsetAsync(data, 0xff, tensors[i].bytes(), stream_));
        outputs[output].resize(tensors[i].bytes());
      }
      tensors[i].data = data;
    }
    KVR_RETURN_IF_ERROR(runtime_->Launch(kOp, tensors, stream_));
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].empty()) continue;
      const TensorView& tensor = tensors[problem.inputs.size() + o];
      KVR_RETURN_IF_ERROR(
          device.CopyToHost(outputs[o].data(), tensor.data, tensor.bytes(), stream_));
    }
    KVR_RETURN_IF_ERROR(device.Synchronize(stream_));
    for (void* data : memory) device.Free(data);
    return outputs;
  }

  Outputs Launch(const Problem& problem, bool all_outputs = true) {
    absl::StatusOr<Outputs> outputs = TryLaunch(problem, all_outputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : Outputs(3);
  }

  // Every element within the bound of the reference for the same bytes.
  void ExpectRight(const Problem& problem, bool all_outputs = true) {
    const Outputs outputs = Launch(problem, all_outputs);
    ASSERT_FALSE(outputs[kOutput].empty());
    const std::vector<ReferenceOutput> references = problem.Reference(4);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].empty()) continue;
      const DType dtype = op().spec().outputs[o].dtype;
      for (size_t i = 0; i < references[o].expected.size(); ++i) {
        const double value = LoadAsDouble(outputs[o].data(), dtype, static_cast<int64_t>(i));
        ASSERT_LE(std::abs(value - references[o].expected[i]), references[o].bound[i])
            << op().spec().outputs[o].name << "[" << i << "] is " << value << ", not "
            << references[o].expected[i];
      }
    }
  }

  std::unique_ptr<Runtime> runtime_;
  Stream stream_;
};

TEST_P(MoeFp8Launch, TakesTheContractsTensorsAlone) {
  Problem problem = Draw(2);
  for (const int input : {kAlpha, kBeta, kClampLimit, kNumValidTokens}) {
    problem.inputs[input].data = nullptr;
  }
  ExpectRight(problem, /*all_outputs=*/false);
}

TEST_P(MoeFp8Launch, EveryCodeHasItsValue) {
  Problem problem = Draw(4);
  for (const int input : {kHiddenStates, kGemm1Weights, kGemm2Weights}) {
    uint64_t i = 0;
    for (uint8_t& code : problem.Input<uint8_t>(input)) {
      code = static_cast<uint8_t>(i++ * 167 >> 2);
      if ((code & 0x7f) == 0x7f) code &= 0x80;
    }
  }
  ExpectRight(problem);
}

TEST_P(MoeFp8Launch, ABatchOfPaddingGivesZeros) {
  Problem problem = Draw(2);
  problem.Input<int32_t>(kNumValidTokens)[0] = 0;
  ExpectRight(problem);
}

TEST_P(MoeFp8Launch, RepeatsItselfToTheBit) {
  const Problem problem = Draw(3);
  const Outputs first = Launch(problem);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(Launch(problem), first);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MoeFp8Launch);
INSTANTIATE_TEST_SUITE_P(, MoeFp8Launch, ::testing::ValuesIn(ExactVariants()),
                         [](const auto& variant) { return variant.param; });

}  // namespace
}  // namespace kvr::moe_decode_fp8
