// SPDX-License-Identifier: Apache-2.0
//
// On a GPU: a cubin that the test has compiled beforehand, a kernel that reads through a tensor
// map, and a launch function that drives the driver itself; one by one, bound, and captured
// together.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/platform.h"
#include "core/dtype.h"
#include "core/status.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/driver.h"
#include "registry/dispatcher.h"
#include "tests/jit/fixtures.h"
#include "tests/jit/tma_kernel.h"

namespace kvr {
namespace {

class ScaleOperation : public Operation {
 public:
  ScaleOperation() { spec_.key_policy = "n:pow2"; }
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>(1);
  }
  int64_t MinimumBytes(const AxisVector& axes) const override { return 4 * axes[0]; }

 private:
  OpSpec spec_ = ScaleOp();
};

// ScaleVariant with the plan that its fixture leaves open: one block does it all.
Variant OneBlock() {
  Variant variant = ScaleVariant();
  PlanProgram& plan = variant.plan;
  plan.axis_count = 1;
  plan.tunable_count = 3;
  const Expr n = *Expr::Parse("n", PlanProgram::Symbols(ScaleOp(), variant.tunables, {}, {}));
  plan.regions[0].elements = Expr::Constant(1);
  plan.kernels[0].block[0] = Expr::Constant(128);
  plan.kernels[0].smem = Expr::Constant(0);
  plan.kernels[0].args[4].value = n;
  plan.kernels[0].args[5].value = n;
  variant.fingerprint = FingerprintOf("one block");
  return variant;
}

Variant AsCubin(Variant variant, const Binary& binary) {
  variant.sources.clear();
  variant.headers.clear();
  variant.tunables.clear();
  variant.targets = {binary.target};
  variant.plan.tunable_count = 0;
  const Expr n = *Expr::Parse("n", PlanProgram::Symbols(ScaleOp(), {}, {}, {}));
  KernelSpec& kernel = variant.plan.kernels[0];
  kernel.args[4].value = kernel.args[5].value = n;
  kernel.entry = binary.Find(kernel.entry)->symbol;
  variant.cubins = {{binary.target, {"scale.cubin", binary.bytes, ""}}};
  variant.fingerprint = FingerprintOf("cubin");
  return variant;
}

bool IsCurrent(const cuda::Driver& driver) {
  cuda::Context context = nullptr;
  return driver.CtxGetCurrent(&context) == cuda::kSuccess && context != nullptr;
}

// Loads the cubin itself when opened, and enqueues a fill and the kernel.
class OwnLauncher : public LaunchFunction {
 public:
  OwnLauncher(const cuda::Driver& driver, BinaryPtr binary) : driver_(driver), binary_(binary) {}
  ~OwnLauncher() override {
    EXPECT_TRUE(IsCurrent(driver_));
    EXPECT_EQ(driver_.ModuleUnload(module_), cuda::kSuccess);
  }
  absl::Status Load() {
    EXPECT_TRUE(IsCurrent(driver_));
    cuda::Result result =
        driver_.ModuleLoadDataEx(&module_, binary_->bytes.data(), 0, nullptr, nullptr);
    if (result != cuda::kSuccess) return cuda::ErrorFrom(driver_, result, "cuModuleLoadDataEx");
    result = driver_.ModuleGetFunction(&function_, module_, binary_->kernels[0].symbol.c_str());
    if (result != cuda::kSuccess) return cuda::ErrorFrom(driver_, result, "cuModuleGetFunction");
    int ignored = 0;  // loads it for good, should loading be lazy
    driver_.FuncGetAttribute(&ignored, cuda::kFuncSharedSizeBytes, function_);
    return absl::OkStatus();
  }
  absl::Status Launch(const FunctionLaunch& launch) const override {
    EXPECT_TRUE(IsCurrent(driver_));
    const auto stream = static_cast<cuda::StreamHandle>(launch.stream);
    const auto y = reinterpret_cast<uintptr_t>(launch.tensors[2].data);
    cuda::Result result =
        driver_.MemsetD8Async(y, 0xff, static_cast<size_t>(launch.tensors[2].bytes()), stream);
    if (result != cuda::kSuccess) return cuda::ErrorFrom(driver_, result, "cuMemsetD8Async");
    int n = static_cast<int>(launch.axes[0]);
    int64_t elements = launch.axes[0];
    void* params[] = {const_cast<void**>(&launch.tensors[0].data),
                      launch.tensors[1].data,
                      const_cast<void**>(&launch.workspace[0]),
                      const_cast<void**>(&launch.tensors[2].data),
                      &n,
                      &elements};
    result = driver_.LaunchKernel(function_, 1, 1, 1, 128, 1, 1, 0, stream, params, nullptr);
    return result == cuda::kSuccess ? absl::OkStatus()
                                    : cuda::ErrorFrom(driver_, result, "cuLaunchKernel");
  }

