// SPDX-License-Identifier: Apache-2.0
#include "devices/host/host_device.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/capture.h"
#include "core/fingerprint.h"
#include "core/status.h"
#include "core/thread.h"
#include "devices/host/block_pool.h"
#include "devices/host/cpu.h"
#include "devices/host/faults.h"
#include "devices/host/loaded_module.h"
#include "devices/host/stream.h"
#include "devices/recording_device.h"

namespace kvr::host {
namespace {

constexpr int64_t kAllocationAlign = 256;
constexpr int64_t kHugePage = 2 << 20;

constexpr char kSkipFix[] =
    "leave 'host' out of the variant's `targets` and say why in `host_skip_reason`";

// Cores this process may use, not those the machine has.
int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DeviceInfo DescribeHost() {
  DeviceInfo info;
  info.kind = info.model = info.target = "host";
  info.name = "KVR host";
  info.sms = UsableCores();
  info.uuid = absl::StrCat("HOST-", FingerprintOf(absl::StrCat(CpuId(), "/", info.sms)).Short());
  info.driver = CpuId();
  // A block occupies a core alone. The shared memory of a Hopper block, so that its configs fit.
  info.max_threads_per_block = 1024;
  info.max_threads_per_sm = 1024;
  info.max_blocks_per_sm = 1;
  info.max_cluster_size = 1;
  info.smem_per_block = info.smem_per_sm = 227 << 10;
  info.l2_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return info;
}

absl::Status LimitError(const HostFunction& function, const std::string& what,
                        const std::string& fix) {
  return Error(absl::StatusCode::kInvalidArgument,
               absl::StrCat("launch of ", function.kernel.entry, ": ", what), fix);
}

absl::Status CheckLaunch(const DeviceInfo& info, const HostFunction& function,
                         const KernelLaunch& launch, const LaunchAttributes& attributes) {
  const Dim3 &grid = launch.grid, &block = launch.block;
  const KernelResources& resources = function.kernel.resources;
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || grid.volume() <= 0) {
    return LimitError(function, absl::StrCat("a grid of ", grid.x, " x ", grid.y, " x ", grid.z),
                      "1 to 2147483647 x 65535 x 65535 blocks are possible");
  }
  const int limit = std::min(info.max_threads_per_block, resources.max_threads);
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.volume() <= 0 ||
      block.volume() > limit) {
    return LimitError(
        function, absl::StrCat("a block of ", block.x, " x ", block.y, " x ", block.z, " threads"),
        absl::StrCat(
            "1 to ", limit, " threads are possible (",
            limit == info.max_threads_per_block ? "the device's limit" : "its __launch_bounds__",
            "), at most 64 of them along z"));
  }
  const int64_t opted = function.dynamic_smem.load();
  if (launch.smem < 0 || launch.smem > opted) {
    return LimitError(function, absl::StrCat(launch.smem, " bytes of dynamic shared memory"),
                      absl::StrCat("it was loaded for at most ", opted));
  }
  if (launch.cluster.volume() != 1) {
    return LimitError(function, "thread block clusters do not exist on host", kSkipFix);
  }
  if (attributes.cooperative) {
    return LimitError(function,
                      "cooperative launches do not exist on host, where blocks run one after "
                      "another",
                      kSkipFix);
  }
  return absl::OkStatus();
}

absl::Status CheckSize(int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("a size of ", bytes, " bytes"),
               "sizes are 0 or more");
}

// What a call needs, kept until the stream gets there.
class OwnedCall {
 public:
  explicit OwnedCall(const FunctionLaunch& launch)
      : axes_(launch.axes.begin(), launch.axes.end()),
        tensors_(launch.tensors.begin(), launch.tensors.end()),
        scalars_(tensors_.size()),
        workspace_(launch.workspace.begin(), launch.workspace.end()),
        workspace_bytes_(launch.workspace_bytes.begin(), launch.workspace_bytes.end()) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      TensorView& tensor = tensors_[i];
      if (tensor.rank != 0 || tensor.data == nullptr) continue;
      std::memcpy(&scalars_[i], tensor.data, static_cast<size_t>(DTypeSize(tensor.dtype)));
      tensor.data = &scalars_[i];
    }
  }
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;

  FunctionLaunch launch() const { return {axes_, tensors_, workspace_, workspace_bytes_, nullptr}; }

 private:
  std::vector<int64_t> axes_;
  std::vector<TensorView> tensors_;
  std::vector<uint64_t> scalars_;  // values of tensors of rank 0, by position
  std::vector<void*> workspace_;
  std::vector<int64_t> workspace_bytes_;
};

absl::Status ThreadError(const std::system_error& error) {
  return Error(absl::StatusCode::kResourceExhausted,
               absl::StrCat("cannot start a thread: ", error.what()),
               "raise the limit of processes (ulimit -u)");
}

// Recorded work; null does nothing.
using HostWork = std::shared_ptr<const HostStream::Work>;

