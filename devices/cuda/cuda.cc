// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/cuda.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/context.h"
#include "devices/cuda/driver.h"
#include "devices/cuda/graph.h"
#include "devices/cuda/info.h"
#include "devices/cuda/launch.h"
#include "devices/cuda/module.h"
#include "devices/cuda/nvml.h"
#include "devices/cuda/recording.h"
#include "devices/cuda/tensor_map.h"

// Calls the driver with the device's context current; an error carries the call's name.
#define KVR_CUDA_IN(scope, member, symbol, ...)                                                \
  do {                                                                                         \
    const cuda::scope current_(driver_, context_);                                             \
    KVR_RETURN_IF_ERROR(current_.status());                                                    \
    if (const cuda::Result result_ = driver_.member(__VA_ARGS__); result_ != cuda::kSuccess) { \
      return cuda::ErrorFrom(driver_, result_, symbol);                                        \
    }                                                                                          \
  } while (false)

// What another thread's capture could mind.
#define KVR_CUDA(...) KVR_CUDA_IN(ScopedBackgroundWork, __VA_ARGS__)
// What it could not, and launches do.
#define KVR_CUDA_HOT(...) KVR_CUDA_IN(ScopedContext, __VA_ARGS__)

namespace kvr {
namespace {

cuda::StreamHandle Of(Stream stream) { return static_cast<cuda::StreamHandle>(stream.handle); }
cuda::EventHandle Of(Event event) { return static_cast<cuda::EventHandle>(event.handle); }
cuda::FunctionHandle Of(Function function) {
  return static_cast<cuda::FunctionHandle>(function.handle);
}
cuda::DevicePtr Of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

absl::Status CheckBytes(std::string_view call, int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, StrCat(call, ": ", bytes, " bytes"),
               "give 0 bytes or more");
}

class CudaDevice : public Device {
 public:
  // `primary`: the device's primary context, released at the end; else the application's.
  CudaDevice(const cuda::Driver& driver, cuda::DeviceHandle device, cuda::Context context,
             bool primary, DeviceInfo info)
      : driver_(driver),
        device_(device),
        context_(context),
        primary_(primary),
        info_(std::move(info)),
        throttle_(cuda::PciBusId(driver, device)),
        captures_(std::make_unique<cuda::Captures>(driver, context, info_)) {}

  ~CudaDevice() override {
    captures_->Close();  // while there is a device for what graphs have retained
    captures_.reset();   // and a context
    if (primary_) driver_.PrimaryCtxRelease(device_);
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    KVR_RETURN_IF_ERROR(CheckBytes("Allocate", bytes));
    const cuda::ScopedBackgroundWork current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    cuda::DevicePtr memory = 0;
    const cuda::Result result = driver_.MemAlloc(&memory, std::max<size_t>(bytes, 1));
    if (result != cuda::kSuccess) {
      return cuda::ErrorFrom(driver_, result, "cuMemAlloc", StrCat(bytes, " bytes"));
    }
    return reinterpret_cast<void*>(static_cast<uintptr_t>(memory));
  }

  void Free(void* memory) override {
    if (memory == nullptr) return;
    const cuda::ScopedBackgroundWork current(driver_, context_);
    if (current.ok()) driver_.MemFree(Of(memory));
  }

  absl::Status CopyToDevice(void* dst, const void* src, int64_t bytes, Stream stream) override {
    KVR_RETURN_IF_ERROR(CheckBytes("CopyToDevice", bytes));
    KVR_RETURN_IF_ERROR(RefuseCapturing("CopyToDevice", stream));
    if (bytes == 0) return absl::OkStatus();
    KVR_CUDA(MemcpyHtoDAsync, "cuMemcpyHtoDAsync", Of(dst), src, bytes, Of(stream));
    return absl::OkStatus();
  }

  absl::Status CopyToHost(void* dst, const void* src, int64_t bytes, Stream stream) override {
    KVR_RETURN_IF_ERROR(CheckBytes("CopyToHost", bytes));
    KVR_RETURN_IF_ERROR(RefuseCapturing("CopyToHost", stream));
    if (bytes == 0) return absl::OkStatus();
    KVR_CUDA(MemcpyDtoHAsync, "cuMemcpyDtoHAsync", dst, Of(src), bytes, Of(stream));
    return absl::OkStatus();
  }

