// SPDX-License-Identifier: Apache-2.0
//
// A small operation, variants made in memory, and a compiler that emits nothing, for target "null":
// what the registry does is real, the kernels are not.
#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "devices/null/null.h"
#include "jit/compiler.h"
#include "jit/jit.h"
#include "registry/catalog.h"
#include "registry/dispatcher.h"

namespace kvr {

// out[n] = alpha * x[n] + y[n]
class AxpyOp : public Operation {
 public:
  explicit AxpyOp(const std::string& name = "axpy");
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>{};
  }
  int64_t MinimumBytes(const AxisVector& axes) const override { return 12 * axes[0]; }

 private:
  OpSpec spec_;
};

// One kernel of ceildiv(n, BLOCK) blocks, at most CTAS, and a zeroed workspace of 4 bytes a block.
// Tunables: BLOCK {64, 128, 256} compile, CTAS {1024, 2048} launch.
std::shared_ptr<Variant> AxpyVariant(const std::string& name, bool baseline = false,
                                     const std::string& constraint = "");
// "half": approximate, with a quality tunable K0 {1, 2, 3}.
std::shared_ptr<Variant> ApproximateVariant();

class NullCompiler : public Compiler {
 public:
  // `on_compile`: called in every Compile, where it holds something.
  explicit NullCompiler(std::atomic<int>* compiles,
                        const std::function<void(const Unit&)>* on_compile = nullptr)
      : compiles_(compiles), on_compile_(on_compile) {}
  const std::string& identity() const override { return identity_; }
  bool Supports(std::string_view target, std::string* reason) const override;
  std::vector<std::string> targets() const override { return {"null"}; }
  std::string Options(std::string_view) const override { return ""; }
  bool concurrent() const override { return true; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }
  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view target) override;

 private:
  std::atomic<int>* compiles_;
  const std::function<void(const Unit&)>* on_compile_;
  std::string identity_ = "null compiler 1";
  std::vector<HeaderRoot> roots_;
};

// Catalog {baseline, wide}, a null device and a Jit, ready to dispatch. Its ops are those that the
// variants name, all axpys; "axpy" itself where there are no variants.
struct World {
  static constexpr int kMaxCompiles = 2;  // at a time, however many processors there are
  World();
  explicit World(std::vector<std::shared_ptr<Variant>> variants);

  std::unique_ptr<Dispatcher> Dispatch(DispatcherOptions options = {}) {
    return std::make_unique<Dispatcher>(catalog, *device, *jit, std::move(options));
  }
  // n -> variant, under policy "n:pow2" unless stated.
  GenerationPtr Select(const std::vector<std::pair<int64_t, std::string>>& selections,
                       int64_t number = 1, const std::string& policy = "n:pow2") const;

  Catalog catalog;
  std::unique_ptr<NullDevice> device;
  std::atomic<int> compiles{0};
  std::function<void(const Unit&)> on_compile;  // set before anything compiles
  BinaryCache cache{""};
  std::unique_ptr<Jit> jit;
};

// A device, and places to step in: where a launch asks whether its stream captures, what another
// thread may do meanwhile happens every time; where a node is set, or a copy's, a failure.
class SteppedDevice : public Device {
 public:
  explicit SteppedDevice(Device& device) : device_(device) {}
  std::function<void()> on_is_capturing, on_load;
  std::function<absl::Status()> on_set_node;  // an error is what SetNode returns
  std::function<absl::Status()> on_copy;      // the same of a graph's copy: Set and Update
  bool capturing = false;                     // the answer, whichever the stream

