// SPDX-License-Identifier: Apache-2.0
//
// Variants beyond compiled sources, through the dispatcher on the null device: launch functions,
// plan functions, tensor maps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/counting.h"
#include "registry/bound_launch.h"
#include "registry/prepared.h"
#include "tests/registry/fakes.h"

namespace kvr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Stream kDefaultStream{};

// What a plugin's code was asked for.
struct Log {
  int loads = 0, opens = 0, closes = 0, plans = 0;
  std::vector<int64_t> tunables;            // of the last open
  absl::Status load, open, values, launch;  // the answers
  struct Call {
    std::vector<int64_t> axes;
    std::vector<void*> data;
    float alpha = 0;
    std::vector<void*> workspace;
    std::vector<int64_t> workspace_bytes;
    void* stream = nullptr;
  };
  std::vector<Call> calls;
  size_t calls_at_close = 0;
};

class LoggedFunction : public LaunchFunction {
 public:
  explicit LoggedFunction(Log* log) : log_(log) {}
  ~LoggedFunction() override {
    ++log_->closes;
    log_->calls_at_close = log_->calls.size();
  }
  absl::Status Launch(const FunctionLaunch& launch) const override {
    Log::Call& call = log_->calls.emplace_back();
    call.axes.assign(launch.axes.begin(), launch.axes.end());
    for (const TensorView& tensor : launch.tensors) call.data.push_back(tensor.data);
    call.alpha = *static_cast<const float*>(launch.tensors[2].data);
    call.workspace.assign(launch.workspace.begin(), launch.workspace.end());
    call.workspace_bytes.assign(launch.workspace_bytes.begin(), launch.workspace_bytes.end());
    call.stream = launch.stream;
    return log_->launch;
  }

 private:
  Log* log_;
};

class LoggedCode : public VariantCode {
 public:
  explicit LoggedCode(Log* log) : log_(log) {}
  absl::Status Load() const override {
    ++log_->loads;
    return log_->load;
  }
  absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(
      const DeviceInfo& device, absl::Span<const int64_t> tunable_values) const override {
    EXPECT_EQ(device.kind, "null");
    ++log_->opens;
    log_->tunables.assign(tunable_values.begin(), tunable_values.end());
    if (!log_->open.ok()) return log_->open;
    return std::make_unique<LoggedFunction>(log_);
  }
  // "blocks" of a config: half of what the manifest's own [let] would say.
  absl::Status Values(absl::Span<const int64_t> axes, absl::Span<const int64_t> tunable_values,
                      const DeviceInfo&, absl::Span<int64_t> values) const override {
    ++log_->plans;
    values[0] = (axes[0] + 2 * tunable_values[0] - 1) / (2 * tunable_values[0]);
    return log_->values;
  }

 private:
  Log* log_;
};

// "own": a launch function over axpy's workspace of 4 bytes a block, zeroed.
std::shared_ptr<Variant> FunctionVariant(Log* log) {
  std::shared_ptr<Variant> variant = AxpyVariant("own", /*baseline=*/true);
  variant->sources.clear();
  variant->plan.kernels.clear();
  variant->has_launch_function = true;
  variant->code = std::make_shared<LoggedCode>(log);
  return variant;
}

// Encoded maps say what they were asked for, and launches what they were given.
class WatchedDevice : public CallingDevice {
 public:
  using CallingDevice::CallingDevice;
  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override {
    ++contexts;
    return work();
  }
  absl::Status EncodeTensorMap(const TensorMapLaunch& map, const void* data,
                               TensorMap* encoded) override {
    ++encodings;
    if (!encoding.ok()) return encoding;
    *encoded = {};
    encoded->opaque[0] = reinterpret_cast<uintptr_t>(data);
    encoded->opaque[1] = static_cast<uint64_t>(map.shape[0]);
    encoded->opaque[2] = static_cast<uint64_t>(map.box[0]);
    return absl::OkStatus();
  }
  absl::Status Launch(Function, const KernelLaunch& launch, const LaunchAttributes&,
                      void* const* params, Stream) override {
    grids.push_back(launch.grid.x);
    if (reads_map) maps.push_back(*static_cast<const TensorMap*>(params[0]));
    return absl::OkStatus();
  }
  int contexts = 0, encodings = 0;
  bool reads_map = false;
  absl::Status encoding;
  std::vector<uint32_t> grids;
  std::vector<TensorMap> maps;
};