 private:
  const cuda::Driver& driver_;
  const BinaryPtr binary_;
  cuda::ModuleHandle module_ = nullptr;
  cuda::FunctionHandle function_ = nullptr;
};

class OwnCode : public VariantCode {
 public:
  explicit OwnCode(BinaryPtr binary) : binary_(std::move(binary)) {}
  absl::Status Load() const override { return absl::OkStatus(); }
  absl::Status Values(absl::Span<const int64_t>, absl::Span<const int64_t>, const DeviceInfo&,
                      absl::Span<int64_t>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(const DeviceInfo&,
                                                       absl::Span<const int64_t>) const override {
    KVR_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::GetDriver());
    auto launcher = std::make_unique<OwnLauncher>(*driver, binary_);
    KVR_RETURN_IF_ERROR(launcher->Load());
    return launcher;
  }

 private:
  const BinaryPtr binary_;
};

Variant AsFunction(Variant variant, BinaryPtr binary) {
  variant.sources.clear();
  variant.headers.clear();
  variant.tunables.clear();
  variant.plan.tunable_count = 0;
  variant.plan.kernels.clear();
  variant.has_launch_function = true;
  variant.code = std::make_shared<OwnCode>(std::move(binary));
  variant.fingerprint = FingerprintOf("function");
  return variant;
}

// A variant, alone in a catalog, and its tensors: x is a ramp, y all ones.
class Served {
 public:
  Served(Variant variant, Device& device, Jit& jit, int64_t n) : device_(device), n_(n) {
    std::vector<std::unique_ptr<Operation>> operations;
    operations.push_back(std::make_unique<ScaleOperation>());
    catalog_ = std::make_unique<Catalog>(*Catalog::Create(std::move(operations)));
    variant.is_baseline = true;
    EXPECT_TRUE(catalog_->Admit(std::make_shared<Variant>(std::move(variant))).ok());
    dispatcher_ = std::make_unique<Dispatcher>(*catalog_, device, jit, DispatcherOptions{});
    for (size_t i = 0; i < 2; ++i) memory_.push_back(*device.Allocate(2 * n));
    TensorView x;
    x.data = memory_[0];
    x.dtype = DType::kBF16;
    x.rank = 1;
    x.shape[0] = n;
    TensorView y = x, alpha;
    y.data = memory_[1];
    alpha.data = &alpha_;
    views_ = {x, alpha, y};
  }
  ~Served() {
    dispatcher_.reset();
    for (void* memory : memory_) device_.Free(memory);
  }
  Served(const Served&) = delete;

  void Load(Stream stream) {
    const absl::StatusOr<LoadReport> report = dispatcher_->Load("scale", {{{"n", n_}}});
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->ready()) << report->Text();
    ASSERT_TRUE(dispatcher_->PrepareStream(stream).ok());
    dispatcher_->Freeze();
  }
  void Fill(int first, Stream stream) {
    std::vector<uint16_t> x(static_cast<size_t>(n_));
    for (size_t i = 0; i < x.size(); ++i) x[i] = FloatToBf16(Ramp(first, i));
    ASSERT_TRUE(device_.CopyToDevice(memory_[0], x.data(), 2 * n_, stream).ok());
    ASSERT_TRUE(device_.MemsetAsync(memory_[1], 0xff, 2 * n_, stream).ok());
    ASSERT_TRUE(device_.Synchronize(stream).ok());
  }
  absl::Status Launch(Stream stream) { return dispatcher_->Launch("scale", views_, stream); }
  // y == 2 x, exactly.
  void Check(int first, Stream stream, void* y = nullptr) {
    std::vector<uint16_t> out(static_cast<size_t>(n_));
    ASSERT_TRUE(device_.CopyToHost(out.data(), y == nullptr ? memory_[1] : y, 2 * n_, stream).ok());
    ASSERT_EQ(device_.Synchronize(stream), absl::OkStatus());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(Bf16ToFloat(out[i]), 2 * Ramp(first, i)) << i;
    }
  }
  Dispatcher& dispatcher() { return *dispatcher_; }
  std::vector<TensorView>& views() { return views_; }

 private:
  static float Ramp(int first, size_t i) {
    return static_cast<float>((static_cast<size_t>(first) + i) % 128);
  }
  Device& device_;
  const int64_t n_;
  float alpha_ = 2;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<void*> memory_;
  std::vector<TensorView> views_;
};

class VariantKindsGpu : public testing::Test {
 protected:
  static constexpr int64_t kElements = 64 * 37;  // no multiple of a box

  void SetUp() override {
    driver_ = *cuda::GetDriver();
    auto platform = Platform::Open({.cache_dir = cache_.path()});
    ASSERT_TRUE(platform.ok()) << platform.status();
    platform_ = *std::move(platform);
    device_ = *OpenCuda(0);
    target_ = device_->info().target;
    if (std::string reason; !platform_->jit().CanCompile(target_, &reason)) GTEST_SKIP() << reason;
    stream_ = *device_->CreateStream();
  }
  void TearDown() override {
    if (stream_.handle != nullptr) device_->DestroyStream(stream_);
  }
  BinaryPtr Compile() {
    auto built = platform_->jit().Build(
        ScaleOp(), OneBlock(), {{"BLOCK", 128}, {"UNROLL", 4}, {"TARGET_CTAS", 1}}, target_);
    EXPECT_TRUE(built.ok()) << built.status();
    return built.ok() ? built->binary : std::make_shared<Binary>();
  }

