// SPDX-License-Identifier: Apache-2.0
//
// The sentinel: a small fixed kernel, the same in every session and for every operation, that says
// how the device itself is doing. A chain of dependent arithmetic, one warp on each SM, about 20 us
// on a GPU; it reads no memory, so it disturbs no cache. Its time is the device's speed; its cycles
// over its time are the clock, finer than NVML's (which averages over many samples).
//
// It is compiled like any variant, through the Jit and its cache, and is in no catalog. The parent
// builds it, the worker loads it.
//
// Threading: one thread. Stream order: Launch is asynchronous. Capture safety: Launch is legal
// while the stream captures. Ownership: device and budget outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/device.h"
#include "jit/jit.h"
#include "registry/prepared.h"
#include "tuner/worker/memory.h"

namespace kvr {

// Errors are those of Jit::Build: kUnimplemented where nothing compiles for the target. Sessions
// can do without a sentinel; then nobody watches the device for them.
absl::StatusOr<BinaryPtr> BuildSentinel(Jit& jit, std::string_view target);

class Sentinel {
 public:
  // `binary` is BuildSentinel's.
  static absl::StatusOr<std::unique_ptr<Sentinel>> Load(Device& device, MemoryBudget& budget,
                                                        BinaryPtr binary);
  absl::Status Launch(Stream stream) const;

  struct Reading {
    int64_t cycles = 0;
    int64_t nanoseconds = 0;  // by the device's own timer; 0: it has none (host, null)
  };
  // Of the last launch; synchronises.
  absl::StatusOr<Reading> Read(Stream stream) const;

 private:
  Sentinel(PreparedPtr prepared, std::unique_ptr<Arena> memory)
      : prepared_(std::move(prepared)), memory_(std::move(memory)) {}
  const PreparedPtr prepared_;
  const std::unique_ptr<Arena> memory_;
  LaunchPlan plan_;
  TensorView output_;
};

}  // namespace kvr