struct Bench {
  explicit Bench(std::shared_ptr<Variant> variant)
      : world({std::move(variant)}),
        device(*world.device),
        dispatcher(
            std::make_unique<Dispatcher>(world.catalog, device, *world.jit, DispatcherOptions{})) {}
  LoadReport Load(int64_t n) {
    absl::StatusOr<LoadReport> report = dispatcher->Load("axpy", {{{"n", n}}});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : LoadReport{};
  }
  World world;
  WatchedDevice device;
  std::unique_ptr<Dispatcher> dispatcher;
};

TEST(LaunchFunctions, AreCalledWithWhatTheOpAndTheWorkspaceAre) {
  Log log;
  Bench bench(FunctionVariant(&log));
  const LoadReport report = bench.Load(1000);
  ASSERT_TRUE(report.ready()) << report.Text();
  EXPECT_EQ(bench.world.compiles, 0);
  EXPECT_GE(log.loads, 1) << "before any launch";
  EXPECT_EQ(log.opens, 1);
  EXPECT_THAT(log.tunables, ElementsAre(64, 1024));
  EXPECT_TRUE(log.calls.empty());

  AxpyTensors tensors(1000);
  const Stream stream = *bench.device.CreateStream();
  ASSERT_TRUE(bench.dispatcher->PrepareStream(stream).ok());
  bench.dispatcher->Freeze();
  const int64_t cleared = bench.world.device->counters().bytes_set;
  ASSERT_TRUE(bench.dispatcher->Launch("axpy", tensors.views, stream).ok());
  ASSERT_EQ(log.calls.size(), 1u);
  const Log::Call& call = log.calls[0];
  EXPECT_THAT(call.axes, ElementsAre(1000));
  EXPECT_THAT(call.data, ElementsAre(tensors.views[0].data, tensors.views[1].data, &tensors.alpha,
                                     tensors.views[3].data));
  EXPECT_EQ(call.alpha, 2);
  EXPECT_EQ(call.stream, stream.handle);
  EXPECT_THAT(call.workspace_bytes, ElementsAre(4 * 16));
  EXPECT_NE(call.workspace[0], nullptr);
  EXPECT_EQ(bench.world.device->counters().bytes_set - cleared, 4 * 16) << "it asks for zeroes";
  EXPECT_TRUE(bench.device.grids.empty());

  // A scalar left out has its default.
  tensors.views[2].data = nullptr;
  ASSERT_TRUE(bench.dispatcher->Launch("axpy", tensors.views, stream).ok());
  EXPECT_EQ(log.calls[1].alpha, 1);
  EXPECT_EQ(log.opens, 1);

  bench.dispatcher.reset();
  EXPECT_EQ(log.closes, 1);
  EXPECT_EQ(bench.device.contexts, 2) << "opened and closed where the device's context is current";
  bench.device.DestroyStream(stream);
}

TEST(LaunchFunctions, AreNotCalledForAnEmptyBatch) {
  Log log;
  std::shared_ptr<Variant> variant = FunctionVariant(&log);
  variant->plan.regions[0].elements = Expr::Constant(100);  // whatever the batch
  Bench bench(variant);
  const LoadReport report = bench.Load(0);
  ASSERT_TRUE(report.ready()) << report.Text();
  AxpyTensors tensors(0);
  EXPECT_TRUE(bench.dispatcher->Launch("axpy", tensors.views, kDefaultStream).ok());
  absl::StatusOr<BoundLaunch> bound = bench.dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_TRUE(log.calls.empty());
  EXPECT_EQ(bench.world.device->counters().bytes_set, 0);
}

// Calls wait, as on a host stream, until something waits for the whole device.
class LateDevice : public CallingDevice {
 public:
  LateDevice(NullDevice& device, Log* log) : CallingDevice(device), log_(log) {}
  absl::Status Call(const LaunchFunction&, const FunctionLaunch&, Stream) override {
    ++waiting_;
    return absl::OkStatus();
  }
  void Free(void* memory) override {
    log_->calls.resize(log_->calls.size() + static_cast<size_t>(std::exchange(waiting_, 0)));
    CallingDevice::Free(memory);
  }

