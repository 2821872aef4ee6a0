// SPDX-License-Identifier: Apache-2.0
//
// The one device interface; registry and tuner know no other. Implementations: devices/cuda,
// devices/host, devices/null.
//
// Threading: every function may be called from any thread; a stream's calls are ordered by the
// caller. Stream order: copies, fills, launches and event records are asynchronous with respect to
// the host and ordered within their stream. Errors of asynchronous work surface at the next
// Synchronize (or Query) of that stream as kInternal; on cuda they are sticky for the context,
// which is why untrusted kernels run in a worker process. Free and the end of a Module wait for the
// work that is in flight on the whole device.
// Capture safety: Launch, Call, MemsetAsync, EncodeTensorMap, IsCapturing, Wait and RecordingOf are
// legal while the stream captures. Copies, Record, Synchronize, Graph::Launch and a second capture
// are refused there (kFailedPrecondition), and the capture goes on. Everything else has no stream:
// it leaves the captures of other threads alone, whatever their mode.
// Ownership: whoever allocates frees; a Module must outlive its launches and graphs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/device_info.h"
#include "core/graph.h"
#include "core/plan.h"
#include "core/variant.h"

namespace kvr {

struct Event {
  void* handle = nullptr;
};

// A CUtensorMap, which a kernel takes by value. The driver wants it aligned to 64 bytes, <cuda.h>
// of CUDA 13 to 128.
struct alignas(128) TensorMap {
  std::array<uint64_t, 16> opaque;
};

class Module {
 public:
  virtual ~Module() = default;
  // Opts in to `dynamic_smem` bytes of dynamic shared memory for this function.
  virtual absl::StatusOr<Function> Get(std::string_view symbol, int64_t dynamic_smem) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;  // aligned to 256
  virtual void Free(void* memory) = 0;
  virtual absl::Status CopyToDevice(void* dst, const void* src, int64_t bytes, Stream stream) = 0;
  virtual absl::Status CopyToHost(void* dst, const void* src, int64_t bytes, Stream stream) = 0;
  virtual absl::Status MemsetAsync(void* dst, uint8_t value, int64_t bytes, Stream stream) = 0;

  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;
  virtual absl::Status Synchronize(Stream stream) = 0;
  virtual absl::StatusOr<bool> IsCapturing(Stream stream) = 0;

  virtual absl::StatusOr<Event> CreateEvent() = 0;
  virtual void DestroyEvent(Event event) = 0;
  virtual absl::Status Record(Event event, Stream stream) = 0;
  // Waits for `stop`; microseconds.
  virtual absl::StatusOr<double> ElapsedUs(Event start, Event stop) = 0;

  // Refuses a binary whose target is not info().target.
  virtual absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) = 0;
  virtual absl::StatusOr<int> BlocksPerSm(Function function, int threads, int64_t smem) = 0;

  // `params[i]` points at the value of argument i, as cuLaunchKernel takes them; read before
  // Launch returns. cuda: a launch that the driver refuses invalidates the capture of its stream;
  // Recording::Add checks first.
  virtual absl::Status Launch(Function function, const KernelLaunch& launch,
                              const LaunchAttributes& attributes, void* const* params,
                              Stream stream) = 0;

  // Describes the memory at `data` to the tensor memory accelerator; enqueues nothing. The error
  // says which limit of cuTensorMapEncodeTiled is not met; kUnimplemented where there is no TMA.
  virtual absl::Status EncodeTensorMap(const TensorMapLaunch& map, const void* data,
                                       TensorMap* encoded) = 0;

  // A launch function in stream order; `launch.stream` is set here. cuda: called now, on this
  // thread, with the context current; it enqueues. host: called on a thread of the device when the
  // stream gets there; what `launch` points at, scalars' values too, is copied before Call returns,
  // and an error surfaces at the next Synchronize. null: counted, not called.
  virtual absl::Status Call(const LaunchFunction& function, const FunctionLaunch& launch,
                            Stream stream) = 0;

  // --- captures (core/graph.h)
  // From here on what is enqueued on `stream` is recorded, not run; not the default stream.
  virtual absl::Status BeginCapture(Stream stream, CaptureMode mode) = 0;
  // Always ends the capture. Errors: nothing was recorded; the capture was invalidated, or streams
  // that joined it have not come back. `keep_graph`: the graph is kept beside the executable, so
  // that SetNode may be used.
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream stream,
                                                            bool keep_graph = false) = 0;
  // BeginCapture (thread-local), `enqueue` on this thread, EndCapture, also when `enqueue` fails;
  // that error is then the result.
  absl::StatusOr<std::unique_ptr<Graph>> Capture(Stream stream,
                                                 absl::FunctionRef<absl::Status()> enqueue);
  // What is enqueued on `stream` from now on waits for what is on `earlier` now. Where `earlier`
  // captures, `stream` joins that capture; it must be waited for by the first stream in the end.
  virtual absl::Status Wait(Stream stream, Stream earlier) = 0;
  // The graph that `stream` records into; null where it does not capture. kFailedPrecondition: the
  // capture was invalidated.
  virtual absl::StatusOr<std::unique_ptr<Recording>> RecordingOf(Stream stream) = 0;
  // Gives a slot of `exec` other work, node by node; the graph it was made of is kept. Not for
  // other cluster dimensions (kUnimplemented: use a GraphCopy), nor for other attributes
  // (kFailedPrecondition).
  virtual absl::Status SetNode(GraphExec exec, Node node, const NodeWork& work) = 0;
  // Drops what graphs that are gone have retained. Not in a launch: it may unload modules, which
  // waits for work in flight.
  virtual void Collect() {}

  // Runs `work` now, on this thread, with the device's context current: for code that is not ours
  // and loads, allocates or frees there.
  virtual absl::Status WithContext(absl::FunctionRef<absl::Status()> work) = 0;

  // What slows this device down right now, as NVML's throttle reason bits (core/throttle.h); 0:
  // nothing, or nobody knows.
  virtual uint64_t ThrottleBits() { return 0; }
};

}  // namespace kvr
