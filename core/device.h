// SPDX-License-Identifier: Apache-2.0
//
// The one device interface; registry and tuner know no other. Implementations: devices/cuda,
// devices/host, devices/null.
//
// Threading: every function may be called from any thread; a stream's calls are ordered by the
// caller. Stream order: copies, fills, launches and event records are asynchronous with respect to
// the host and ordered within their stream. Errors of asynchronous work surface at the next
// Synchronize (or Query) of that stream as kInternal; on cuda they are sticky for the context,
// which is why untrusted kernels run in a worker process.
// Capture safety: Launch, Call, MemsetAsync, EncodeTensorMap and IsCapturing are legal while the
// stream captures; everything else is not. Copies, Record, Synchronize, Graph::Launch and a second
// capture are refused there (kFailedPrecondition), and the capture goes on.
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
#include "core/plan.h"
#include "core/variant.h"

namespace kvr {

struct Stream {
  void* handle = nullptr;  // cuda: CUstream; null is the default stream
};
struct Event {
  void* handle = nullptr;
};
struct Function {
  void* handle = nullptr;  // valid while its Module lives
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

// A recorded sequence of work that can be launched again and again. Pointers and scalars are those
// of the recording.
// Threading: belongs to one thread, and to one stream at a time. Ownership: it must outlive its
// launches (synchronize before it is destroyed), and be outlived by the modules, launch functions
// and memory that it uses and by its device.
class Graph {
 public:
  virtual ~Graph() = default;
  // In stream order, asynchronous; not while the stream captures.
  virtual absl::Status Launch(Stream stream) = 0;
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
  // Launch returns.
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
  // `enqueue` runs now, on this thread, while `stream` captures: what it enqueues there is
  // recorded, not run. Always ends the capture, also when `enqueue` fails; that error is then the
  // result. Recording nothing is an error, and so is capturing the default stream. Nothing else may
  // use the stream meanwhile.
  virtual absl::StatusOr<std::unique_ptr<Graph>> Capture(
      Stream stream, absl::FunctionRef<absl::Status()> enqueue) = 0;

  // Runs `work` now, on this thread, with the device's context current: for code that is not ours
  // and loads, allocates or frees there.
  virtual absl::Status WithContext(absl::FunctionRef<absl::Status()> work) = 0;

  // What slows this device down right now, as NVML's throttle reason bits (core/throttle.h); 0:
  // nothing, or nobody knows.
  virtual uint64_t ThrottleBits() { return 0; }
};

}  // namespace kvr
