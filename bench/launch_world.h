// SPDX-License-Identifier: Apache-2.0
//
// What the launch benchmarks run on: mla_sparse_decode with the variants of bench/variants, whose
// kernels are empty, on the null device (a compiler that emits nothing) or on a GPU (NVRTC).
//
// Errors end the process: a benchmark has nobody to report to.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "api/platform.h"
#include "registry/dispatcher.h"

namespace kvr::bench {

inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

struct Shape {
  int64_t tokens, topk;
};

// The op's tensors at 16 heads; no kernel reads them. SetShape is a few stores.
class Tensors {
 public:
  explicit Tensors(void* memory);
  void SetShape(Shape shape) {
    for (int i : {0, 1, 4, 6, 7}) views_[i].shape[0] = shape.tokens;
    views_[4].shape[1] = shape.topk;
  }
  absl::Span<const TensorView> views() const { return views_; }

 private:
  std::vector<TensorView> views_;
  float scale_ = 1;
};

class LaunchWorld {
 public:
  // `device`: "null" or "cuda:N". `bundles`: bench/variants, there or installed.
  LaunchWorld(const std::string& device, const std::string& bundles);

  // `keys` selected keys, each loaded, of a policy that tells every token count and topk apart, or
  // of the op's usual buckets (keys: 11). They share the variant's configs.
  std::unique_ptr<Dispatcher> Load(const std::string& variant, int keys);
  // The generation that Load published, with its configs dealt out anew: as good as any other.
  GenerationPtr Generation(const std::string& variant, int keys, int64_t number) const;

  Device& device() const { return *device_; }
  Jit& jit() const { return jit_ != nullptr ? *jit_ : platform_->jit(); }
  const Catalog& catalog() const { return *catalog_; }
  void* memory() const { return memory_; }

 private:
  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<Jit> jit_;  // null: the platform's
  void* memory_ = nullptr;
};

inline constexpr char kOp[] = "mla_sparse_decode";
inline constexpr int kBucketedKeys = 11;
// 10 000 shapes: each a key of the exact policy; under the buckets none is loaded, though its key
// is.
inline Shape ShapeOf(int i) { return {1 + i % 100, 130 + i / 100 % 100}; }

}  // namespace kvr::bench
