// SPDX-License-Identifier: Apache-2.0
//
// The null device: launches do nothing, fast. It measures KVR's own overhead, runs conformance
// tests everywhere, and is the skeleton to clone for a new device.
//
// Memory is host memory aligned to 256, so copies and fills really happen, at once. Load accepts
// any bytes whose target is info().target, and Get any symbol. Launch checks the launch against the
// limits of info() and counts it; Call counts and does not call; tensor maps are all zero.
//
// Threading: every function may be called from any thread. Counting takes no lock and shares no
// cache line between threads; counters() is exact once the threads that launch have been joined.
// Capture: fills are recorded and happen when the graph is launched; launches are counted then, and
// are an error (kInternal) if the module of one of them is gone: what a GPU would run into.
// Beyond what every device refuses while a stream captures, Allocate, Load and creating streams or
// events are refused on a thread that captures in another than relaxed mode: they are not legal,
// and here they are found out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"

namespace kvr {

// kind "null", target "null", limits of a GPU of 132 multiprocessors.
DeviceInfo NullDeviceInfo();

struct NullCounters {
  int64_t launches = 0;           // and calls; those of a graph each time that it is launched
  int64_t captured_launches = 0;  // recorded by Launch and Call, not run
  int64_t allocations = 0;
  int64_t bytes_allocated = 0;  // live now
  int64_t bytes_copied = 0;     // both directions
  int64_t bytes_set = 0;
  int64_t modules = 0;  // live now
};

// What one node of a graph does.
struct NullNode {
  enum class Kind : uint8_t { kNothing, kFill, kKernel, kCall };
  Kind kind = Kind::kNothing;
  std::string symbol;  // kKernel
  std::string binary;  // the bytes that its module was loaded from
  KernelLaunch launch;
  LaunchAttributes attributes;
  void* data = nullptr;  // kFill
  int64_t bytes = 0;
};

class NullDevice : public Device {
 public:
  virtual NullCounters counters() const = 0;
  // What the next launch of `exec` does, in order. Not beside an edit of it.
  virtual absl::StatusOr<std::vector<NullNode>> NodesOf(GraphExec exec) const = 0;
  // How often replays ran a kernel of this symbol, whichever its module.
  virtual int64_t Replays(std::string_view symbol) const = 0;
  // Invalidates the capture of `stream`, as a call of the application that cannot be recorded does
  // on a GPU.
  virtual void Invalidate(Stream stream) = 0;
};

std::unique_ptr<NullDevice> OpenNull(DeviceInfo info = NullDeviceInfo());

}  // namespace kvr