  absl::Status MemsetAsync(void* dst, uint8_t value, int64_t bytes, Stream stream) override {
    KVR_RETURN_IF_ERROR(CheckBytes("MemsetAsync", bytes));
    if (bytes == 0) return absl::OkStatus();
    KVR_CUDA_HOT(MemsetD8Async, "cuMemsetD8Async", Of(dst), value, bytes, Of(stream));
    return absl::OkStatus();
  }

  absl::StatusOr<Stream> CreateStream() override {
    cuda::StreamHandle stream = nullptr;
    KVR_CUDA(StreamCreate, "cuStreamCreate", &stream, cuda::kStreamNonBlocking);
    return Stream{stream};
  }

  void DestroyStream(Stream stream) override {
    if (stream.handle == nullptr) return;
    const cuda::ScopedBackgroundWork current(driver_, context_);
    if (current.ok()) driver_.StreamDestroy(Of(stream));
  }

  absl::Status Synchronize(Stream stream) override {
    KVR_RETURN_IF_ERROR(RefuseCapturing("Synchronize", stream));
    KVR_CUDA(StreamSynchronize, "cuStreamSynchronize", Of(stream));
    return absl::OkStatus();
  }

  // An invalidated capture still has to be ended by its owner, so it counts as one. On the default
  // stream, while another stream captures, the driver answers with an error: work sent there would
  // break that capture.
  absl::StatusOr<bool> IsCapturing(Stream stream) override {
    int status = cuda::kCaptureNone;
    KVR_CUDA_HOT(StreamIsCapturing, "cuStreamIsCapturing", Of(stream), &status);
    return status != cuda::kCaptureNone;
  }

  absl::StatusOr<Event> CreateEvent() override {
    cuda::EventHandle event = nullptr;
    KVR_CUDA(EventCreate, "cuEventCreate", &event, cuda::kEventDefault);
    return Event{event};
  }

  void DestroyEvent(Event event) override {
    if (event.handle == nullptr) return;
    const cuda::ScopedBackgroundWork current(driver_, context_);
    if (current.ok()) driver_.EventDestroy(Of(event));
  }

  absl::Status Record(Event event, Stream stream) override {
    KVR_RETURN_IF_ERROR(RefuseCapturing("Record", stream));
    KVR_CUDA(EventRecord, "cuEventRecord", Of(event), Of(stream));
    return absl::OkStatus();
  }

  absl::StatusOr<double> ElapsedUs(Event start, Event stop) override {
    float milliseconds = 0;
    KVR_CUDA(EventSynchronize, "cuEventSynchronize", Of(stop));
    KVR_CUDA(EventElapsedTime, "cuEventElapsedTime", &milliseconds, Of(start), Of(stop));
    return double{milliseconds} * 1e3;
  }

  absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) override {
    if (binary.target != info_.target) {
      return Error(absl::StatusCode::kFailedPrecondition,
                   StrCat("a binary for '", binary.target, "' does not run on ", info_.name, " (",
                          info_.target, ")"),
                   StrCat("compile it for ", info_.target));
    }
    return cuda::LoadModule(driver_, context_, info_, binary);
  }

  absl::StatusOr<int> BlocksPerSm(Function function, int threads, int64_t smem) override {
    KVR_RETURN_IF_ERROR(CheckBytes("BlocksPerSm", smem));
    int blocks = 0;
    KVR_CUDA(OccupancyMaxActiveBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor", &blocks,
             Of(function), threads, static_cast<size_t>(smem));
    return blocks;
  }

  absl::Status Launch(Function function, const KernelLaunch& launch,
                      const LaunchAttributes& attributes, void* const* params,
                      Stream stream) override {
    const cuda::ScopedContext current(driver_, context_);
    if (!current.ok()) return current.status();
    return cuda::LaunchKernel(driver_, Of(function), launch, attributes, params, Of(stream));
  }

  absl::Status EncodeTensorMap(const TensorMapLaunch& map, const void* data,
                               TensorMap* encoded) override {
    const cuda::ScopedContext current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    return cuda::EncodeTensorMap(driver_, map, data, encoded);
  }

  absl::Status Call(const LaunchFunction& function, const FunctionLaunch& launch,
                    Stream stream) override {
    const cuda::ScopedContext current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    FunctionLaunch on_stream = launch;
    on_stream.stream = stream.handle;
    return function.Launch(on_stream);
  }

  absl::Status BeginCapture(Stream stream, CaptureMode mode) override {
    return cuda::BeginCapture(driver_, context_, Of(stream), mode);
  }

  absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream stream, bool keep_graph) override {
    return cuda::EndCapture(driver_, context_, Of(stream), keep_graph);
  }

  absl::Status Wait(Stream stream, Stream earlier) override {
    return cuda::Wait(driver_, context_, Of(stream), Of(earlier));
  }

  absl::StatusOr<std::unique_ptr<Recording>> RecordingOf(Stream stream) override {
    return captures_->RecordingOf(Of(stream));
  }

  absl::Status SetNode(GraphExec exec, Node node, const NodeWork& work) override {
    return captures_->SetNode(static_cast<cuda::GraphExecHandle>(exec.handle),
                              static_cast<cuda::GraphNode>(node.handle), work);
  }

  void Collect() override { captures_->Collect(); }

  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override {
    const cuda::ScopedBackgroundWork current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    return work();
  }

  uint64_t ThrottleBits() override { return throttle_.Bits(); }

 private:
  // The driver would break the capture, or record what the host's memory held and holds no more.
  absl::Status RefuseCapturing(std::string_view call, Stream stream) {
    const cuda::ScopedContext current(driver_, context_);
    KVR_RETURN_IF_ERROR(current.status());
    return cuda::RefuseCapturing(driver_, call, Of(stream));
  }

  const cuda::Driver& driver_;
  const cuda::DeviceHandle device_;
  const cuda::Context context_;
  const bool primary_;
  const DeviceInfo info_;
  cuda::Throttle throttle_;
  std::unique_ptr<cuda::Captures> captures_;
};

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  KVR_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::GetDriver());
  int count = 0;
  const cuda::Result result = driver->DeviceGetCount(&count);
  if (result != cuda::kSuccess) return cuda::ErrorFrom(*driver, result, "cuDeviceGetCount");
  if (count > 0) return count;
  return Error(absl::StatusCode::kUnavailable, "the CUDA driver finds no GPU",
               "check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use --device host");
}

absl::StatusOr<std::unique_ptr<Device>> OpenCuda(int ordinal) {
  KVR_ASSIGN_OR_RETURN(const int count, CudaDeviceCount());
  if (ordinal < 0 || ordinal >= count) {
    return Error(absl::StatusCode::kNotFound, StrCat("there is no GPU cuda:", ordinal),
                 StrCat("give a number from 0 to ", count - 1));
  }
  KVR_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::GetDriver());
  cuda::DeviceHandle device = 0;
  if (const cuda::Result result = driver->DeviceGet(&device, ordinal); result != cuda::kSuccess) {
    return cuda::ErrorFrom(*driver, result, "cuDeviceGet", StrCat(ordinal));
  }
  KVR_ASSIGN_OR_RETURN(DeviceInfo info, cuda::ReadDeviceInfo(*driver, device));
  cuda::Context context = nullptr;
  if (const cuda::Result result = driver->PrimaryCtxRetain(&context, device);
      result != cuda::kSuccess) {
    return cuda::ErrorFrom(*driver, result, "cuDevicePrimaryCtxRetain", info.name);
  }
  return std::make_unique<CudaDevice>(*driver, device, context, /*primary=*/true, std::move(info));
}

absl::StatusOr<int64_t> CudaFreeMemory(Device& device) {
  KVR_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::GetDriver());
  size_t free = 0, total = 0;
  KVR_RETURN_IF_ERROR(device.WithContext([&]() -> absl::Status {
    const cuda::Result result = driver->MemGetInfo(&free, &total);
    if (result == cuda::kSuccess) return absl::OkStatus();
    return cuda::ErrorFrom(*driver, result, "cuMemGetInfo");
  }));
  return static_cast<int64_t>(free);
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaContext(void* context) {
  KVR_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::GetDriver());
  if (context == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "OpenCudaContext: the context is null",
                 "pass a CUcontext, or use OpenCuda(ordinal)");
  }
  const auto handle = static_cast<cuda::Context>(context);
  const cuda::ScopedContext current(*driver, handle);
  KVR_RETURN_IF_ERROR(current.status());
  cuda::DeviceHandle device = 0;
  if (const cuda::Result result = driver->CtxGetDevice(&device); result != cuda::kSuccess) {
    return cuda::ErrorFrom(*driver, result, "cuCtxGetDevice");
  }
  KVR_ASSIGN_OR_RETURN(DeviceInfo info, cuda::ReadDeviceInfo(*driver, device));
  return std::make_unique<CudaDevice>(*driver, device, handle, /*primary=*/false, std::move(info));
}

}  // namespace kvr
