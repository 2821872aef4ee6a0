// SPDX-License-Identifier: Apache-2.0
#include "devices/null/null.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/capture.h"
#include "core/occupancy.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/recording_device.h"

namespace kvr {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::align_val_t kAlign{256};
constexpr int64_t kMostBytes = int64_t{1} << 40;  // beyond it, sanitizers abort rather than refuse

struct NullStream {
  CapturingStream capture;
};

struct NullEvent {
  std::atomic<Clock::rep> at{0};  // 0: never recorded
};

// Launches of one thread on one device. Only its thread writes, so plain loads and stores do.
struct alignas(64) ThreadCounts {
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> captured{0};
  static void Add(std::atomic<int64_t>* count, int64_t more) {
    count->store(count->load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
};

struct NullFunction : std::enable_shared_from_this<NullFunction> {
  std::string symbol;
  std::shared_ptr<const std::string> binary;
  std::atomic<int64_t>* replays = nullptr;  // the device's, by symbol
  std::atomic<bool> loaded{true};
};

// One piece of recorded work.
struct NullWork {
  NullNode::Kind kind = NullNode::Kind::kNothing;
  std::shared_ptr<NullFunction> function;
  KernelLaunch launch;
  void* dst = nullptr;
  uint8_t value = 0;
  int64_t bytes = 0;
};

class NullModule : public Module {
 public:
  NullModule(std::function<std::atomic<int64_t>*(std::string_view symbol)> counter_of,
             std::atomic<int64_t>* live, std::string binary, int64_t smem_limit)
      : counter_of_(std::move(counter_of)),
        live_(live),
        binary_(std::make_shared<const std::string>(std::move(binary))),
        smem_limit_(smem_limit) {
    live_->fetch_add(1, std::memory_order_relaxed);
  }
  ~NullModule() override {
    for (const auto& function : functions_) function->loaded = false;
    live_->fetch_sub(1, std::memory_order_relaxed);
  }

  absl::StatusOr<Function> Get(std::string_view symbol, int64_t dynamic_smem) override {
    if (dynamic_smem < 0 || dynamic_smem > smem_limit_) {
      return Error(
          absl::StatusCode::kFailedPrecondition,
          StrCat("kernel '", symbol, "' wants ", dynamic_smem, " bytes of dynamic shared memory"),
          StrCat("use at most ", smem_limit_, " bytes on this device"));
    }
    std::lock_guard lock(mutex_);
    for (const auto& known : functions_) {
      if (known->symbol == symbol) return Function{known.get()};
    }
    auto function = std::make_shared<NullFunction>();
    function->symbol = symbol;
    function->binary = binary_;
    function->replays = counter_of_(symbol);
    return Function{functions_.emplace_back(std::move(function)).get()};
  }

 private:
  const std::function<std::atomic<int64_t>*(std::string_view symbol)> counter_of_;
  std::atomic<int64_t>* const live_;
  const std::shared_ptr<const std::string> binary_;
  const int64_t smem_limit_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<NullFunction>> functions_;
};

class NullDeviceImpl final : public RecordingDevice<NullDevice, NullWork> {
 public:
  explicit NullDeviceImpl(DeviceInfo info) : info_(std::move(info)) {}

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    KVR_RETURN_IF_ERROR(RefuseOnCapturingThread("Allocate"));
    if (bytes < 0) {
      return Error(absl::StatusCode::kInvalidArgument, StrCat("Allocate: ", bytes, " bytes"),
                   "ask for 0 bytes or more");
    }
    void* memory = bytes > kMostBytes
                       ? nullptr
                       : ::operator new(std::max<size_t>(bytes, 1), kAlign, std::nothrow);
    if (memory == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted,
                   StrCat("Allocate: no ", bytes, " bytes of host memory"),
                   "free memory or ask for less");
    }
    std::lock_guard lock(mutex_);
    blocks_.emplace(memory, bytes);
    ++allocations_;
    bytes_allocated_ += bytes;
    return memory;
  }

  void Free(void* memory) override {
    if (memory == nullptr) return;
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(memory);
    if (it == blocks_.end()) return;
    bytes_allocated_ -= it->second;
    blocks_.erase(it);
    ::operator delete(memory, kAlign);
  }

