// SPDX-License-Identifier: Apache-2.0
//
// Publications with a real compiler and kernels that really run: outputs are those of the
// generation that serves, whatever fails, goes back or is unloaded meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher.h"
#include "tests/devices/host/host_fixture.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 300;

template <typename T>
T Must(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return *std::move(value);
}

// out[i] = `value`
std::shared_ptr<Variant> Writes(const std::string& name, const std::string& value) {
  std::shared_ptr<Variant> variant = AxpyVariant(name, name == "baseline");
  variant->targets = {"host"};
  KernelSpec& kernel = variant->plan.kernels[0];
  kernel.entry = "write<BLOCK>";
  kernel.args.erase(kernel.args.begin() + 4);
  variant->plan.regions.clear();
  variant->sources[0].content = StrCat(
      "template <int B>\n__global__ void write(const float* x, const float* y, float alpha, "
      "float* out, int n) {\n  const int i = blockIdx.x * B + threadIdx.x;\n"
      "  if (i < n) out[i] = ",
      value, ";\n}\n");
  return variant;
}

class HostPublishing : public testing::Test {
 protected:
  static constexpr int kVariants = 12;  // more than the history has
  HostPublishing() {
    std::vector<std::unique_ptr<Operation>> operations;
    operations.push_back(std::make_unique<AxpyOp>());
    catalog = std::make_unique<Catalog>(Must(Catalog::Create(std::move(operations))));
    std::vector<std::shared_ptr<Variant>> variants = {Writes("baseline", "-1"),
                                                      Writes("wrong", "undeclared")};
    for (int i = 0; i < kVariants; ++i) variants.push_back(Writes(StrCat("v", i), StrCat(i)));
    for (auto& variant : variants) EXPECT_TRUE(catalog->Admit(std::move(variant)).ok());
    std::vector<std::unique_ptr<Compiler>> compilers;
    compilers.push_back(OpenHostCompiler(KVR_SOURCE_DIR "/sdk/device"));
    jit = std::make_unique<Jit>(std::move(compilers), &cache);
    dispatcher = std::make_unique<Dispatcher>(*catalog, device, *jit, DispatcherOptions{});
    const absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", kElements}}});
    EXPECT_TRUE(report->ready()) << report->Text();
    EXPECT_TRUE(dispatcher->PrepareStream(stream).ok());
  }
  ~HostPublishing() override {
    EXPECT_TRUE(device.Synchronize(stream).ok());
    device.DestroyStream(stream);
  }

  GenerationPtr Of(const std::string& name) {
    const OpSpec& spec = catalog->ops()[0]->spec();
    const KeyPolicy policy = Must(KeyPolicy::Parse("n:pow2", spec));
    GenerationBuilder builder(device.info().model, device.info().target);
    builder.SetPolicy("axpy", policy);
    const VariantPtr variant = Must(catalog->Find("axpy", name));
    EXPECT_TRUE(builder
                    .Select("axpy", policy.Bucket(Must(ResolveAxes(spec, {{"n", kElements}}))),
                            {.variant = variant, .config = DefaultConfig(variant->tunables)})
                    .ok());
    return builder.Build(1);
  }
  void ExpectOutputs(float value) {
    AxpyTensors tensors(kElements);
    ASSERT_TRUE(dispatcher->Launch("axpy", tensors.views, stream).ok());
    ASSERT_TRUE(device.Synchronize(stream).ok());
    for (int64_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(tensors.memory[static_cast<size_t>(2 * kElements + i)], value) << i;
    }
  }

  Device& device = HostDeviceUnderTest();
  BinaryCache cache{""};
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<Jit> jit;
  std::unique_ptr<Dispatcher> dispatcher;
  const Stream stream = Must(device.CreateStream());
};

TEST_F(HostPublishing, ACompileErrorLeavesWhatServedServing) {
  ASSERT_TRUE(dispatcher->Publish(Of("v1")).ok());
  const absl::Status status = dispatcher->Publish(Of("wrong")).status();
  EXPECT_THAT(status.ToString(), HasSubstr("undeclared"));
  EXPECT_THAT(status.ToString(), HasSubstr("wrong.cu:4"));
  ExpectOutputs(1);
  const int64_t builds = jit->stats().builds;
  ASSERT_TRUE(dispatcher->Rollback("baseline").ok());
  ExpectOutputs(-1);
  ASSERT_TRUE(dispatcher->Rollback("").ok());
  ExpectOutputs(1);
  EXPECT_EQ(jit->stats().builds, builds);
}

TEST_F(HostPublishing, WhatIsInFlightEndsWithTheBinaryThatItWasLaunchedWith) {
  constexpr int kRounds = 3 * kVariants;
  std::vector<std::unique_ptr<AxpyTensors>> launches;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(dispatcher->Publish(Of(StrCat("v", i % kVariants))).ok());
    launches.push_back(std::make_unique<AxpyTensors>(kElements));
    ASSERT_TRUE(dispatcher->Launch("axpy", launches.back()->views, stream).ok());
  }
  ASSERT_TRUE(device.Synchronize(stream).ok());
  for (int i = 0; i < kRounds; ++i) {
    const std::vector<float>& memory = launches[static_cast<size_t>(i)]->memory;
    for (int64_t k = 0; k < kElements; ++k) {
      ASSERT_EQ(memory[static_cast<size_t>(2 * kElements + k)], static_cast<float>(i % kVariants));
    }
  }
  // All but the current one and those that are kept.
  EXPECT_EQ(dispatcher->counters().retired, kRounds - 1u - Dispatcher::kKeptGenerations);
}

}  // namespace
}  // namespace kvr