  TempDir cache_;
  const cuda::Driver* driver_ = nullptr;
  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Device> device_;
  std::string target_;
  Stream stream_;
  Jit no_compiler_{{}, nullptr};
};

TEST_F(VariantKindsGpu, ACubinRunsWithoutACompiler) {
  Served cubin(AsCubin(OneBlock(), *Compile()), *device_, no_compiler_, kElements);
  cubin.Load(stream_);
  cubin.Fill(1, stream_);
  ASSERT_EQ(cubin.Launch(stream_), absl::OkStatus());
  cubin.Check(1, stream_);
}

TEST_F(VariantKindsGpu, ALaunchFunctionEnqueuesOnTheStreamItIsGiven) {
  Served function(AsFunction(OneBlock(), Compile()), *device_, no_compiler_, kElements);
  function.Load(stream_);
  function.Fill(2, stream_);
  ASSERT_EQ(function.Launch(stream_), absl::OkStatus());
  function.Check(2, stream_);
  auto bound = function.dispatcher().Bind("scale", function.views());
  ASSERT_TRUE(bound.ok()) << bound.status();
  function.Fill(3, stream_);
  ASSERT_EQ(bound->Launch(stream_), absl::OkStatus());
  function.Check(3, stream_);
}

TEST_F(VariantKindsGpu, ATensorMapFollowsItsTensor) {
  if (std::string reason; !TmaVariant().Supports(target_, &reason)) GTEST_SKIP() << reason;
  Served tma(TmaVariant(), *device_, platform_->jit(), kElements);
  tma.Load(stream_);
  tma.Fill(4, stream_);
  ASSERT_EQ(tma.Launch(stream_), absl::OkStatus());
  tma.Check(4, stream_);

  auto bound = tma.dispatcher().Bind("scale", tma.views());
  ASSERT_TRUE(bound.ok()) << bound.status();
  // What was y is x now, and the other way round.
  void* const x = tma.views()[0].data;
  void* const y = tma.views()[2].data;
  tma.Fill(5, stream_);
  ASSERT_EQ(bound->Launch(stream_), absl::OkStatus());
  tma.Check(5, stream_);
  ASSERT_TRUE(bound->SetData(0, y).ok());
  ASSERT_TRUE(bound->SetData(2, x).ok());
  tma.Fill(6, stream_);
  ASSERT_TRUE(device_
                  ->CopyToDevice(y, std::vector<uint16_t>(kElements, FloatToBf16(3)).data(),
                                 2 * kElements, stream_)
                  .ok());
  ASSERT_EQ(bound->Launch(stream_), absl::OkStatus());
  std::vector<uint16_t> out(kElements);
  ASSERT_TRUE(device_->CopyToHost(out.data(), x, 2 * kElements, stream_).ok());
  ASSERT_EQ(device_->Synchronize(stream_), absl::OkStatus());
  for (uint16_t value : out) ASSERT_EQ(Bf16ToFloat(value), 6);

  // An address that TMA cannot take is an error before anything is launched.
  tma.views()[0].data = static_cast<char*>(x) + 2;
  const absl::Status status = tma.Launch(stream_);
  EXPECT_NE(status.message().find("aligned to 16 bytes"), absl::string_view::npos) << status;
  EXPECT_EQ(device_->Synchronize(stream_), absl::OkStatus());

  TensorMapLaunch map;
  map.dtype = DType::kBF16;
  map.rank = 2;
  map.shape = {kElements / 64, 64};
  map.box = {8, 64};
  TensorMap encoded;
  constexpr int kRounds = 100'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(device_->EncodeTensorMap(map, x, &encoded).ok());
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  std::cout << "encoding a tensor map: " << took.count() / kRounds << " ns" << std::endl;
}

TEST_F(VariantKindsGpu, AllOfThemAreCapturedAndReplayed) {
  const BinaryPtr binary = Compile();
  std::vector<std::unique_ptr<Served>> all;
  all.push_back(
      std::make_unique<Served>(AsCubin(OneBlock(), *binary), *device_, no_compiler_, kElements));
  all.push_back(
      std::make_unique<Served>(AsFunction(OneBlock(), binary), *device_, no_compiler_, kElements));
  if (TmaVariant().Supports(target_)) {
    all.push_back(std::make_unique<Served>(TmaVariant(), *device_, platform_->jit(), kElements));
  }
  for (auto& served : all) {
    served->Load(stream_);
    served->Fill(7, stream_);
  }
  const auto graph = device_->Capture(stream_, [&] {
    for (auto& served : all) {
      KVR_RETURN_IF_ERROR(served->Launch(stream_));
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int first : {7, 8}) {
    for (auto& served : all) served->Fill(first, stream_);
    ASSERT_EQ((*graph)->Launch(stream_), absl::OkStatus());
    for (auto& served : all) served->Check(first, stream_);
  }
}

}  // namespace
}  // namespace kvr