 private:
  Log* log_;
  int waiting_ = 0;
};

TEST(LaunchFunctions, AreClosedAfterTheCallsInFlight) {
  Log log;
  World world({FunctionVariant(&log)});
  LateDevice device(*world.device, &log);
  Dispatcher dispatcher(world.catalog, device, *world.jit, DispatcherOptions{});
  ASSERT_TRUE(dispatcher.Load("axpy", {{{"n", 1000}}})->ready());
  AxpyTensors tensors(1000);
  PreparedPtr prepared;
  {
    const absl::StatusOr<BoundLaunch> bound = dispatcher.Bind("axpy", tensors.views);
    ASSERT_TRUE(bound.ok()) << bound.status();
    const Prepared& of = bound->prepared();
    prepared = *Prepare(device, world.catalog.ops()[0]->spec(), of.variant_ptr(), of.config(),
                        of.binary(), nullptr);
  }
  ASSERT_EQ(log.opens, 2);
  LaunchPlan plan;
  AxisVector axes{};
  axes[0] = 1000;
  ASSERT_TRUE(prepared->Plan(axes, &plan).ok());
  std::vector<std::byte> workspace(static_cast<size_t>(plan.workspace_bytes) + kWorkspaceAlign);
  ASSERT_TRUE(prepared->Launch(plan, tensors.views, workspace.data(), kDefaultStream).ok());
  EXPECT_TRUE(log.calls.empty());
  prepared.reset();
  EXPECT_EQ(log.closes, 1);
  EXPECT_EQ(log.calls_at_close, 1u);
}

TEST(LaunchFunctions, ServeBoundLaunches) {
  Log log;
  Bench bench(FunctionVariant(&log));
  ASSERT_TRUE(bench.Load(1000).ready());
  AxpyTensors tensors(1000), others(1000);
  absl::StatusOr<BoundLaunch> bound = bench.dispatcher->Bind("axpy", tensors.views);
  ASSERT_TRUE(bound.ok()) << bound.status();
  ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  ASSERT_TRUE(bound->SetData(3, others.views[3].data).ok());
  ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  ASSERT_EQ(log.calls.size(), 2u);
  EXPECT_EQ(log.calls[0].data[3], tensors.views[3].data);
  EXPECT_EQ(log.calls[1].data[3], others.views[3].data);
  EXPECT_EQ(log.calls[1].alpha, 2);
}

TEST(LaunchFunctions, AreCapturedAndAllocateNothingElsewhere) {
  Log log;
  World world({FunctionVariant(&log)});
  const auto dispatcher = world.Dispatch();
  ASSERT_TRUE(dispatcher->Load("axpy", {{{"n", 1000}}})->ready());
  const Stream stream = *world.device->CreateStream();
  ASSERT_TRUE(dispatcher->PrepareStream(stream).ok());
  const AxpyTensors tensors(1000);
  const OpHandle op = *dispatcher->FindOp("axpy");
  ASSERT_TRUE(dispatcher->Launch(op, tensors.views, stream).ok());  // counts this thread
  const int64_t before = AllocationsOfThisThread();
  const absl::Status status = dispatcher->Launch(op, tensors.views, stream);
  EXPECT_EQ(AllocationsOfThisThread() - before, 0);
  EXPECT_TRUE(status.ok()) << status;
  const auto graph =
      world.device->Capture(stream, [&] { return dispatcher->Launch(op, tensors.views, stream); });
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(world.device->counters().captured_launches, 1);
  world.device->DestroyStream(stream);
}

