// SPDX-License-Identifier: Apache-2.0
//
// What the tests of captures share: a runtime on the program's device with variants of the
// operation `null` whose output tells which of them ran, and with which configuration.
//
//   variant    config           y               kernels
//   baseline                    x               1
//   tagged     LOW, HIGH        x + tag         1; another tag is another config, nothing compiles
//   counted    LOW, HIGH        x + tag         2, and a workspace that is cleared before them
//   compiled   TAG              x + tag         1; another tag is another module
//
// The sources compile for every device, so one program runs on the host device and another, of the
// same sources, on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "api/runtime.h"
#include "core/device.h"
#include "registry/capture_scope.h"
#include "registry/graph_binding.h"

namespace kvr {

// Each program has its own: "host" or "cuda".
extern const char* const kCaptureDevice;
bool OnGpu();

constexpr CaptureMode kCaptureModes[] = {CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                         CaptureMode::kRelaxed};
std::string ModeName(CaptureMode mode);

template <typename T>
T Must(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return *std::move(value);
}
#define EXPECT_KVR_OK(expression) EXPECT_EQ((expression), absl::OkStatus())
#define ASSERT_KVR_OK(expression) ASSERT_EQ((expression), absl::OkStatus())

constexpr int kMostTags = 4096;     // of tagged and counted: 0 … 4095
constexpr int kCompiledTags = 12;   // of compiled: 0 … 11
constexpr int64_t kElements = 200;  // of a layer; what is loaded
constexpr int64_t kColdElements = 3000;

// Inputs and outputs of several launches, in device memory; x differs by layer and element.
class Layers {
 public:
  Layers(Device& device, Stream stream, int count, int64_t elements = kElements);
  ~Layers();
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  int count() const { return static_cast<int>(views_.size()); }
  int64_t elements() const { return elements_; }
  const std::vector<TensorView>& views(int layer) const { return views_[layer]; }
  float* x(int layer) const { return x_ + layer * elements_; }
  float* y(int layer) const { return y_ + layer * elements_; }
  int64_t bytes() const { return count() * elements_ * 4; }  // of all outputs
  float input(int layer, int64_t element) const;

  absl::Status Poison();  // every output a NaN
  // Empty where every output is x + tag, else the first that is not. Any thread; waits.
  std::string Wrong(int tag) const;
  // The same of outputs that were copied to host memory.
  std::string WrongIn(const float* outputs, int tag) const;

 private:
  Device& device_;
  const Stream stream_;
  const int64_t elements_;
  float* x_ = nullptr;
  float* y_ = nullptr;
  std::vector<std::vector<TensorView>> views_;
};

// A kernel of the application: copies memory, as floats.
class OwnKernel {
 public:
  explicit OwnKernel(Runtime& runtime);
  absl::Status Copy(const float* from, float* to, int count, Stream stream);

 private:
  Device& device_;
  std::unique_ptr<Module> module_;
  Function function_;
};

struct Captured {
  std::unique_ptr<Graph> graph;
  std::unique_ptr<GraphBinding> binding;
  GraphExec exec() const { return graph->exec(); }
};

// A runtime, a stream and some layers, as a serving program has them. Helpers are for one thread;
// Publish, TagOf and whatever the runtime allows are for any.
class Engine {
 public:
  static constexpr int kLayers = 3;
  explicit Engine(RuntimeOptions options = {});
  ~Engine();

  Runtime& runtime() { return *runtime_; }
  Device& device() { return runtime_->device(); }
  Stream stream() const { return stream_; }
  Layers& layers() { return *layers_; }
  Stream NewStream(std::string_view pool = {});

  // Selects `variant` for the layers' shape and the cold one; of its own digest.
  GenerationPtr Selecting(const std::string& variant, int tag);
  GenerationPtr Publish(const std::string& variant, int tag);
  // Generations of other selections follow until whatever is not captured has left the history.
  void PushOut();
  int TagOf(const Fingerprint& digest);

  absl::Status Launch(int layer, Stream stream);
  absl::Status LaunchLayers(Stream stream);
  absl::Status LaunchLayers() { return LaunchLayers(stream_); }
  std::string Eager(int tag);  // launches all layers outside captures; as Layers::Wrong
  // Begins a capture, opens a scope in it, launches all layers, calls `between`, and so on.
  Captured Capture(
      const CaptureOptions& options = {}, CaptureMode mode = CaptureMode::kThreadLocal,
      absl::FunctionRef<void()> between = [] {});
  std::string Replay(const Captured& captured, int tag);  // as Layers::Wrong
  // Applies what is current, which must be possible, and replays that.
  std::string ApplyAndReplay(const Captured& captured);
  // Collects until `count` configs were let go of since the start. On cuda the driver tells only
  // some time after a graph is gone that it is.
  bool Retires(uint64_t count);

 private:
  std::unique_ptr<Runtime> runtime_;
  std::vector<Stream> streams_;
  Stream stream_;
  std::unique_ptr<Layers> layers_;

  std::mutex mutex_;
  std::map<Fingerprint, int> tags_;
  int64_t number_ = 0;
};

// The program's device where none is named, the planted variants, a cache that all tests share.
RuntimeOptions EngineOptions(RuntimeOptions options = {});

// Of the GPU, by the driver; 0 on host.
int64_t FreeDeviceBytes(Device& device);

// A context of the application on the first GPU, beside the primary one.
class OwnContext {
 public:
  OwnContext();
  ~OwnContext();
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

// Skips where the program's device is not there.
class CapturesTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace kvr
