// SPDX-License-Identifier: Apache-2.0
#include "tests/api/captures.h"

#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "api/platform.h"
#include "core/status.h"
#include "core/strings.h"
#include "tests/jit/fixtures.h"

namespace kvr {
namespace {

constexpr const char* kOp = "null";
constexpr int kTunableValues = 64;

std::string Numbers(int count) {
  std::vector<std::string> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(StrCat(i));
  return StrJoin(numbers, ", ");
}

std::string Tunable(const std::string& name, int count, const std::string& scope) {
  return StrCat("\n[tunables.", name, "]\nvalues = [", Numbers(count), "]\ndefault = 0\nscope = \"",
                scope, "\"\ndescription = \"of a test\"\n");
}

std::string Kernel(const std::string& name, const std::string& entry, const std::string& args) {
  return StrCat("\n[[kernel]]\nname = \"", name, "\"\nentry = \"", entry,
                "\"\ngrid = [\"ceildiv(n, 64)\"]\nblock = [\"64\"]\nargs = [", args, "]\n");
}

void Plant(const std::string& root, const std::string& name, const std::string& rest,
           const std::string& source) {
  WriteFile(StrCat(root, "/", name, "/kernels.cu"), source);
  WriteFile(StrCat(root, "/", name, "/variant.toml"),
            StrCat("schema = 1\nop = \"null\"\nname = \"", name,
                   "\"\nversion = \"1.0.0\"\nsemantics = \"exact\"\ndescription = \"of a test\"\n"
                   "targets = [\"sm_80+\", \"host\"]\nsources = [\"kernels.cu\"]\n",
                   rest));
}

constexpr const char* kIndex =
    "  const int i = blockIdx.x * 64 + threadIdx.x;\n  if (i >= n) return;\n  ";

// One directory for the whole process: later runtimes find what earlier ones compiled.
struct PlantedDir : TempDir {
  PlantedDir() {
    const std::string root = *this / "bundles";
    const std::string tags = StrCat(Tunable("LOW", kTunableValues, "launch"),
                                    Tunable("HIGH", kMostTags / kTunableValues, "launch"));
    Plant(root, "tagged",
          StrCat(tags,
                 Kernel("write", "write", "\"x\", \"y\", \"i32(64 * HIGH + LOW)\", \"i32(n)\"")),
          StrCat("__global__ void write(const float* x, float* y, int tag, int n) {\n", kIndex,
                 "y[i] = x[i] + tag;\n}\n"));
    // Counts what it runs on since the workspace was cleared: once.
    Plant(
        root, "counted",
        StrCat(tags,
               "\n[[workspace]]\nname = \"counts\"\ndtype = \"int32\"\nelements = \"n\"\n"
               "zeroed = true\n",
               Kernel("count", "count", "\"x\", \"y\", \"workspace.counts\", \"i32(n)\""),
               Kernel("write", "write",
                      "\"x\", \"y\", \"workspace.counts\", \"i32(64 * HIGH + LOW)\", \"i32(n)\"")),
        StrCat("__global__ void count(const float* x, float* y, int* counts, int n) {\n", kIndex,
               "counts[i] += 1;\n  y[i] = -1;\n}\n"
               "__global__ void write(const float* x, float* y, int* counts, int tag, int n) {\n",
               kIndex, "y[i] = x[i] + tag + 10000 * (counts[i] - 1);\n}\n"));
    Plant(root, "compiled",
          StrCat(Tunable("TAG", kCompiledTags, "compile"),
                 Kernel("write", "write<TAG>", "\"x\", \"y\", \"i32(n)\"")),
          StrCat("template <int Tag>\n__global__ void write(const float* x, float* y, int n) {\n",
                 kIndex, "y[i] = x[i] + Tag;\n}\n"));
  }
};
const TempDir& Planted() {
  static const PlantedDir directory;
  return directory;
}

// What the device itself has no use for; the library is loaded and stays.
template <typename F>
F* CudaEntry(const char* symbol) {
  void* const found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
  EXPECT_NE(found, nullptr) << symbol;
  return reinterpret_cast<F*>(found);
}

Config ConfigOf(const std::string& variant, int tag) {
  if (variant == "baseline") return {{"THREADS", 256}};
  if (variant == "compiled") return {{"TAG", tag}};
  return {{"HIGH", tag / kTunableValues}, {"LOW", tag % kTunableValues}};
}

}  // namespace

bool OnGpu() { return std::string_view(kCaptureDevice) == "cuda"; }

std::string ModeName(CaptureMode mode) {
  constexpr const char* kNames[] = {"global", "thread-local", "relaxed"};
  return StrCat("a ", kNames[static_cast<int>(mode)], " capture");
}

RuntimeOptions EngineOptions(RuntimeOptions options) {
  if (options.device == "auto") options.device = kCaptureDevice;
  options.plugin_roots.push_back(Planted() / "bundles");
  options.cache_dir = Planted() / "cache";
  options.environment = false;
  return options;
}

Layers::Layers(Device& device, Stream stream, int count, int64_t elements)
    : device_(device), stream_(stream), elements_(elements), views_(static_cast<size_t>(count)) {
  x_ = static_cast<float*>(Must(device.Allocate(bytes())));
  y_ = static_cast<float*>(Must(device.Allocate(bytes())));
  std::vector<float> inputs;
  for (int layer = 0; layer < count; ++layer) {
    for (int64_t i = 0; i < elements; ++i) inputs.push_back(input(layer, i));
    for (float* const memory : {x(layer), y(layer)}) {
      views_[static_cast<size_t>(layer)].push_back({memory, DType::kF32, 1, {elements}});
    }
  }
  EXPECT_KVR_OK(device.CopyToDevice(x_, inputs.data(), bytes(), stream));
  EXPECT_KVR_OK(Poison());
  EXPECT_KVR_OK(device.Synchronize(stream));  // the vector goes
}

Layers::~Layers() {
  device_.Free(x_);
  device_.Free(y_);
}

// With every tag a whole number that a float holds.
float Layers::input(int layer, int64_t element) const {
  return static_cast<float>((element * 7 + layer * 1009) % 4001);
}

absl::Status Layers::Poison() { return device_.MemsetAsync(y_, 0xff, bytes(), stream_); }

std::string Layers::Wrong(int tag) const {
  std::vector<float> outputs(static_cast<size_t>(count() * elements_));
  absl::Status status = device_.CopyToHost(outputs.data(), y_, bytes(), stream_);
  status.Update(device_.Synchronize(stream_));
  return status.ok() ? WrongIn(outputs.data(), tag) : std::string(status.message());
}

std::string Layers::WrongIn(const float* outputs, int tag) const {
  for (int layer = 0; layer < count(); ++layer) {
    for (int64_t i = 0; i < elements_; ++i) {
      const float found = outputs[layer * elements_ + i], in = input(layer, i);
      if (found == in + static_cast<float>(tag)) continue;
      return StrCat("layer ", layer, ", element ", i, ": x + ", found - in, ", not x + ", tag);
    }
  }
  return "";
}

Engine::Engine(RuntimeOptions options) {
  absl::StatusOr<std::unique_ptr<Runtime>> opened = Runtime::Open(EngineOptions(options));
  if (!opened.ok()) {
    ADD_FAILURE() << opened.status();
    std::abort();  // nothing that follows could run
  }
  runtime_ = *std::move(opened);
  EXPECT_TRUE(runtime_->catalog().rejections().empty());
  const LoadReport report = Must(runtime_->Load(kOp, {Axes{{"n", kElements}}}));
  EXPECT_TRUE(report.ready()) << report.Text();
  tags_[runtime_->generation()->digest()] = 0;
  stream_ = NewStream();
  layers_ = std::make_unique<Layers>(device(), stream_, kLayers);
}

Engine::~Engine() {
  for (const Stream stream : streams_) EXPECT_KVR_OK(device().Synchronize(stream));
  layers_.reset();
  for (const Stream stream : streams_) device().DestroyStream(stream);
}

Stream Engine::NewStream(std::string_view pool) {
  streams_.push_back(Must(device().CreateStream()));
  EXPECT_KVR_OK(runtime_->PrepareStream(streams_.back(), pool));
  return streams_.back();
}

GenerationPtr Engine::Selecting(const std::string& variant, int tag) {
  const DeviceInfo& info = device().info();
  const OpSpec& spec = Must(runtime_->catalog().FindOp(kOp))->spec();
  const KeyPolicy policy = Must(KeyPolicy::Parse("n:pow2", spec));
  GenerationBuilder builder(info.model, info.target);
  builder.SetPolicy(kOp, policy);
  const auto select = [&](int64_t n, const std::string& name, int with) {
    const Selection selection{.variant = Must(runtime_->catalog().Find(kOp, name)),
                              .config = ConfigOf(name, with)};
    const BucketedKey key = policy.Bucket(Must(ResolveAxes(spec, {{"n", n}})));
    EXPECT_KVR_OK(builder.Select(kOp, key, selection));
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  ++number_;
  for (const int64_t n : {kElements, kColdElements}) select(n, variant, tag);
  // Keys that nothing is loaded under tell apart what selects the same.
  select(int64_t{1} << 20, "tagged", static_cast<int>(number_ % kMostTags));
  select(int64_t{1} << 21, "tagged", static_cast<int>(number_ / kMostTags));
  GenerationPtr next = builder.Build(number_);
  tags_[next->digest()] = tag;
  return next;
}

GenerationPtr Engine::Publish(const std::string& variant, int tag) {
  GenerationPtr next = Selecting(variant, tag);
  const absl::StatusOr<LoadReport> report = runtime_->Publish(next);
  EXPECT_TRUE(report.ok()) << report.status();
  return next;
}

void Engine::PushOut() {
  for (int i = 0; i <= Dispatcher::kKeptGenerations; ++i) Publish("baseline", 0);
  runtime_->Collect();
}

int Engine::TagOf(const Fingerprint& digest) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = tags_.find(digest);
  EXPECT_NE(it, tags_.end()) << digest.Hex();
  return it == tags_.end() ? -1 : it->second;
}

absl::Status Engine::Launch(int layer, Stream stream) {
  return runtime_->Launch(kOp, layers_->views(layer), stream);
}

absl::Status Engine::LaunchLayers(Stream stream) {
  for (int layer = 0; layer < layers_->count(); ++layer) {
    KVR_RETURN_IF_ERROR(Launch(layer, stream));
  }
  return absl::OkStatus();
}

std::string Engine::Eager(int tag) {
  EXPECT_KVR_OK(layers_->Poison());
  EXPECT_KVR_OK(LaunchLayers());
  return layers_->Wrong(tag);
}

Captured Engine::Capture(const CaptureOptions& options, CaptureMode mode,
                         absl::FunctionRef<void()> between) {
  EXPECT_KVR_OK(device().BeginCapture(stream_, mode));
  const std::unique_ptr<CaptureScope> scope = Must(runtime_->OpenCapture(stream_, options));
  EXPECT_KVR_OK(LaunchLayers());
  between();
  Captured captured;
  captured.binding = std::make_unique<GraphBinding>(Must(scope->Finish()));
  captured.graph = Must(device().EndCapture(stream_, options.keeps_graph));
  return captured;
}

std::string Engine::Replay(const Captured& captured, int tag) {
  EXPECT_KVR_OK(layers_->Poison());
  EXPECT_KVR_OK(captured.graph->Launch(stream_));
  return layers_->Wrong(tag);
}

std::string Engine::ApplyAndReplay(const Captured& captured) {
  const absl::StatusOr<Applied> applied = captured.binding->Apply(captured.exec());
  if (!applied.ok()) return std::string(applied.status().message());
  if (applied->outcome == Applied::kNeedsRecapture) return applied->reason;
  EXPECT_EQ(applied->digest, captured.binding->digest(captured.exec()));
  return Replay(captured, TagOf(applied->digest));
}

bool Engine::Retires(uint64_t count) {
  for (int i = 0; i < 1000; ++i) {
    runtime_->Collect();
    if (runtime_->counters().retired >= count) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return runtime_->counters().retired == count;
}

OwnKernel::OwnKernel(Runtime& runtime) : device_(runtime.device()) {
  const Catalog::Op& op = *Must(runtime.catalog().FindOp(kOp));
  const Built built = Must(runtime.platform().jit().Build(
      op.spec(), *op.baseline, DefaultConfig(op.baseline->tunables), device_.info().target));
  module_ = Must(device_.Load(*built.binary));
  function_ = Must(module_->Get(built.binary->kernels[0].symbol, 0));
}

absl::Status OwnKernel::Copy(const float* from, float* to, int count, Stream stream) {
  void* params[] = {&from, &to, &count};
  KernelLaunch launch;
  launch.grid.x = static_cast<uint32_t>((count + 255) / 256);
  launch.block.x = 256;
  return device_.Launch(function_, launch, {}, params, stream);
}

int64_t FreeDeviceBytes(Device& device) {
  if (!OnGpu()) return 0;
  size_t free_bytes = 0, total = 0;
  const auto get = CudaEntry<int(size_t*, size_t*)>("cuMemGetInfo_v2");
  EXPECT_KVR_OK(device.WithContext([&] {
    EXPECT_EQ(get(&free_bytes, &total), 0);
    return absl::OkStatus();
  }));
  return static_cast<int64_t>(free_bytes);
}

OwnContext::OwnContext() {
  EXPECT_EQ(CudaEntry<int(unsigned)>("cuInit")(0), 0);
  EXPECT_EQ(CudaEntry<int(void**, unsigned, int)>("cuCtxCreate_v2")(&handle_, 0, 0), 0);
  void* popped = nullptr;  // it was made current
  EXPECT_EQ(CudaEntry<int(void**)>("cuCtxPopCurrent_v2")(&popped), 0);
}

OwnContext::~OwnContext() {
  if (handle_ == nullptr) return;
  EXPECT_EQ(CudaEntry<int(void*)>("cuCtxDestroy_v2")(handle_), 0);
}

void CapturesTest::SetUp() {
  static const absl::Status* const there = [] {
    const auto platform = Platform::Open({.cache_dir = Planted() / "cache", .compilers = false});
    return new absl::Status(platform.ok() ? (*platform)->OpenDevice(kCaptureDevice).status()
                                          : platform.status());
  }();
  if (!there->ok()) GTEST_SKIP() << "no " << kCaptureDevice << " device: " << *there;
}

}  // namespace kvr
