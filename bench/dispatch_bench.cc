// SPDX-License-Identifier: Apache-2.0
//
// What KVR adds to a launch, beside the raw call in the same run (design budgets: BoundLaunch 20
// ns, Launch 100 ns, on the null device).
//
//   kvr-dispatch-bench [--device null|cuda:N] [--bundles DIR] [Google Benchmark's options]
//
// On a GPU NVRTC compiles the kernels; KVR_CUDA_HOME or CUDA_HOME say where it is.
//
// Rows are <variant>/<call>: `single` is one kernel without workspace, `empty` two kernels and a
// workspace under the baseline's plan (22 expressions). The raw call is Device::Launch on the null
// device, cuLaunchKernel on a GPU, with arguments already laid out, for the same kernels.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "bench/launch_world.h"
#include "bench/paired.h"
#include "core/install_layout.h"
#include "devices/cuda/driver.h"

namespace kvr::bench {
namespace {

struct Options {
  std::string device = "null";
  std::string bundles;
  bool null() const { return device == "null"; }
};
Options options;

LaunchWorld& World() {
  static LaunchWorld world(options.device, options.bundles);
  return world;
}

// Dispatchers with `keys` loaded keys, made once: 10 000 take seconds.
Dispatcher& Loaded(const std::string& variant, int keys) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, std::unique_ptr<Dispatcher>> made;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Dispatcher>& dispatcher = made[{variant, keys}];
  if (dispatcher == nullptr) dispatcher = World().Load(variant, keys);
  return *dispatcher;
}

// A stream with its workspaces, for one thread.
class OwnStream {
 public:
  explicit OwnStream(Dispatcher& dispatcher)
      : device_(dispatcher.device()), stream_(Must(device_.CreateStream())) {
    Check(dispatcher.PrepareStream(stream_));
  }
  ~OwnStream() { device_.DestroyStream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator Stream() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  Device& device_;
  Stream stream_;
};

// The kernels of one plan, straight to the device.
class RawLaunch {
 public:
  RawLaunch(Dispatcher& dispatcher, const Tensors& tensors, Stream stream)
      : device_(dispatcher.device()),
        stream_(stream),
        bound_(Must(dispatcher.Bind(kOp, tensors.views()))) {
    const Prepared& prepared = bound_.prepared();
    AxisVector axes;
    const OpSpec& spec = (*dispatcher.catalog().FindOp(kOp))->spec();
    Check(AxesFromTensors(spec, tensors.views(), &axes));
    Check(prepared.Plan(axes, &plan_));
    prepared.Regions(plan_, World().memory(), regions_.data());
    for (int i = 0; i < plan_.kernel_count; ++i) {
      prepared.Params(plan_, i, tensors.views(), regions_.data(), nullptr, params_[i].data());
      functions_[i] = prepared.function(plan_.kernels[i].kernel);
    }
    if (!options.null()) driver_ = Must(cuda::GetDriver());
  }

  bool operator()() {
    bool ok = true;
    for (int i = 0; i < plan_.kernel_count; ++i) {
      const KernelLaunch& launch = plan_.kernels[i];
      if (driver_ == nullptr) {
        ok &= device_.Launch(functions_[i], launch, {}, params_[i].data(), stream_).ok();
      } else {
        ok &= driver_->LaunchKernel(static_cast<cuda::FunctionHandle>(functions_[i].handle),
                                    launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
                                    launch.block.y, launch.block.z,
                                    static_cast<unsigned>(launch.smem),
                                    static_cast<cuda::StreamHandle>(stream_.handle),
                                    params_[i].data(), nullptr) == cuda::kSuccess;
      }
    }
    return ok;
  }