TEST(LaunchFunctions, ThatFailSayWhose) {
  Log log;
  log.open = Error(absl::StatusCode::kFailedPrecondition, "no handle", "install cuBLAS");
  Bench bench(FunctionVariant(&log));
  LoadReport report = bench.Load(1000);
  EXPECT_FALSE(report.ready());
  EXPECT_THAT(report.Text(), HasSubstr("axpy/own {BLOCK=64,CTAS=1024} on Null device: no handle"));
  log.open = absl::OkStatus();
  log.load = Error(absl::StatusCode::kInternal, "the library is gone", "build it");
  report = bench.Load(1000);
  EXPECT_THAT(report.Text(), HasSubstr("the library is gone"));
  log.load = absl::OkStatus();
  ASSERT_TRUE(bench.Load(1000).ready());
  log.launch = Error(absl::StatusCode::kInvalidArgument, "alpha is odd", "make it even");
  const absl::Status status =
      bench.dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream);
  EXPECT_EQ(What(status), "axpy/own: launch function: alpha is odd");
  EXPECT_EQ(Fix(status), "make it even");

  std::shared_ptr<Variant> data = FunctionVariant(&log);
  data->code = nullptr;
  Bench without(data);
  EXPECT_THAT(without.Load(1000).Text(), HasSubstr("a launch function without its library"));
}

// What was measured is found again by its key, and neither a cache nor a compiler is asked.
TEST(LaunchFunctions, AreServedFromASelectionByKey) {
  Log log;
  const std::shared_ptr<Variant> variant = FunctionVariant(&log);
  Bench bench(variant);
  const OpSpec& spec = bench.world.catalog.ops()[0]->spec();
  const Config config = DefaultConfig(variant->tunables);
  Selection selection{.variant = *bench.world.catalog.Find("axpy", "own"), .config = config};
  selection.binary = *bench.world.jit->Key(spec, *variant, config, "null");
  const DeviceInfo& info = bench.device.info();
  GenerationBuilder builder(info.model, info.target);
  const KeyPolicy policy = *KeyPolicy::Parse("n:pow2", spec);
  builder.SetPolicy("axpy", policy);
  ASSERT_TRUE(
      builder.Select("axpy", policy.Bucket(*ResolveAxes(spec, {{"n", 1000}})), selection).ok());
  ASSERT_TRUE(bench.dispatcher->Publish(builder.Build(1)).ok());
  const LoadReport report = bench.Load(1000);
  ASSERT_TRUE(report.ready()) << report.Text();
  EXPECT_EQ(report.items[0].binary, selection.binary);
  EXPECT_FALSE(report.items[0].is_compiled);
  EXPECT_THAT(report.Text(),
              HasSubstr("own {BLOCK=64,CTAS=1024}, selected, brought by the variant"));
}

TEST(PlanFunctions, FeedThePlanAndAreLoadedBeforeALaunch) {
  Log log;
  std::shared_ptr<Variant> variant = AxpyVariant("planned", /*baseline=*/true);
  PlanProgram& plan = variant->plan;
  const auto code = std::make_shared<LoggedCode>(&log);
  variant->code = code;
  plan.function = code;
  plan.function_values = {"half"};
  plan.lets.clear();
  const AxpyOp op;
  const SymbolTable symbols =
      PlanProgram::Symbols(op.spec(), variant->tunables, plan.function_values, plan.lets);
  plan.kernels[0].grid[0] = *Expr::Parse("half", symbols);
  plan.kernels[0].args.back().value = *Expr::Parse("n", symbols);
  plan.kernels[0].block[0] = *Expr::Parse("BLOCK", symbols);
  plan.regions[0].elements = *Expr::Parse("half", symbols);
  Bench bench(variant);
  ASSERT_TRUE(bench.Load(1000).ready());
  EXPECT_GE(log.loads, 1);
  EXPECT_EQ(log.opens, 0);
  ASSERT_TRUE(bench.dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream).ok());
  EXPECT_THAT(bench.device.grids, ElementsAre(8));
  log.values = Error(absl::StatusCode::kFailedPrecondition, "n is too odd", "choose another");
  const LoadReport refused = bench.Load(600);
  EXPECT_THAT(refused.Text(), HasSubstr("n is too odd"));
}

