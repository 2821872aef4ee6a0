// SPDX-License-Identifier: Apache-2.0
#include "devices/null/null.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
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

namespace kvr {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::align_val_t kAlign{256};
constexpr int64_t kMostBytes = int64_t{1} << 40;  // beyond it, sanitizers abort rather than refuse

// What a graph holds. Launches change no memory, so their number is enough, and their order with
// the fills is not kept.
struct Recording {
  struct Fill {
    void* dst;
    uint8_t value;
    int64_t bytes;
  };
  int64_t launches = 0;
  std::vector<Fill> fills;
};

struct NullStream {
  std::atomic<Recording*> recording{nullptr};  // while it captures
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

class NullModule : public Module {
 public:
  NullModule(std::atomic<int64_t>* live, int64_t smem_limit)
      : live_(live), smem_limit_(smem_limit) {
    live_->fetch_add(1, std::memory_order_relaxed);
  }
  ~NullModule() override { live_->fetch_sub(1, std::memory_order_relaxed); }

  absl::StatusOr<Function> Get(std::string_view symbol, int64_t dynamic_smem) override {
    if (dynamic_smem < 0 || dynamic_smem > smem_limit_) {
      return Error(
          absl::StatusCode::kFailedPrecondition,
          StrCat("kernel '", symbol, "' wants ", dynamic_smem, " bytes of dynamic shared memory"),
          StrCat("use at most ", smem_limit_, " bytes on this device"));
    }
    std::lock_guard lock(mutex_);
    for (const std::string& known : symbols_) {
      if (known == symbol) return Function{const_cast<std::string*>(&known)};
    }
    return Function{&symbols_.emplace_back(symbol)};
  }

 private:
  std::atomic<int64_t>* live_;
  const int64_t smem_limit_;
  std::mutex mutex_;
  std::deque<std::string> symbols_;  // addresses are the handles
};

class NullDeviceImpl : public NullDevice {
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
    const Recording::Fill fill = {dst, value, bytes};
    if (Recording* recording = RecordingOf(stream); recording != nullptr) {
      recording->fills.push_back(fill);
    } else {
      Run(fill);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Stream> CreateStream() override {
    KVR_RETURN_IF_ERROR(RefuseOnCapturingThread("CreateStream"));
    return Stream{new NullStream};
  }
  void DestroyStream(Stream stream) override {
    if (stream.handle != nullptr) delete Of(stream);
  }
  absl::Status Synchronize(Stream stream) override {
    return RefuseCapturing("Synchronize", stream);
  }
  absl::StatusOr<bool> IsCapturing(Stream stream) override {
    return RecordingOf(stream) != nullptr;
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
    return std::make_unique<NullModule>(&modules_, info_.smem_per_block);
  }

  absl::StatusOr<int> BlocksPerSm(Function, int threads, int64_t smem) override {
    return ComputeOccupancy(info_, threads, /*registers=*/32, smem).blocks_per_sm;
  }

  absl::Status Launch(Function function, const KernelLaunch& launch, const LaunchAttributes&,
                      void* const*, Stream stream) override {
    const int64_t threads = launch.block.volume();
    if (function.handle == nullptr || launch.grid.volume() == 0 || threads == 0 ||
        threads > info_.max_threads_per_block || launch.smem < 0 ||
        launch.smem > info_.smem_per_block || launch.cluster.volume() > info_.max_cluster_size)
        [[unlikely]] {
      return Error(
          absl::StatusCode::kInvalidArgument,
          StrCat("Launch: no function, an empty grid or block, or more threads, shared memory "
                 "or blocks per cluster than ",
                 info_.name, " has"),
          "check the launch against info()");
    }
    CountLaunch(stream);
    return absl::OkStatus();
  }

  absl::Status EncodeTensorMap(const TensorMapLaunch&, const void*, TensorMap* encoded) override {
    *encoded = {};
    return absl::OkStatus();
  }

  absl::Status Call(const LaunchFunction&, const FunctionLaunch&, Stream stream) override {
    CountLaunch(stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Graph>> Capture(
      Stream stream, absl::FunctionRef<absl::Status()> enqueue) override {
    if (stream.handle == nullptr) return DefaultStreamCannotCapture();
    KVR_RETURN_IF_ERROR(RefuseCapturing("Capture", stream));
    Recording recording;
    recording.fills.reserve(64);  // so that tests find no allocation but those of the launch path
    SetRecording(stream, &recording);
    const absl::Status status = enqueue();
    SetRecording(stream, nullptr);
    KVR_RETURN_IF_ERROR(status);
    if (recording.launches == 0 && recording.fills.empty()) return CapturedNothing();
    return std::make_unique<NullGraph>(this, std::move(recording));
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

  ~NullDeviceImpl() override {
    for (const auto& [memory, bytes] : blocks_) ::operator delete(memory, kAlign);
  }

 private:
  class NullGraph : public Graph {
   public:
    NullGraph(NullDeviceImpl* device, Recording recording)
        : device_(device), recording_(std::move(recording)) {}

    absl::Status Launch(Stream stream) override {
      KVR_RETURN_IF_ERROR(device_->RefuseCapturing("Graph::Launch", stream));
      for (const Recording::Fill& fill : recording_.fills) device_->Run(fill);
      ThreadCounts::Add(&device_->CountsOfThisThread().launches, recording_.launches);
      return absl::OkStatus();
    }

   private:
    NullDeviceImpl* device_;
    const Recording recording_;
  };

  NullStream* Of(Stream stream) {
    return stream.handle == nullptr ? &default_stream_ : static_cast<NullStream*>(stream.handle);
  }
  Recording* RecordingOf(Stream stream) {
    return Of(stream)->recording.load(std::memory_order_acquire);
  }

  void SetRecording(Stream stream, Recording* recording) {
    std::lock_guard lock(mutex_);
    const std::thread::id thread = std::this_thread::get_id();
    if (recording != nullptr) {
      ++captures_[thread];
    } else if (--captures_[thread] == 0) {
      captures_.erase(thread);
    }
    Of(stream)->recording.store(recording, std::memory_order_release);
  }

  void CountLaunch(Stream stream) {
    ThreadCounts& counts = CountsOfThisThread();
    if (Recording* recording = RecordingOf(stream); recording != nullptr) [[unlikely]] {
      ++recording->launches;
      ThreadCounts::Add(&counts.captured, 1);
    } else {
      ThreadCounts::Add(&counts.launches, 1);
    }
  }

  void Run(const Recording::Fill& fill) {
    std::memset(fill.dst, fill.value, fill.bytes);
    bytes_set_.fetch_add(fill.bytes, std::memory_order_relaxed);
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
    return RecordingOf(stream) == nullptr ? absl::OkStatus() : RefusedWhileCapturing(call);
  }

  absl::Status RefuseOnCapturingThread(std::string_view call) const {
    std::lock_guard lock(mutex_);
    const bool captures = captures_.count(std::this_thread::get_id()) != 0;
    return captures ? RefusedWhileCapturing(call) : absl::OkStatus();
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
  NullStream default_stream_;
  std::atomic<int64_t> bytes_copied_{0}, bytes_set_{0}, modules_{0};

  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> blocks_;
  std::unordered_map<std::thread::id, int> captures_;
  std::unordered_map<std::thread::id, ThreadCounts> threads_;  // nodes do not move
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
  info.max_cluster_size = 8;
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