 private:
  Device& device_;
  const Stream stream_;
  BoundLaunch bound_;  // keeps what was loaded
  LaunchPlan plan_;
  std::array<void*, kMaxRegions> regions_{};
  std::array<std::array<void*, kMaxArgs>, kMaxKernels> params_{};
  std::array<Function, kMaxKernels> functions_{};
  const cuda::Driver* driver_ = nullptr;
};

// `call(i)` and the raw call, both after `prepare(i)`, which stands for the caller's own work.
template <typename Prepare, typename Call>
void Row(benchmark::State& state, Dispatcher& dispatcher, Tensors& tensors, Stream stream,
         Prepare&& prepare, Call&& call) {
  RawLaunch raw(dispatcher, tensors, stream);
  bool ok = true;
  // A GPU's queue holds 1024 launches: drained before it makes the caller wait.
  const Pairing pairing =
      options.null() ? Pairing{Clock::kThreadCpu, 1000} : Pairing{Clock::kWall, 200};
  // The context is current, as an application's is: the raw call needs it.
  Check(dispatcher.device().WithContext([&] {
    RunPaired(
        state, pairing,
        [&](int64_t i) {
          prepare(i);
          ok &= raw();
        },
        [&](int64_t i) {
          prepare(i);
          ok &= call();
        },
        [&] { ok &= dispatcher.device().Synchronize(stream).ok(); });
    return absl::OkStatus();
  }));
  if (!ok) state.SkipWithError("a launch failed");
}

constexpr Shape kShape = {16, 256};  // its plan has both kernels of `empty`

void Bound(benchmark::State& state, const std::string& variant) {
  Dispatcher& dispatcher = Loaded(variant, kBucketedKeys);
  const OwnStream stream(dispatcher);
  Tensors tensors(World().memory());
  tensors.SetShape(kShape);
  BoundLaunch bound = Must(dispatcher.Bind(kOp, tensors.views()));
  Row(
      state, dispatcher, tensors, stream, [](int64_t) {},
      [&] { return bound.Launch(stream).ok(); });
}

void ByName(benchmark::State& state, const std::string& variant) {
  Dispatcher& dispatcher = Loaded(variant, kBucketedKeys);
  const OwnStream stream(dispatcher);
  Tensors tensors(World().memory());
  tensors.SetShape(kShape);
  Row(
      state, dispatcher, tensors, stream, [](int64_t) {},
      [&] { return dispatcher.Launch(kOp, tensors.views(), stream).ok(); });
}

// One shape again and again; `loaded` or another one of its bucket.
void Hot(benchmark::State& state, const std::string& variant, int keys, Shape shape) {
  Dispatcher& dispatcher = Loaded(variant, keys);
  const OpHandle op = Must(dispatcher.FindOp(kOp));
  const OwnStream stream(dispatcher);
  Tensors tensors(World().memory());
  tensors.SetShape(shape);
  Row(
      state, dispatcher, tensors, stream, [](int64_t) {},
      [&] { return dispatcher.Launch(op, tensors.views(), stream).ok(); });
}

// Another one of `shapes` shapes every time, in an order that no cache foresees.
void Random(benchmark::State& state, const std::string& variant, int keys, int shapes) {
  Dispatcher& dispatcher = Loaded(variant, keys);
  const OpHandle op = Must(dispatcher.FindOp(kOp));
  const OwnStream stream(dispatcher);
  Tensors tensors(World().memory());
  tensors.SetShape(ShapeOf(0));
  uint64_t random = 1;
  Row(
      state, dispatcher, tensors, stream,
      [&](int64_t) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        tensors.SetShape(
            ShapeOf(static_cast<int>((random >> 33) * static_cast<uint64_t>(shapes) >> 31)));
      },
      [&] { return dispatcher.Launch(op, tensors.views(), stream).ok(); });
}

// Publishes without pause while it lives.
class Publisher {
 public:
  Publisher(Dispatcher& dispatcher, const std::string& variant, int keys)
      : thread_([this, &dispatcher, variant, keys] {
          const GenerationPtr generations[] = {World().Generation(variant, keys, 1),
                                               World().Generation(variant, keys, 2)};
          while (!stop_.load()) {
            Check(dispatcher.Publish(generations[published_.fetch_add(1) % 2]).status());
          }
        }) {}
  ~Publisher() {
    stop_ = true;
    thread_.join();
  }
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  int64_t published() const { return published_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> published_{0};
  std::thread thread_;
};

void Threads(benchmark::State& state, const std::string& variant, bool publishing) {
  Dispatcher& dispatcher = Loaded(variant, kBucketedKeys);
  const OpHandle op = Must(dispatcher.FindOp(kOp));
  std::unique_ptr<Publisher> publisher;
  if (publishing && state.thread_index() == 0) {
    publisher = std::make_unique<Publisher>(dispatcher, variant, kBucketedKeys);
  }
  const OwnStream stream(dispatcher);
  Tensors tensors(World().memory());
  tensors.SetShape({kShape.tokens, kShape.topk - state.thread_index()});
  Row(
      state, dispatcher, tensors, stream, [](int64_t) {},
      [&] { return dispatcher.Launch(op, tensors.views(), stream).ok(); });
  if (publisher != nullptr) {
    state.counters["published"] = static_cast<double>(publisher->published());
  }
}

// The plan's expressions alone: the raw call is no measure of them, and a GPU is none of their
// business.
void Plan(benchmark::State& state, const std::string& variant) {
  Dispatcher& dispatcher = Loaded(variant, kBucketedKeys);
  const OwnStream stream(dispatcher);
  Tensors tensors(World().memory());
  tensors.SetShape(kShape);
  const BoundLaunch bound = Must(dispatcher.Bind(kOp, tensors.views()));
  AxisVector axes;
  Check(AxesFromTensors((*World().catalog().FindOp(kOp))->spec(), tensors.views(), &axes));
  LaunchPlan plan;
  Row(
      state, dispatcher, tensors, stream, [](int64_t) {},
      [&] {
        benchmark::DoNotOptimize(axes);
        return bound.prepared().Plan(axes, &plan).ok();
      });
}

template <typename Function, typename... Arguments>
benchmark::internal::Benchmark* Add(const std::string& name, Function function,
                                    Arguments... arguments) {
  return benchmark::RegisterBenchmark(
             name.c_str(), [=](benchmark::State& state) { function(state, arguments...); })
      ->UseManualTime();
}

void Register() {
  for (const std::string variant : {"single", "empty"}) {
    Add(variant + "/bound", Bound, variant);
    Add(variant + "/launch/loaded", Hot, variant, kBucketedKeys, kShape);
    Add(variant + "/launch/other", Hot, variant, kBucketedKeys, Shape{15, 250});
    Add(variant + "/launch/by-name", ByName, variant);
    Add(variant + "/launch/other-random", Random, variant, kBucketedKeys, 10000);
  }
  if (!options.null()) return;
  for (const std::string variant : {"single", "empty"}) Add(variant + "/plan", Plan, variant);
  for (const int keys : {1, 10, 100, 1000, 10000}) {
    const std::string after = std::to_string(keys);
    Add("empty/keys/hot/" + after, Hot, "empty", keys, ShapeOf(keys / 2));
    Add("empty/keys/random/" + after, Random, "empty", keys, keys);
  }
  Add("empty/threads", Threads, "empty", false)->ThreadRange(1, 16);
  Add("empty/threads-publishing", Threads, "empty", true)->ThreadRange(1, 16);
}

// Takes our options out of the command line. False: one is wrong.
bool ParseOptions(int* argc, char** argv) {
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    std::string* value = std::strcmp(argv[i], "--device") == 0    ? &options.device
                         : std::strcmp(argv[i], "--bundles") == 0 ? &options.bundles
                                                                  : nullptr;
    if (value == nullptr) {
      argv[kept++] = argv[i];
    } else if (++i == *argc) {
      return false;
    } else {
      *value = argv[i];
    }
  }
  *argc = kept;
  if (options.bundles.empty()) options.bundles = InstallPath("share/kvr/bench/variants");
  return true;
}

}  // namespace
}  // namespace kvr::bench

int main(int argc, char** argv) {
  using namespace kvr::bench;
  if (!ParseOptions(&argc, argv)) {
    std::fprintf(stderr, "kvr-dispatch-bench [--device null|cuda:N] [--bundles DIR]\n");
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const kvr::DeviceInfo& info = World().device().info();
  benchmark::AddCustomContext("device", info.name);
  benchmark::AddCustomContext("driver", info.driver);
  Register();
  TableReporter table;
  benchmark::RunSpecifiedBenchmarks(&table);
  benchmark::Shutdown();
  return 0;
}