// axpy whose x goes through a map of [n / 8, 8] in boxes of [4, 8].
std::shared_ptr<Variant> MapVariant(const std::string& rows = "floordiv(n, 8)") {
  std::shared_ptr<Variant> variant = AxpyVariant("mapped", /*baseline=*/true);
  const AxpyOp op;
  PlanProgram& plan = variant->plan;
  const SymbolTable symbols = PlanProgram::Symbols(op.spec(), variant->tunables, {}, plan.lets);
  TensorMapSpec map;
  map.name = "x_tiles";
  map.shape = {*Expr::Parse(rows, symbols), Expr::Constant(8)};
  map.box = {Expr::Constant(4), Expr::Constant(8)};
  plan.tensor_maps.push_back(std::move(map));
  plan.kernels[0].args[0] = {.kind = ArgSpec::Kind::kTensorMap, .text = "tensor_map.x_tiles"};
  variant->sources[0].content =
      "template <int B>\n__global__ void axpy(const __grid_constant__ CUtensorMap x, const float* "
      "y, float alpha, float* out, int* counts, int n) {}\n";
  return variant;
}

TEST(TensorMaps, AreEncodedForTheTensorsOfEveryLaunch) {
  Bench bench(MapVariant());
  bench.device.reads_map = true;
  const LoadReport report = bench.Load(1000);
  ASSERT_TRUE(report.ready()) << report.Text();
  const AxpyTensors one(1000), other(1000), fewer(999);
  for (const AxpyTensors* tensors : {&one, &other, &fewer}) {
    ASSERT_TRUE(bench.dispatcher->Launch("axpy", tensors->views, kDefaultStream).ok());
    const TensorMap& map = bench.device.maps.back();
    EXPECT_EQ(map.opaque[0], reinterpret_cast<uintptr_t>(tensors->views[0].data));
    EXPECT_EQ(map.opaque[1], tensors == &fewer ? 124u : 125u);
    EXPECT_EQ(map.opaque[2], 4u);
  }
  EXPECT_EQ(bench.device.encodings, 3);
}

TEST(TensorMaps, OfABoundLaunchAreEncodedWhenAnAddressChanges) {
  Bench bench(MapVariant());
  bench.device.reads_map = true;
  ASSERT_TRUE(bench.Load(1000).ready());
  const AxpyTensors one(1000), other(1000);
  absl::StatusOr<BoundLaunch> bound = bench.dispatcher->Bind("axpy", one.views);
  ASSERT_TRUE(bound.ok()) << bound.status();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  // The first launch may have made a workspace, which binds again.
  const int settled = bench.device.encodings;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(bench.device.encodings, settled);
  ASSERT_TRUE(bound->SetData(0, other.views[0].data).ok());
  EXPECT_EQ(bench.device.encodings, settled + 1);
  ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(bench.device.maps.back().opaque[0], reinterpret_cast<uintptr_t>(other.views[0].data));

  // An address that cannot be encoded changes nothing.
  bench.device.encoding = Error(absl::StatusCode::kFailedPrecondition, "not aligned", "align it");
  EXPECT_THAT(std::string(What(bound->SetData(0, one.views[0].data))),
              HasSubstr("axpy/mapped: tensor map 'x_tiles': not aligned"));
  bench.device.encoding = absl::OkStatus();
  ASSERT_TRUE(bound->Launch(kDefaultStream).ok());
  EXPECT_EQ(bench.device.maps.back().opaque[0], reinterpret_cast<uintptr_t>(other.views[0].data));
}

TEST(TensorMaps, NeverReachBeyondTheirTensor) {
  Bench bench(MapVariant("n"));
  ASSERT_TRUE(bench.Load(1000).ready());
  const absl::Status status =
      bench.dispatcher->Launch("axpy", AxpyTensors(1000).views, kDefaultStream);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(What(status)), HasSubstr("larger than the tensor of 1000 elements"));
  EXPECT_FALSE(bench.dispatcher->Bind("axpy", AxpyTensors(1000).views).ok());
  EXPECT_EQ(bench.device.encodings, 0);
}

TEST(TensorMaps, OfAnEmptyBatchAreNotEncoded) {
  Bench bench(MapVariant());
  ASSERT_TRUE(bench.Load(0).ready());
  EXPECT_TRUE(bench.dispatcher->Launch("axpy", AxpyTensors(0).views, kDefaultStream).ok());
  EXPECT_TRUE(bench.dispatcher->Bind("axpy", AxpyTensors(0).views).ok());
  EXPECT_EQ(bench.device.encodings, 0);
}

}  // namespace
}  // namespace kvr
