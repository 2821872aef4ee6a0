// SPDX-License-Identifier: Apache-2.0
//
// A small op and variant, made in code: y = alpha * x over [n] with a two-kernel plan.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/op.h"
#include "core/variant.h"

namespace kvr {

inline OpSpec ScaleOp() {
  OpSpec op;
  op.name = "scale";
  op.axes = {{"n", false, 0, 128, ""}};
  TensorSpec x;
  x.name = "x";
  x.dtype = DType::kBF16;
  x.axes = {0};
  TensorSpec alpha;
  alpha.name = "alpha";
  alpha.is_scalar = true;
  TensorSpec y = x;
  y.name = "y";
  op.inputs = {x, alpha};
  op.outputs = {y};
  return op;
}

inline ArgSpec Arg(ArgSpec::Kind kind, int index, DType dtype, std::string text) {
  ArgSpec arg;
  arg.kind = kind;
  arg.index = index;
  arg.dtype = dtype;
  arg.text = std::move(text);
  return arg;
}

// What ScaleVariant's kernel takes: x, alpha, workspace.partial, y, i32(n), i64(n).
inline constexpr char kScaleSource[] = R"(// Scales.
#include <cuda_bf16.h>
#include <cstdint>

#include "tile.cuh"

template <int BLOCK, int UNROLL>
__global__ void __launch_bounds__(BLOCK)
scale(const __nv_bfloat16* __restrict__ x, float alpha,
      float* partial,
      __nv_bfloat16* y, int n,
      int64_t elements) {
#pragma unroll {{UNROLL}}
  for (int i = threadIdx.x; i < n; i += BLOCK) {
    y[i] = __float2bfloat16(alpha * Load(x, i));
  }
  if (partial != nullptr) partial[0] = static_cast<float>(elements);
}
)";

inline constexpr char kTileHeader[] = R"(#pragma once
__device__ inline float Load(const __nv_bfloat16* x, int i) { return __bfloat162float(x[i]); }
)";

inline Variant ScaleVariant() {
  Variant variant;
  variant.op = "scale";
  variant.name = "plain";
  variant.targets = {"sm_80+", "host"};
  variant.tunables = {{"BLOCK", {64, 128}, 128, Scope::kCompile, ""},
                      {"UNROLL", {1, 4}, 4, Scope::kCompile, ""},
                      {"TARGET_CTAS", {1, 2}, 1, Scope::kLaunch, ""}};
  variant.sources = {{"scale.cu", kScaleSource, ""}};
  variant.headers = {{"tile.cuh", kTileHeader, ""}};
  RegionSpec region;
  region.name = "partial";
  variant.plan.regions = {region};
  KernelSpec kernel;
  kernel.name = "scale";
  kernel.entry = "scale<BLOCK, UNROLL>";
  kernel.file = "variant.toml";
  kernel.line = 40;
  kernel.args = {Arg(ArgSpec::Kind::kTensor, 0, DType::kBF16, "x"),
                 Arg(ArgSpec::Kind::kScalar, 1, DType::kF32, "alpha"),
                 Arg(ArgSpec::Kind::kWorkspace, 0, DType::kF32, "workspace.partial"),
                 Arg(ArgSpec::Kind::kTensor, 2, DType::kBF16, "y"),
                 Arg(ArgSpec::Kind::kValue, 0, DType::kI32, "i32(n)"),
                 Arg(ArgSpec::Kind::kValue, 0, DType::kI64, "i64(n)")};
  variant.plan.kernels = {kernel};
  return variant;
}

inline void Replace(std::string* text, const std::string& from, const std::string& to) {
  size_t at = text->find(from);
  if (at == std::string::npos) std::abort();
  text->replace(at, from.size(), to);
}

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvr_jit_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace kvr
