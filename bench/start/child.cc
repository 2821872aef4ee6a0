// SPDX-License-Identifier: Apache-2.0
#include "bench/start/child.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "api/runtime.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/driver.h"
#include "jit/nvrtc/library.h"

namespace kvr::bench {
namespace {

class Stamps {
 public:
  explicit Stamps(int64_t start_ns) : start_ns_(start_ns) {}
  void Add(const char* name, int64_t now_ns) {
    json_[name] = static_cast<double>(now_ns - start_ns_ - left_out_ns_) / 1e6;
  }
  void Add(const char* name) { Add(name, NowNs()); }
  void LeaveOut(int64_t ns) { left_out_ns_ += ns; }
  const Json& json() const { return json_; }

 private:
  const int64_t start_ns_;
  int64_t left_out_ns_ = 0;
  Json json_ = Json::object();
};

absl::Status Failed(std::string_view what, int code) {
  return Error(absl::StatusCode::kInternal, StrCat(what, " failed: ", code), "see kvr doctor");
}

// work(i) for each of `items`, on `threads` threads; the first error.
absl::Status InParallel(const std::vector<int>& items, int threads,
                        const std::function<absl::Status(int)>& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status first;
  const auto run = [&] {
    for (size_t i = next++; i < items.size(); i = next++) {
      const absl::Status status = work(items[i]);
      const std::lock_guard<std::mutex> lock(mutex);
      first.Update(status);
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(run);
  run();
  for (std::thread& helper : helpers) helper.join();
  return first;
}

// --- KVR: as a serving process boots.

// One block of zeros for the tensors of any of the set: slots, scales and logits of zero are legal.
class ZeroTensors {
 public:
  static constexpr int64_t kAlign = 256;

  absl::Status Allocate(const Runtime& kvr, const StartSet& set) {
    int64_t most = 0;
    for (const StartVariant& each : set.variants) {
      KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, kvr.catalog().FindOp(each.op));
      KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(op->spec(), each.axes));
      std::vector<TensorView> views = TensorShapes(op->spec(), axes);
      int64_t used = 0;
      for (TensorView& view : views) {
        if (op->spec().tensor(static_cast<int>(&view - views.data())).is_scalar) continue;
        view.data = reinterpret_cast<void*>(static_cast<uintptr_t>(used) + 1);  // made real below
        used += (view.bytes() + kAlign - 1) / kAlign * kAlign;
      }
      most = std::max(most, used);
      views_.push_back(std::move(views));
    }
    Device& device = kvr.device();
    KVR_ASSIGN_OR_RETURN(void* const memory, device.Allocate(most));
    for (std::vector<TensorView>& views : views_)
      for (TensorView& view : views)
        if (view.data != nullptr) {
          view.data = static_cast<char*>(memory) + (reinterpret_cast<uintptr_t>(view.data) - 1);
        }
    return device.MemsetAsync(memory, 0, most, {});
  }
  absl::Span<const TensorView> of(size_t i) const { return views_[i]; }

 private:
  std::vector<std::vector<TensorView>> views_;
};

absl::Status StartKvr(const StartSet& set, const ChildJob& job, bool compilers, Stamps* stamps) {
  RuntimeOptions options{.device = set.device,
                         .selection_file = set.SelectionPath(),
                         .journal = "none",
                         .cache_dir = job.cache,
                         .miss_policy = MissPolicy::kError,
                         .compilers = compilers,
                         .environment = false};
  std::map<std::string, std::vector<Axes>> shapes;
  for (const StartVariant& each : set.variants) {
    if (each.approximate) {
      options.approximate.push_back({each.op, each.variant, each.quality});
    }
    shapes[each.op].push_back(each.axes);
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> kvr, Runtime::Open(options));
  stamps->Add("opened");
  std::vector<std::string> ops;
  std::vector<int> all;
  for (const auto& each : shapes) {
    all.push_back(static_cast<int>(ops.size()));
    ops.push_back(each.first);
  }
  const int threads = static_cast<int>(ops.size());
  KVR_RETURN_IF_ERROR(InParallel(all, threads, [&](int i) -> absl::Status {
    KVR_ASSIGN_OR_RETURN(const LoadReport report, kvr->Load(ops[i], shapes.at(ops[i])));
    return report.ready() ? absl::OkStatus() : absl::InternalError(report.Text());
  }));
  stamps->Add("loaded");

  ZeroTensors tensors;
  KVR_RETURN_IF_ERROR(tensors.Allocate(*kvr, set));
  KVR_ASSIGN_OR_RETURN(const Stream stream, kvr->device().CreateStream());
  KVR_RETURN_IF_ERROR(kvr->PrepareStream(stream));
  KVR_RETURN_IF_ERROR(kvr->device().Synchronize({}));
  stamps->Add("tensors");
  for (size_t i = 0; i < set.variants.size(); ++i) {
    KVR_RETURN_IF_ERROR(kvr->Launch(set.variants[i].op, tensors.of(i), stream));
  }
  KVR_RETURN_IF_ERROR(kvr->device().Synchronize(stream));
  stamps->Add("launched");

  // Was it what the set names? A start that served baselines would be a quick one.
  for (const StartVariant& each : set.variants) {
    const std::vector<ServedInfo> served = kvr->served();
    if (std::none_of(served.begin(), served.end(), [&](const ServedInfo& info) {
          return info.op == each.op && info.variant == each.variant && !info.missed;
        })) {
      return absl::InternalError(StrCat(each.op, "/", each.variant, " did not serve its key"));
    }
  }
  if (kvr->counters().misses > 0) return absl::InternalError("a launch missed its key");
  return absl::OkStatus();
}

absl::Status CompileWithKvr(const StartSet& set, const ChildJob& job, Stamps* stamps, Json* each) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Platform> platform,
                       Platform::Open({.cache_dir = job.cache}));
  Jit& jit = platform->jit();
  stamps->Add("opened");
  std::vector<double> ms(set.variants.size());
  KVR_RETURN_IF_ERROR(InParallel(set.Distinct(), job.threads, [&](int i) -> absl::Status {
    const StartVariant& wanted = set.variants[i];
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(wanted.op));
    KVR_ASSIGN_OR_RETURN(const VariantPtr variant,
                         platform->catalog().Find(wanted.op, wanted.variant));
    KVR_ASSIGN_OR_RETURN(const Built built,
                         jit.Build(op->spec(), *variant, wanted.config, set.target));
    ms[i] = built.milliseconds;
    return built.cache_hit ? absl::InternalError("it was in the cache") : absl::OkStatus();
  }));
  stamps->Add("built");
  *each = ms;
  return absl::OkStatus();
}

