// SPDX-License-Identifier: Apache-2.0
//
// The memory of a synthetic decode stack: layers of mla_sparse_decode and moe_decode, what they
// read, and what they write. Shared by whoever launches on it, one step at a time.
//
//   weights, caches   per layer its own, so that no layer finds its weights in the L2 of the one
//                     before. One block of up to 64 MiB of values of the op's own generator, drawn
//                     on the host, is copied again and again until the tensor is full: experts and
//                     pages repeat, which no kernel can make use of, and filling 50 GB takes as
//                     long as copying them.
//   inputs            several sets, to be used in turn: no step repeats the rows of the last.
//                     Queries and hidden states are the generators'; layer l takes those of set
//                     s + l. Router logits and bias are drawn for each (set, layer), correlated as
//                     the generator has them. Indices too: each row takes distinct slots of a
//                     cache of its own, in random order.
//   outputs           per layer. Layers do not read what others wrote, so that values stay as they
//                     are drawn, however many layers there are.
//
// A batch smaller than its bucket is padded: indices of the further rows are -1, and
// num_valid_tokens, on the device, is the batch.
//
// Create allocates nothing: Needs() says how much Fill will, and Fill asks `cancel` between
// tensors.
//
// Threading: one thread; `cancel` may be set from any. Stream order: everything on stream().
// Ownership: the device outlives it, it outlives launches and graphs on its memory. Capture safety:
// Tensors alone. Errors: kResourceExhausted says for what; kCancelled: Fill was stopped, and
// nothing but the end may follow.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/decode/shape.h"
#include "core/device.h"
#include "core/op.h"
#include "registry/catalog.h"
#include "tuner/progress.h"

namespace kvr {

struct DecodeStackOptions {
  DecodeShape shape;
  int layers = 4;
  int input_sets = 8;  // at least 2
  int64_t rows = 1;    // of the largest batch
  const std::atomic<bool>* cancel = nullptr;
  Progress* progress = nullptr;
};

// What one step wrote.
struct DecodeOutputs {
  std::string bytes;          // all of it, for comparison
  int64_t wrong_rows = 0;     // with a value that is not finite, or padding that is not empty
  std::string what;           // is wrong with the first of them
  double active_experts = 0;  // mean over the layers
};

class DecodeStack {
 public:
  static absl::StatusOr<std::unique_ptr<DecodeStack>> Create(const Catalog& catalog, Device& device,
                                                             const DecodeStackOptions& options);
  ~DecodeStack();
  DecodeStack(const DecodeStack&) = delete;
  DecodeStack& operator=(const DecodeStack&) = delete;

  int64_t Needs(int layers) const;  // bytes, of so many layers
  absl::Status Fill();              // once, before all below

  const DecodeStackOptions& options() const { return options_; }
  Device& device() const { return device_; }
  Stream stream() const { return stream_; }
  Axes AxesOf(std::string_view op, int64_t num_tokens) const;
  int64_t BytesOf(std::string_view op) const;  // weights or cache of a layer

  // In the op's order, the first `bucket` rows.
  std::vector<TensorView> Tensors(std::string_view op, int layer, int set, int64_t bucket) const;
  // The next step is of this set and has so many rows. Waits for what that changes, so that no step
  // is timed with it; nothing is done where it had as many before.
  absl::Status SetBatch(int set, int64_t batch);
  absl::Status PoisonOutputs();
  absl::StatusOr<DecodeOutputs> Outputs(int64_t bucket, int64_t batch);  // waits

 private:
  // Who has memory of its own for a tensor.
  enum class Share { kScalar, kAll, kLayer, kSet, kLayerOfSet };
  struct Known;
  static const Known* Find(std::string_view op, std::string_view tensor);
  struct Op {
    const Operation* operation = nullptr;
    std::vector<TensorView> shapes;  // of `rows` tokens
    std::vector<int64_t> scalars;    // a cell for each tensor
  };
  struct Place {
    std::string_view op;
    int tensor, layer, set;  // layer, set: -1 where it is the same for all
    auto operator<=>(const Place&) const = default;
  };
  using Drawing = std::vector<std::vector<char>>;  // by input

  DecodeStack(Device& device, const DecodeStackOptions& options)
      : device_(device), options_(options) {}
  absl::Status Resolve(const Catalog& catalog);
  int Places(Share share, int layers) const;
  absl::Status FillLayers(std::string_view op, const Axes& block);
  absl::Status FillSets();
  absl::Status FillRouters();
  absl::Status FillIndices();

  absl::StatusOr<Drawing> Draw(std::string_view op, const Axes& axes, uint64_t seed) const;
  void KeepScalars(std::string_view op, const Drawing& drawing);
  absl::Status GoOn() const;  // kCancelled: no
  absl::StatusOr<void*> Allocate(const Place& place);
  absl::Status Upload(const Place& place, const void* from);

  const Op& op(std::string_view name) const { return ops_.find(name)->second; }
  int TensorOf(std::string_view op, std::string_view tensor) const;
  Place PlaceOf(std::string_view op, int tensor, int layer, int set) const;

  Device& device_;
  const DecodeStackOptions options_;
  Stream stream_;
  int places_ = 0;  // that are to be filled
  std::map<std::string_view, Op> ops_;
  std::map<Place, void*> memory_;                         // on the device
  std::vector<std::vector<std::vector<int32_t>>> slots_;  // sparse_indices by set, by layer
  std::vector<int64_t> batches_;                          // by set: rows that are no padding
  int32_t valid_ = -1;                                    // num_valid_tokens on the device
};

}  // namespace kvr