  absl::Status CopyToDevice(void* dst, const void* src, int64_t bytes, Stream stream) override {
    return Copy("CopyToDevice", dst, src, bytes, stream);
  }
  absl::Status CopyToHost(void* dst, const void* src, int64_t bytes, Stream stream) override {
    return Copy("CopyToHost", dst, src, bytes, stream);
  }

  absl::Status MemsetAsync(void* dst, uint8_t value, int64_t bytes, Stream stream) override {
    KVR_RETURN_IF_ERROR(CheckRange("MemsetAsync", dst, bytes));
    if (bytes == 0) return absl::OkStatus();
    NullWork fill;
    fill.kind = NullNode::Kind::kFill;
    fill.dst = dst;
    fill.value = value;
    fill.bytes = bytes;
    if (NullStream* on = Of(stream); on->capture.capturing()) return RecordWork(on->capture, fill);
    Fill(fill);
    return absl::OkStatus();
  }

  absl::StatusOr<Stream> CreateStream() override {
    KVR_RETURN_IF_ERROR(RefuseOnCapturingThread("CreateStream"));
    return Stream{new NullStream};
  }
  void DestroyStream(Stream stream) override {
    if (stream.handle == nullptr) return;
    LeaveCapture(&Of(stream)->capture);
    delete Of(stream);
  }
  absl::Status Synchronize(Stream stream) override {
    return RefuseCapturing("Synchronize", stream);
  }
  absl::StatusOr<bool> IsCapturing(Stream stream) override {
    return Of(stream)->capture.capturing();
  }

  absl::StatusOr<Event> CreateEvent() override {
    KVR_RETURN_IF_ERROR(RefuseOnCapturingThread("CreateEvent"));
    return Event{new NullEvent};
  }
  void DestroyEvent(Event event) override { delete static_cast<NullEvent*>(event.handle); }
  absl::Status Record(Event event, Stream stream) override {
    KVR_RETURN_IF_ERROR(RefuseCapturing("Record", stream));
    static_cast<NullEvent*>(event.handle)->at = Clock::now().time_since_epoch().count();
    return absl::OkStatus();
  }
  absl::StatusOr<double> ElapsedUs(Event start, Event stop) override {
    const Clock::rep from = static_cast<NullEvent*>(start.handle)->at;
    const Clock::rep to = static_cast<NullEvent*>(stop.handle)->at;
    if (from == 0 || to == 0) {
      return Error(absl::StatusCode::kInvalidArgument, "ElapsedUs: an event was never recorded",
                   "Record both events first");
    }
    return std::chrono::duration<double, std::micro>(Clock::duration(to - from)).count();
  }

  absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) override {
    KVR_RETURN_IF_ERROR(RefuseOnCapturingThread("Load"));
    if (binary.target != info_.target) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("a binary for '", binary.target, "' does not run on ", info_.name, " (",
                          info_.target, ")"),
                   StrCat("compile it for ", info_.target));
    }
    return std::make_unique<NullModule>([this](std::string_view symbol) { return Counter(symbol); },
                                        &modules_, binary.bytes, info_.smem_per_block);
  }

  absl::StatusOr<int> BlocksPerSm(Function, int threads, int64_t smem) override {
    return ComputeOccupancy(info_, threads, /*registers=*/32, smem).blocks_per_sm;
  }

  absl::Status Launch(Function function, const KernelLaunch& launch, const LaunchAttributes&,
                      void* const*, Stream stream) override {
    if (!Possible(function, launch)) [[unlikely]]
      return ImpossibleLaunch();
    if (NullStream* on = Of(stream); on->capture.capturing()) [[unlikely]] {
      return RecordLaunch(on, function, launch);
    }
    ThreadCounts::Add(&CountsOfThisThread().launches, 1);
    return absl::OkStatus();
  }

  absl::Status EncodeTensorMap(const TensorMapLaunch&, const void*, TensorMap* encoded) override {
    *encoded = {};
    return absl::OkStatus();
  }

  absl::Status Call(const LaunchFunction&, const FunctionLaunch&, Stream stream) override {
    if (NullStream* on = Of(stream); on->capture.capturing()) [[unlikely]] {
      NullWork call;
      call.kind = NullNode::Kind::kCall;
      KVR_RETURN_IF_ERROR(RecordWork(on->capture, std::move(call)));
      ThreadCounts::Add(&CountsOfThisThread().captured, 1);
      return absl::OkStatus();
    }
    ThreadCounts::Add(&CountsOfThisThread().launches, 1);
    return absl::OkStatus();
  }

  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override { return work(); }

  NullCounters counters() const override {
    std::lock_guard lock(mutex_);
    NullCounters sum;
    for (const auto& [thread, counts] : threads_) {
      sum.launches += counts.launches.load(std::memory_order_relaxed);
      sum.captured_launches += counts.captured.load(std::memory_order_relaxed);
    }
    sum.allocations = allocations_;
    sum.bytes_allocated = bytes_allocated_;
    sum.bytes_copied = bytes_copied_.load(std::memory_order_relaxed);
    sum.bytes_set = bytes_set_.load(std::memory_order_relaxed);
    sum.modules = modules_.load(std::memory_order_relaxed);
    return sum;
  }

  absl::StatusOr<std::vector<NullNode>> NodesOf(GraphExec exec) const override {
    KVR_ASSIGN_OR_RETURN(const auto sequence, SequenceOf(exec));
    std::vector<NullNode> nodes;
    for (const Entry& entry : sequence->entries) {
      const NullWork& work = entry.work;
      NullNode& node = nodes.emplace_back();
      node.kind = work.kind;
      if (work.function != nullptr) node.symbol = work.function->symbol;
      if (work.function != nullptr) node.binary = *work.function->binary;
      node.launch = work.launch;
      node.attributes = entry.attributes;
      node.data = work.dst;
      node.bytes = work.bytes;
    }
    return nodes;
  }

  int64_t Replays(std::string_view symbol) const override {
    std::lock_guard lock(mutex_);
    const auto found = replays_.find(std::string(symbol));
    return found == replays_.end() ? 0 : found->second.load(std::memory_order_relaxed);
  }

  void Invalidate(Stream stream) override {
    InvalidateCapture(Of(stream)->capture, "a call that cannot be recorded was made");
  }

  ~NullDeviceImpl() override {
    DropAll();
    for (const auto& [memory, bytes] : blocks_) ::operator delete(memory, kAlign);
  }

 protected:
  CapturingStream& CapturingOf(Stream stream) override { return Of(stream)->capture; }

  absl::StatusOr<NullWork> WorkOf(const NodeWork& work) override {
    NullWork own;
    if (work.kind == NodeWork::Kind::kKernel) {
      if (!Possible(work.function, *work.launch)) {
        return ImpossibleLaunch();
      }
      own.kind = NullNode::Kind::kKernel;
      own.function = static_cast<NullFunction*>(work.function.handle)->shared_from_this();
      own.launch = *work.launch;
    } else if (work.kind == NodeWork::Kind::kClear) {
      own.kind = NullNode::Kind::kFill;
      own.dst = work.data;
      own.bytes = work.bytes;
    }
    return own;
  }

  absl::Status Replay(Stream, std::shared_ptr<const Sequence> sequence) override {
    int64_t launches = 0;
    for (const Entry& entry : sequence->entries) {
      const NullWork& work = entry.work;
      if (work.kind == NullNode::Kind::kFill) Fill(work);
      if (work.kind == NullNode::Kind::kCall) ++launches;
      if (work.kind != NullNode::Kind::kKernel) continue;
      if (!work.function->loaded.load(std::memory_order_relaxed)) {
        return Error(
            absl::StatusCode::kInternal,
            StrCat("the graph launches '", work.function->symbol, "', whose module is gone"),
            "keep modules as long as the graphs that use them");
      }
      work.function->replays->fetch_add(1, std::memory_order_relaxed);
      ++launches;
    }
    ThreadCounts::Add(&CountsOfThisThread().launches, launches);
    return absl::OkStatus();
  }

  absl::Status WaitNow(Stream, Stream) override { return absl::OkStatus(); }  // nothing is pending

 private:
  NullStream* Of(Stream stream) {
    return stream.handle == nullptr ? &default_stream_ : static_cast<NullStream*>(stream.handle);
  }

  bool Possible(Function function, const KernelLaunch& launch) const {
    const int64_t threads = launch.block.volume();
    return function.handle != nullptr && launch.grid.volume() != 0 && threads != 0 &&
           threads <= info_.max_threads_per_block && launch.smem >= 0 &&
           launch.smem <= info_.smem_per_block && launch.cluster.volume() <= info_.max_cluster_size;
  }
  absl::Status ImpossibleLaunch() const {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("Launch: no function, an empty grid or block, or more threads, shared "
                        "memory or blocks per cluster than ",
                        info_.name, " has"),
                 "check the launch against info()");
  }

  absl::Status RecordLaunch(NullStream* stream, Function function, const KernelLaunch& launch) {
    NullWork work;
    work.kind = NullNode::Kind::kKernel;
    work.function = static_cast<NullFunction*>(function.handle)->shared_from_this();
    work.launch = launch;
    KVR_RETURN_IF_ERROR(RecordWork(stream->capture, std::move(work)));
    ThreadCounts::Add(&CountsOfThisThread().captured, 1);
    return absl::OkStatus();
  }

  void Fill(const NullWork& fill) {
    if (fill.bytes == 0) return;
    std::memset(fill.dst, fill.value, fill.bytes);
    bytes_set_.fetch_add(fill.bytes, std::memory_order_relaxed);
  }

  std::atomic<int64_t>* Counter(std::string_view symbol) {
    std::lock_guard lock(mutex_);
    return &replays_[std::string(symbol)];
  }

  absl::Status CheckRange(std::string_view call, const void* memory, int64_t bytes) const {
    if (bytes >= 0 && (memory != nullptr || bytes == 0)) return absl::OkStatus();
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(call, ": ", bytes, " bytes or a null pointer"),
                 "give memory and 0 bytes or more");
  }

  absl::Status Copy(std::string_view call, void* dst, const void* src, int64_t bytes,
                    Stream stream) {
    KVR_RETURN_IF_ERROR(RefuseCapturing(call, stream));
    KVR_RETURN_IF_ERROR(CheckRange(call, dst, bytes));
    KVR_RETURN_IF_ERROR(CheckRange(call, src, bytes));
    if (bytes > 0) std::memcpy(dst, src, bytes);
    bytes_copied_.fetch_add(bytes, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status RefuseCapturing(std::string_view call, Stream stream) {
    return Of(stream)->capture.capturing() ? RefusedWhileCapturing(call) : absl::OkStatus();
  }

  absl::Status RefuseOnCapturingThread(std::string_view call) const {
    return ThisThreadCaptures() ? RefusedWhileCapturing(call) : absl::OkStatus();
  }

  ThreadCounts& CountsOfThisThread() {
    // Ids are never reused, unlike addresses, so a stale cache cannot match a new device.
    thread_local uint64_t cached_device = 0;
    thread_local ThreadCounts* cached = nullptr;
    if (cached_device != id_) [[unlikely]] {
      std::lock_guard lock(mutex_);
      cached = &threads_[std::this_thread::get_id()];
      cached_device = id_;
    }
    return *cached;
  }

  static uint64_t NextId() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }

  const uint64_t id_ = NextId();
  const DeviceInfo info_;
  NullStream default_stream_{CapturingStream(/*is_default=*/true)};
  std::atomic<int64_t> bytes_copied_{0}, bytes_set_{0}, modules_{0};

  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> blocks_;
  std::unordered_map<std::string, std::atomic<int64_t>> replays_;  // by symbol; nodes do not move
  std::unordered_map<std::thread::id, ThreadCounts> threads_;      // nodes do not move
  int64_t allocations_ = 0, bytes_allocated_ = 0;
};

}  // namespace

DeviceInfo NullDeviceInfo() {
  DeviceInfo info;
  info.kind = "null";
  info.name = "Null device";
  info.model = "null";
  info.target = "null";
  info.driver = "none";
  info.sms = 132;
  info.max_cluster_size = 16;
  info.smem_per_sm = 228 << 10;
  info.smem_per_block = 227 << 10;
  info.smem_reserved_per_block = 1 << 10;
  info.l2_bytes = 50 << 20;
  info.memory_bandwidth = 4.8e12;
  return info;
}

std::unique_ptr<NullDevice> OpenNull(DeviceInfo info) {
  return std::make_unique<NullDeviceImpl>(std::move(info));
}

}  // namespace kvr