// --- The driver alone.

absl::Status LoadCubins(const StartSet& set, const std::map<int, std::string>& cubins,
                        Stamps* stamps) {
  KVR_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::GetDriver());
  cuda::DeviceHandle device = 0;
  cuda::Context context = nullptr;
  int code = driver->DeviceGet(&device, set.ordinal);
  if (code == cuda::kSuccess) code = driver->PrimaryCtxRetain(&context, device);
  if (code == cuda::kSuccess) code = driver->CtxSetCurrent(context);
  if (code != cuda::kSuccess) return Failed("the context", code);
  stamps->Add("context");
  for (const auto& [i, cubin] : cubins) {
    cuda::ModuleHandle module = nullptr;
    code = driver->ModuleLoadDataEx(&module, cubin.data(), 0, nullptr, nullptr);
    if (code != cuda::kSuccess) return Failed("cuModuleLoadDataEx", code);
    for (const std::string& symbol : set.variants[i].symbols) {
      cuda::FunctionHandle function = nullptr;
      code = driver->ModuleGetFunction(&function, module, symbol.c_str());
      // Under lazy loading this is what brings the code onto the device.
      if (code == cuda::kSuccess && driver->FuncLoad != nullptr) code = driver->FuncLoad(function);
      if (code != cuda::kSuccess) return Failed("cuModuleGetFunction", code);
    }
  }
  stamps->Add("loaded");
  return absl::OkStatus();
}

absl::Status StartCubins(const StartSet& set, Stamps* stamps) {
  std::map<int, std::string> cubins;
  for (const int i : set.Distinct()) {
    KVR_ASSIGN_OR_RETURN(cubins[i], ReadWhole(set.CubinPath(i)));
  }
  return LoadCubins(set, cubins, stamps);
}

// --- NVRTC alone.

struct PlainUnit {
  std::string text;
  std::vector<std::string> entries, options, header_names, header_texts;
};

absl::StatusOr<PlainUnit> ReadUnit(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path));
  const Json json = Json::parse(text);
  PlainUnit unit{.text = json["text"], .entries = json["entries"]};
  const std::string options = json["options"];
  for (const std::string_view option : Split(options, ' ')) unit.options.emplace_back(option);
  // As KVR sets them: no files from elsewhere, and nothing that an earlier process compiled.
  unit.options.insert(unit.options.end(), {"--no-source-include", "--no-cache"});
  for (const Json& header : json["headers"]) {
    unit.header_names.push_back(header["name"]);
    unit.header_texts.push_back(header["content"]);
  }
  return unit;
}

std::vector<const char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

absl::StatusOr<std::string> CompilePlain(const NvrtcLibrary& nvrtc, const PlainUnit& unit) {
  NvrtcProgram program = nullptr;
  int code = nvrtc.create_program(
      &program, unit.text.c_str(), "unit.cu", static_cast<int>(unit.header_names.size()),
      Pointers(unit.header_texts).data(), Pointers(unit.header_names).data());
  if (code != kNvrtcSuccess) return Failed("nvrtcCreateProgram", code);
  for (const std::string& entry : unit.entries) {
    nvrtc.add_name_expression(program, entry.c_str());
  }
  code = nvrtc.compile_program(program, static_cast<int>(unit.options.size()),
                               Pointers(unit.options).data());
  size_t size = 0;
  std::string cubin;
  if (code == kNvrtcSuccess) code = nvrtc.get_cubin_size(program, &size);
  if (code == kNvrtcSuccess) {
    cubin.resize(size);
    code = nvrtc.get_cubin(program, cubin.data());
  }
  nvrtc.destroy_program(&program);
  if (code != kNvrtcSuccess) return Failed("nvrtcCompileProgram", code);
  return cubin;
}