class HostDevice final : public RecordingDevice<Device, HostWork> {
 public:
  explicit HostDevice(std::unique_ptr<ObjectLoader> loader)
      : info_(DescribeHost()), loader_(std::move(loader)), pool_(info_.sms - 1) {}

  ~HostDevice() override {
    DrainAll();
    DropAll();  // unloads modules, so while all is there
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    KVR_RETURN_IF_ERROR(CheckSize(bytes));
    // Large ones in huge pages: zeroing small ones on first touch is a quarter of a verification.
    const int64_t align = bytes < 2 * kHugePage ? kAllocationAlign : kHugePage;
    const int64_t rounded = std::max<int64_t>(1, (bytes + align - 1) / align) * align;
    void* memory = std::aligned_alloc(static_cast<size_t>(align), static_cast<size_t>(rounded));
    if (memory == nullptr) {
      return Error(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("no memory for ", bytes, " bytes"),
                   "use a smaller shape or free memory on this machine");
    }
    if (align == kHugePage) madvise(memory, static_cast<size_t>(rounded), MADV_HUGEPAGE);
    return memory;
  }

  void Free(void* memory) override {
    if (memory == nullptr) return;
    DrainAll();
    std::free(memory);
  }

  absl::Status CopyToDevice(void* dst, const void* src, int64_t bytes, Stream stream) override {
    return Copy(dst, src, bytes, stream);
  }
  absl::Status CopyToHost(void* dst, const void* src, int64_t bytes, Stream stream) override {
    return Copy(dst, src, bytes, stream);
  }

  absl::Status MemsetAsync(void* dst, uint8_t value, int64_t bytes, Stream stream) override {
    KVR_RETURN_IF_ERROR(CheckSize(bytes));
    if (bytes == 0) return absl::OkStatus();
    return Enqueue(stream, FillWork(dst, value, bytes));
  }

  absl::StatusOr<Stream> CreateStream() override {
    const BlockedSignals blocked;  // for its thread
    std::shared_ptr<HostStream> stream;
    try {
      stream = std::make_shared<HostStream>();
    } catch (const std::system_error& error) {
      return ThreadError(error);
    }
    HostStream* handle = stream.get();
    std::lock_guard lock(mutex_);
    streams_.emplace(handle, std::move(stream));
    return Stream{handle};
  }

  void DestroyStream(Stream stream) override {
    std::shared_ptr<HostStream> last;  // finishes outside the lock
    {
      std::lock_guard lock(mutex_);
      auto found = streams_.find(static_cast<HostStream*>(stream.handle));
      if (found == streams_.end()) return;
      last = std::move(found->second);
      streams_.erase(found);
    }
    LeaveCapture(&last->capture());
  }

  absl::Status Synchronize(Stream stream) override {
    KVR_RETURN_IF_ERROR(RefuseCapturing("Synchronize", StreamOf(stream)));
    return StreamOf(stream).Synchronize();
  }
  absl::StatusOr<bool> IsCapturing(Stream stream) override {
    return StreamOf(stream).capture().capturing();
  }

  absl::StatusOr<Event> CreateEvent() override { return Event{new HostEvent}; }
  void DestroyEvent(Event event) override {
    auto* e = static_cast<HostEvent*>(event.handle);
    if (e == nullptr) return;
    e->Wait().IgnoreError();
    delete e;
  }

  absl::Status Record(Event event, Stream stream) override {
    KVR_RETURN_IF_ERROR(RefuseCapturing("Record", StreamOf(stream)));
    auto* e = static_cast<HostEvent*>(event.handle);
    e->Expect();
    StreamOf(stream).Enqueue(
        [e](BlockRunner*) {
          e->Happen();
          return absl::OkStatus();
        },
        /*always=*/true);
    return absl::OkStatus();
  }

  absl::StatusOr<double> ElapsedUs(Event start, Event stop) override {
    KVR_ASSIGN_OR_RETURN(const auto end, static_cast<HostEvent*>(stop.handle)->Wait());
    KVR_ASSIGN_OR_RETURN(const auto begin, static_cast<HostEvent*>(start.handle)->Wait());
    return std::chrono::duration<double, std::micro>(end - begin).count();
  }

  absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) override {
    return LoadedModule::Create(loader_.get(), binary, info_, [this] { DrainAll(); });
  }

  absl::StatusOr<int> BlocksPerSm(Function function, int threads, int64_t smem) override {
    const auto& f = *static_cast<const HostFunction*>(function.handle);
    const KernelResources& resources = f.kernel.resources;
    const bool fits = threads > 0 &&
                      threads <= std::min(info_.max_threads_per_block, resources.max_threads) &&
                      smem >= 0 && resources.smem_static + smem <= info_.smem_per_block;
    return fits ? 1 : 0;
  }

  absl::Status Launch(Function function, const KernelLaunch& launch,
                      const LaunchAttributes& attributes, void* const* params,
                      Stream stream) override {
    const auto& f = *static_cast<const HostFunction*>(function.handle);
    KVR_RETURN_IF_ERROR(CheckLaunch(info_, f, launch, attributes));
    return Enqueue(stream, KernelWork(f, launch, params));
  }

  absl::Status EncodeTensorMap(const TensorMapLaunch&, const void*, TensorMap*) override {
    return Error(absl::StatusCode::kUnimplemented, "tensor maps need TMA, which host has not",
                 "leave out 'host' from the variant's targets");
  }

  absl::Status Call(const LaunchFunction& function, const FunctionLaunch& launch,
                    Stream stream) override {
    return Enqueue(stream, [&function, call = std::make_shared<OwnedCall>(launch)](BlockRunner*) {
      return function.Launch(call->launch());
    });
  }

  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override { return work(); }

 protected:
  CapturingStream& CapturingOf(Stream stream) override { return StreamOf(stream).capture(); }

  absl::StatusOr<HostWork> WorkOf(const NodeWork& work) override {
    switch (work.kind) {
      case NodeWork::Kind::kNothing:
        break;
      case NodeWork::Kind::kClear:
        return std::make_shared<const HostStream::Work>(FillWork(work.data, 0, work.bytes));
      case NodeWork::Kind::kKernel: {
        const auto& f = *static_cast<const HostFunction*>(work.function.handle);
        KVR_RETURN_IF_ERROR(CheckLaunch(info_, f, *work.launch, work.attributes));
        return std::make_shared<const HostStream::Work>(KernelWork(f, *work.launch, work.params));
      }
    }
    return nullptr;
  }

  absl::Status Replay(Stream stream, std::shared_ptr<const Sequence> sequence) override {
    StreamOf(stream).Enqueue([sequence = std::move(sequence)](BlockRunner* runner) {
      for (const Entry& entry : sequence->entries) {
        if (entry.work != nullptr) KVR_RETURN_IF_ERROR((*entry.work)(runner));
      }
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status WaitNow(Stream stream, Stream earlier) override {
    auto reached = std::make_shared<HostEvent>();
    reached->Expect();
    StreamOf(earlier).Enqueue(
        [reached](BlockRunner*) {
          reached->Happen();
          return absl::OkStatus();
        },
        /*always=*/true);
    StreamOf(stream).Enqueue([reached](BlockRunner*) { return reached->Wait().status(); },
                             /*always=*/true);
    return absl::OkStatus();
  }

 private:
  absl::Status Enqueue(Stream stream, HostStream::Work work) {
    HostStream& on = StreamOf(stream);
    if (on.capture().capturing()) {
      return RecordWork(on.capture(), std::make_shared<const HostStream::Work>(std::move(work)));
    }
    on.Enqueue(std::move(work));
    return absl::OkStatus();
  }

  static HostStream::Work FillWork(void* dst, uint8_t value, int64_t bytes) {
    return [=](BlockRunner*) {
      if (bytes > 0) std::memset(dst, value, static_cast<size_t>(bytes));
      return absl::OkStatus();
    };
  }

  HostStream::Work KernelWork(const HostFunction& f, const KernelLaunch& launch,
                              void* const* params) {
    return [this, &f, grid = launch.grid, block = launch.block, smem = launch.smem,
            args = std::make_shared<ParamBlock>(f, params)](BlockRunner* runner) {
      KernelCall call;
      call.entry = f.entry;
      call.params = args->pointers();
      call.name = f.kernel.entry;
      call.sites = f.sites;
      call.grid = grid;
      call.block = block;
      call.static_smem = f.kernel.resources.smem_static;
      call.dynamic_smem = smem;
      return pool_.Run(call, runner);
    };
  }

  static absl::Status RefuseCapturing(std::string_view call, HostStream& stream) {
    return stream.capture().capturing() ? RefusedWhileCapturing(call) : absl::OkStatus();
  }

  HostStream& StreamOf(Stream stream) {
    return stream.handle == nullptr ? default_stream_ : *static_cast<HostStream*>(stream.handle);
  }

  // Done when it returns.
  absl::Status Copy(void* dst, const void* src, int64_t bytes, Stream stream) {
    KVR_RETURN_IF_ERROR(CheckSize(bytes));
    KVR_RETURN_IF_ERROR(Synchronize(stream));
    if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

  void DrainAll() {
    default_stream_.Drain();
    std::vector<std::shared_ptr<HostStream>> streams;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [handle, stream] : streams_) streams.push_back(stream);
    }
    for (const auto& stream : streams) stream->Drain();
  }

  const DeviceInfo info_;
  std::unique_ptr<ObjectLoader> loader_;
  BlockPool pool_;
  std::mutex mutex_;
  HostStream default_stream_{/*is_default=*/true};
  std::unordered_map<HostStream*, std::shared_ptr<HostStream>> streams_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenHost() {
  KVR_RETURN_IF_ERROR(CatchKernelFaults());
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<ObjectLoader> loader, ObjectLoader::Create());
  const BlockedSignals blocked;  // for its threads
  try {
    return std::make_unique<HostDevice>(std::move(loader));
  } catch (const std::system_error& error) {
    return ThreadError(error);
  }
}

}  // namespace kvr::host
