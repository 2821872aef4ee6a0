// SPDX-License-Identifier: Apache-2.0
#include "examples/serve/model.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace serve {
namespace {

// The op's tensors, in its order.
enum Tensor { kQNope, kQPe, kCkv, kKpe, kIndices, kScale, kOutput, kLse, kTensors };

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(kvr::Runtime& runtime, ModelOptions options) {
  std::unique_ptr<Model> model(new Model(runtime, std::move(options)));
  KVR_RETURN_IF_ERROR(model->Allocate());
  return model;
}

Model::~Model() {
  if (stream_.handle != nullptr) (void)Wait();
  graphs_.clear();
  for (void* memory : memory_) runtime_.device().Free(memory);
  if (stream_.handle != nullptr) runtime_.device().DestroyStream(stream_);
}

absl::StatusOr<void*> Model::Memory(int64_t bytes) {
  KVR_ASSIGN_OR_RETURN(void* memory, runtime_.device().Allocate(bytes));
  memory_.push_back(memory);
  return memory;
}

kvr::Axes Model::Shape(int64_t bucket) const {
  return {{"num_tokens", bucket},
          {"num_qo_heads", options_.heads},
          {"num_pages", options_.pages},
          {"topk", options_.topk}};
}

std::string Model::Ranges() const {
  return kvr::StrCat("num_tokens=1..", largest_, ",num_qo_heads=", options_.heads,
                     ",num_pages=", options_.pages, ",topk=", options_.topk);
}

// Each layer has KV caches and outputs of its own; queries and indices are all layers'. Buckets
// replay one after another, so they share everything: a smaller one uses the first rows.
absl::Status Model::Allocate() {
  largest_ = *std::max_element(options_.buckets.begin(), options_.buckets.end());
  KVR_ASSIGN_OR_RETURN(op_, runtime_.FindOp(kOp));
  KVR_ASSIGN_OR_RETURN(const kvr::Catalog::Op* op, runtime_.catalog().FindOp(kOp));
  KVR_ASSIGN_OR_RETURN(const kvr::AxisVector axes, kvr::ResolveAxes(op->spec(), Shape(largest_)));
  shapes_ = kvr::TensorShapes(op->spec(), axes);
  if (shapes_.size() != kTensors) return absl::InternalError("the op has other tensors");

  kvr::Device& device = runtime_.device();
  KVR_ASSIGN_OR_RETURN(stream_, device.CreateStream());
  std::vector<void*> shared(kTensors, nullptr);
  shared[kScale] = &sm_scale_;
  for (const Tensor tensor : {kQNope, kQPe, kIndices}) {
    KVR_ASSIGN_OR_RETURN(shared[tensor], Memory(shapes_[tensor].bytes()));
  }
  layers_.assign(static_cast<size_t>(options_.layers), shared);
  for (std::vector<void*>& layer : layers_) {
    for (const Tensor tensor : {kCkv, kKpe, kOutput, kLse}) {
      KVR_ASSIGN_OR_RETURN(layer[tensor], Memory(shapes_[tensor].bytes()));
    }
  }

  // Random values by the op's own generator: one drawing a layer for its KV cache, and one an input
  // set for its indices; queries are those of the first.
  std::vector<std::vector<char>> host(kScale + 1);
  std::vector<kvr::TensorView> inputs(shapes_.begin(), shapes_.begin() + kScale + 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    host[i].resize(static_cast<size_t>(inputs[i].bytes()));
    inputs[i].data = host[i].data();
  }
  const auto copy = [&](Tensor tensor, void* to) {
    return device.CopyToDevice(to, host[tensor].data(), shapes_[tensor].bytes(), stream_);
  };
  const int drawings = std::max(options_.layers, options_.input_sets);
  for (int i = 0; i < drawings; ++i) {
    KVR_RETURN_IF_ERROR(
        op->operation->Generate(axes, static_cast<uint64_t>(i), absl::MakeSpan(inputs)));
    if (i < options_.input_sets) indices_.push_back(host[kIndices]);
    if (i < options_.layers) {
      const std::vector<void*>& layer = layers_[static_cast<size_t>(i)];
      KVR_RETURN_IF_ERROR(copy(kCkv, layer[kCkv]));
      KVR_RETURN_IF_ERROR(copy(kKpe, layer[kKpe]));
    }
    if (i == 0) {
      KVR_RETURN_IF_ERROR(copy(kQNope, shared[kQNope]));
      KVR_RETURN_IF_ERROR(copy(kQPe, shared[kQPe]));
    }
    KVR_RETURN_IF_ERROR(device.Synchronize(stream_));  // `host` is drawn anew
  }
  return absl::OkStatus();
}

std::vector<kvr::TensorView> Model::Tensors(int64_t bucket, int layer) const {
  std::vector<kvr::TensorView> tensors = shapes_;
  const std::vector<void*>& memory = layers_[static_cast<size_t>(layer)];
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = memory[i];
  for (const Tensor tensor : {kQNope, kQPe, kIndices, kOutput, kLse}) {
    tensors[tensor].shape[0] = bucket;
  }
  if (layer > 0) tensors[kQNope].data = layers_[static_cast<size_t>(layer - 1)][kOutput];
  return tensors;
}

absl::Status Model::Layers(int64_t bucket) {
  for (int layer = 0; layer < options_.layers; ++layer) {
    const std::vector<kvr::TensorView> tensors = Tensors(bucket, layer);
    for (const Tensor tensor : {kOutput, kLse}) {
      KVR_RETURN_IF_ERROR(runtime_.device().MemsetAsync(tensors[tensor].data, 0xFF,
                                                        tensors[tensor].bytes(), stream_));
    }
    KVR_RETURN_IF_ERROR(runtime_.Launch(op_, tensors, stream_));
  }
  return absl::OkStatus();
}

absl::Status Model::Capture(int64_t bucket) {
  graphs_.erase(bucket);
  kvr::Device& device = runtime_.device();
  KVR_RETURN_IF_ERROR(device.BeginCapture(stream_, kvr::CaptureMode::kThreadLocal));
  // From here on the capture has to be ended, whatever happens.
  absl::StatusOr<kvr::GraphBinding> binding = [&]() -> absl::StatusOr<kvr::GraphBinding> {
    KVR_ASSIGN_OR_RETURN(const std::unique_ptr<kvr::CaptureScope> scope,
                         runtime_.OpenCapture(stream_, {.spare_nodes = options_.spare_nodes,
                                                        .keeps_graph = options_.keep_graph}));
    KVR_RETURN_IF_ERROR(Layers(bucket));
    return scope->Finish();
  }();
  absl::StatusOr<std::unique_ptr<kvr::Graph>> graph =
      device.EndCapture(stream_, options_.keep_graph);
  KVR_RETURN_IF_ERROR(binding.status());
  KVR_RETURN_IF_ERROR(graph.status());
  graphs_[bucket] = {*std::move(graph), *std::move(binding)};
  return absl::OkStatus();
}

kvr::Applied Model::Apply(int64_t bucket) {
  Captured& captured = graphs_.at(bucket);
  absl::StatusOr<kvr::Applied> applied = captured.binding->Apply(captured.graph->exec());
  if (applied.ok()) return *std::move(applied);
  // The journal has the reason. The graph runs what it ran, so no step is lost; unless not even
  // that could be restored.
  kvr::Applied failed;
  failed.digest = digest(bucket);
  failed.reason = applied.status().ToString();
  if (failed.digest == kvr::Fingerprint{}) failed.outcome = kvr::Applied::kNeedsRecapture;
  return failed;
}

kvr::Fingerprint Model::digest(int64_t bucket) const {
  const Captured& captured = graphs_.at(bucket);
  return captured.binding->digest(captured.graph->exec());
}

absl::Status Model::Stage(int64_t bucket, int input_set) {
  const std::vector<char>& indices = indices_[static_cast<size_t>(input_set)];
  KVR_RETURN_IF_ERROR(runtime_.device().CopyToDevice(
      layers_.front()[kIndices], indices.data(), Tensors(bucket, 0)[kIndices].bytes(), stream_));
  return Wait();
}

absl::Status Model::Replay(int64_t bucket) { return graphs_.at(bucket).graph->Launch(stream_); }

absl::Status Model::Wait() { return runtime_.device().Synchronize(stream_); }

absl::StatusOr<std::vector<std::string>> Model::Outputs(int64_t bucket) {
  std::vector<std::string> outputs;
  for (int layer = 0; layer < options_.layers; ++layer) {
    const std::vector<kvr::TensorView> tensors = Tensors(bucket, layer);
    for (const Tensor tensor : {kOutput, kLse}) {
      outputs.emplace_back(static_cast<size_t>(tensors[tensor].bytes()), '\0');
      KVR_RETURN_IF_ERROR(runtime_.device().CopyToHost(outputs.back().data(), tensors[tensor].data,
                                                       tensors[tensor].bytes(), stream_));
    }
  }
  KVR_RETURN_IF_ERROR(Wait());
  return outputs;
}

}  // namespace serve