absl::Status StartNvrtc(const StartSet& set, const ChildJob& job, Stamps* stamps) {
  const int64_t begin = NowNs();
  std::map<int, PlainUnit> units;
  for (const int i : set.Distinct()) {
    KVR_ASSIGN_OR_RETURN(units[i], ReadUnit(set.UnitPath(i)));
  }
  stamps->LeaveOut(NowNs() - begin);
  KVR_ASSIGN_OR_RETURN(const Toolchain toolchain, FindToolchain({}));
  KVR_ASSIGN_OR_RETURN(const NvrtcLibrary nvrtc, LoadNvrtc(toolchain));
  stamps->Add("opened");
  std::map<int, std::string> cubins;
  for (const auto& [i, unit] : units) cubins[i];  // the map stays as it is from here on
  KVR_RETURN_IF_ERROR(InParallel(set.Distinct(), job.threads, [&](int i) -> absl::Status {
    KVR_ASSIGN_OR_RETURN(cubins.at(i), CompilePlain(nvrtc, units.at(i)));
    return absl::OkStatus();
  }));
  stamps->Add("built");
  return set.device.empty() ? absl::OkStatus() : LoadCubins(set, cubins, stamps);
}

// --- The cache.

constexpr int kHitRounds = 50;

// The file's bytes through read(2): what a binary on disk costs at the least.
bool ReadPlainly(const std::string& path, std::string* buffer) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, buffer->data(), buffer->size());
  close(file);
  return bytes > 0;
}

absl::Status MeasureHits(const StartSet& set, const ChildJob& job, Json* out) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Platform> platform,
                       Platform::Open({.cache_dir = job.cache}));
  std::string buffer(size_t{4} << 20, '\0');
  Json rows = Json::array();
  for (const int i : set.Distinct()) {
    const StartVariant& wanted = set.variants[i];
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(wanted.op));
    KVR_ASSIGN_OR_RETURN(const VariantPtr variant,
                         platform->catalog().Find(wanted.op, wanted.variant));
    KVR_ASSIGN_OR_RETURN(const Built held,
                         platform->jit().Build(op->spec(), *variant, wanted.config, set.target));
    std::vector<double> disk_us, read_us, held_us;
    for (int round = 0; round < kHitRounds; ++round) {
      BinaryCache cache(job.cache);  // holds nothing yet
      const std::string path = cache.PathOf(wanted.key);
      int64_t begin = NowNs();
      const BinaryPtr binary = cache.Get(wanted.key);
      disk_us.push_back(static_cast<double>(NowNs() - begin) / 1e3);
      begin = NowNs();
      const bool read = ReadPlainly(path, &buffer);
      read_us.push_back(static_cast<double>(NowNs() - begin) / 1e3);
      begin = NowNs();
      const absl::StatusOr<Built> again =
          platform->jit().Build(op->spec(), *variant, wanted.config, set.target);
      held_us.push_back(static_cast<double>(NowNs() - begin) / 1e3);
      if (binary == nullptr || !read || !again.ok() || !again->cache_hit) {
        return absl::InternalError(StrCat(wanted.op, "/", wanted.variant, " is not in the cache"));
      }
    }
    rows.push_back({{"op", wanted.op},
                    {"variant", wanted.variant},
                    {"bytes", wanted.bytes},
                    {"disk_us", disk_us},
                    {"read_us", read_us},
                    {"held_us", held_us}});
  }
  *out = std::move(rows);
  return absl::OkStatus();
}

}  // namespace

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

absl::StatusOr<Json> RunChild(const ChildJob& job) {
  Stamps stamps(job.start_ns);
  stamps.Add("main", job.main_ns);
  const int64_t begin = NowNs();
  KVR_ASSIGN_OR_RETURN(const StartSet set, ReadStartSet(job.directory));
  stamps.LeaveOut(NowNs() - begin);
  Json each, hits;
  if (job.mode == "kvr" || job.mode == "prebuilt") {
    KVR_RETURN_IF_ERROR(StartKvr(set, job, job.mode == "kvr", &stamps));
  } else if (job.mode == "compile") {
    KVR_RETURN_IF_ERROR(CompileWithKvr(set, job, &stamps, &each));
  } else if (job.mode == "nvrtc") {
    KVR_RETURN_IF_ERROR(StartNvrtc(set, job, &stamps));
  } else if (job.mode == "cubins") {
    KVR_RETURN_IF_ERROR(StartCubins(set, &stamps));
  } else if (job.mode == "hit") {
    KVR_RETURN_IF_ERROR(MeasureHits(set, job, &hits));
  } else {
    return absl::InvalidArgumentError(StrCat("no such child: ", job.mode));
  }
  Json result = {{"stamps", stamps.json()}};
  if (!each.is_null()) result["each_ms"] = each;
  if (!hits.is_null()) result["hits"] = hits;
  return result;
}

}  // namespace kvr::bench