  const DeviceInfo& info() const override { return device_.info(); }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return device_.Allocate(bytes); }
  void Free(void* memory) override { device_.Free(memory); }
  absl::Status CopyToDevice(void* to, const void* from, int64_t bytes, Stream stream) override {
    return device_.CopyToDevice(to, from, bytes, stream);
  }
  absl::Status CopyToHost(void* to, const void* from, int64_t bytes, Stream stream) override {
    return device_.CopyToHost(to, from, bytes, stream);
  }
  absl::Status MemsetAsync(void* to, uint8_t value, int64_t bytes, Stream stream) override {
    return device_.MemsetAsync(to, value, bytes, stream);
  }
  absl::StatusOr<Stream> CreateStream() override { return device_.CreateStream(); }
  void DestroyStream(Stream stream) override { device_.DestroyStream(stream); }
  absl::Status Synchronize(Stream stream) override { return device_.Synchronize(stream); }
  absl::StatusOr<bool> IsCapturing(Stream stream) override {
    if (on_is_capturing != nullptr) on_is_capturing();
    if (capturing) return true;
    return device_.IsCapturing(stream);
  }
  absl::StatusOr<Event> CreateEvent() override { return device_.CreateEvent(); }
  void DestroyEvent(Event event) override { device_.DestroyEvent(event); }
  absl::Status Record(Event event, Stream stream) override { return device_.Record(event, stream); }
  absl::StatusOr<double> ElapsedUs(Event start, Event stop) override {
    return device_.ElapsedUs(start, stop);
  }
  absl::StatusOr<std::unique_ptr<Module>> Load(const Binary& binary) override {
    if (on_load != nullptr) on_load();
    return device_.Load(binary);
  }
  absl::StatusOr<int> BlocksPerSm(Function function, int threads, int64_t smem) override {
    return device_.BlocksPerSm(function, threads, smem);
  }
  absl::Status Launch(Function function, const KernelLaunch& launch,
                      const LaunchAttributes& attributes, void* const* params,
                      Stream stream) override {
    return device_.Launch(function, launch, attributes, params, stream);
  }
  absl::Status EncodeTensorMap(const TensorMapLaunch& map, const void* data,
                               TensorMap* encoded) override {
    return device_.EncodeTensorMap(map, data, encoded);
  }
  absl::Status Call(const LaunchFunction& function, const FunctionLaunch& launch,
                    Stream stream) override {
    return device_.Call(function, launch, stream);
  }
  absl::Status BeginCapture(Stream stream, CaptureMode mode) override {
    return device_.BeginCapture(stream, mode);
  }
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture(Stream stream, bool keep_graph) override {
    return device_.EndCapture(stream, keep_graph);
  }
  absl::Status Wait(Stream stream, Stream earlier) override {
    return device_.Wait(stream, earlier);
  }
  absl::StatusOr<std::unique_ptr<Recording>> RecordingOf(Stream stream) override {
    KVR_ASSIGN_OR_RETURN(std::unique_ptr<Recording> recording, device_.RecordingOf(stream));
    return std::make_unique<SteppedRecording>(*this, std::move(recording));
  }
  absl::Status SetNode(GraphExec exec, Node node, const NodeWork& work) override {
    if (on_set_node != nullptr) KVR_RETURN_IF_ERROR(on_set_node());
    return device_.SetNode(exec, node, work);
  }
  void Collect() override { device_.Collect(); }
  absl::Status WithContext(absl::FunctionRef<absl::Status()> work) override {
    return device_.WithContext(work);
  }

 private:
  class SteppedCopy : public GraphCopy {
   public:
    SteppedCopy(SteppedDevice& device, std::unique_ptr<GraphCopy> copy)
        : device_(device), copy_(std::move(copy)) {}
    absl::Status Set(Node node, const NodeWork& work) override {
      if (device_.on_copy != nullptr) KVR_RETURN_IF_ERROR(device_.on_copy());
      return copy_->Set(node, work);
    }
    absl::Status Update(GraphExec exec) override {
      if (device_.on_copy != nullptr) KVR_RETURN_IF_ERROR(device_.on_copy());
      return copy_->Update(exec);
    }

   private:
    SteppedDevice& device_;
    std::unique_ptr<GraphCopy> copy_;
  };
  class SteppedRecording : public Recording {
   public:
    SteppedRecording(SteppedDevice& device, std::unique_ptr<Recording> recording)
        : device_(device), recording_(std::move(recording)) {}
    uint64_t id() const override { return recording_->id(); }
    absl::StatusOr<Node> Add(const NodeWork& work, Stream stream) override {
      return recording_->Add(work, stream);
    }
    absl::StatusOr<std::unique_ptr<GraphCopy>> Copy() override {
      KVR_ASSIGN_OR_RETURN(std::unique_ptr<GraphCopy> copy, recording_->Copy());
      return std::make_unique<SteppedCopy>(device_, std::move(copy));
    }
    absl::Status Retain(std::shared_ptr<const void> object) override {
      return recording_->Retain(std::move(object));
    }

   private:
    SteppedDevice& device_;
    std::unique_ptr<Recording> recording_;
  };

  Device& device_;
};

// The null device, except that launch functions are called: its memory is the host's, so what they
// compute is real.
class CallingDevice : public SteppedDevice {
 public:
  using SteppedDevice::SteppedDevice;
  absl::Status Call(const LaunchFunction& function, const FunctionLaunch& launch,
                    Stream stream) override {
    FunctionLaunch on_stream = launch;
    on_stream.stream = stream.handle;
    return function.Launch(on_stream);
  }
};

// x, y, alpha, out of length n.
struct AxpyTensors {
  explicit AxpyTensors(int64_t n);
  std::vector<TensorView> views;
  std::vector<float> memory;
  float alpha = 2;
};

}  // namespace kvr
