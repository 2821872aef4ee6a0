// SPDX-License-Identifier: Apache-2.0
//
// What examples/serve serves: N decode layers of mla_sparse_decode in a row, each with a KV cache
// of its own, as one captured graph per batch bucket. Layer l reads what layer l-1 wrote. Before
// each layer the application clears its output, by a node of its own: what a layer did not write in
// this very step is there for everybody to see.
//
// Threading: one thread. Ownership: the runtime outlives it. Streams, graphs and memory go through
// core/device.h, so it runs on every device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/runtime.h"

namespace serve {

inline constexpr char kOp[] = "mla_sparse_decode";

struct ModelOptions {
  int layers = 4;
  std::vector<int64_t> buckets;  // batch sizes, each a graph
  int64_t topk = 512, heads = 16, pages = 512;
  int input_sets = 3;       // what a step may be asked to attend to
  int spare_nodes = 1;      // per layer: a later plan may have as many more kernels
  bool keep_graph = false;  // patch node by node; else by whole-graph update
};

class Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Create(kvr::Runtime& runtime, ModelOptions options);
  ~Model();

  // "num_tokens=1..96,num_qo_heads=16,...": what has to be loaded.
  std::string Ranges() const;
  kvr::Axes Shape(int64_t bucket) const;

  // Gives the stream its workspaces; after Load, and before captures and eager launches.
  absl::Status Prepare() { return runtime_.PrepareStream(stream_); }
  // The bucket's graph, in place of the one it had.
  absl::Status Capture(int64_t bucket);
  // Brings the bucket's graph to the current generation. Where that fails it runs what it ran.
  kvr::Applied Apply(int64_t bucket);
  // The next step attends to these; not while one runs.
  absl::Status Stage(int64_t bucket, int input_set);
  absl::Status Replay(int64_t bucket);
  // The same launches, eagerly, under the current generation.
  absl::Status LaunchEagerly(int64_t bucket) { return Layers(bucket); }
  absl::Status Wait();

  // What the last step of `bucket` wrote: a layer after the other, its output and its lse.
  absl::StatusOr<std::vector<std::string>> Outputs(int64_t bucket);

  const ModelOptions& options() const { return options_; }
  kvr::Fingerprint digest(int64_t bucket) const;  // of the generation that its graph runs

 private:
  struct Captured {
    std::unique_ptr<kvr::Graph> graph;
    std::optional<kvr::GraphBinding> binding;
  };
  Model(kvr::Runtime& runtime, ModelOptions options) : runtime_(runtime), options_(options) {}
  absl::Status Allocate();
  absl::StatusOr<void*> Memory(int64_t bytes);
  absl::Status Layers(int64_t bucket);  // enqueues them
  std::vector<kvr::TensorView> Tensors(int64_t bucket, int layer) const;

  kvr::Runtime& runtime_;
  const ModelOptions options_;
  int64_t largest_ = 0;
  kvr::OpHandle op_;
  kvr::Stream stream_;
  std::vector<void*> memory_;
  std::vector<kvr::TensorView> shapes_;     // of the largest bucket
  std::vector<std::vector<void*>> layers_;  // by layer: the tensors' memory
  std::vector<std::vector<char>> indices_;  // by input set, on the host
  float sm_scale_ = 0.0722f;
  std::map<int64_t, Captured> graphs_;
};

}  // namespace serve
