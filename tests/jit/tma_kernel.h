// SPDX-License-Identifier: Apache-2.0
//
// y = alpha * x over [n] of bf16, x through the tensor memory accelerator: a view of [n / 64, 64],
// eight rows a block. What lies beyond the view is not written.
#pragma once

#include <utility>

#include "tests/jit/fixtures.h"

namespace kvr {

inline constexpr char kTmaSource[] = R"(// Scales.
#include <cuda_bf16.h>

__device__ inline unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__global__ void __launch_bounds__(128)
scale_tiles(const __grid_constant__ CUtensorMap map, float alpha, __nv_bfloat16* y, int n) {
  constexpr int kRows = 8, kWidth = 64, kTile = kRows * kWidth;
  __shared__ alignas(128) __nv_bfloat16 tile[kTile];
  __shared__ alignas(8) unsigned long long arrived;
  const unsigned barrier = SharedAddress(&arrived);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "n"(kTile * 2)
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(SharedAddress(tile)),
        "l"(&map), "r"(0), "r"(static_cast<int>(blockIdx.x) * kRows), "r"(barrier)
        : "memory");
  }
  for (unsigned done = 0; done == 0;) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  }
  for (int i = threadIdx.x; i < kTile; i += 128) {
    const int at = static_cast<int>(blockIdx.x) * kTile + i;
    if (at < n) y[at] = __float2bfloat16(alpha * __bfloat162float(tile[i]));
  }
}
)";

// Of ScaleOp; `n` a multiple of 64.
inline Variant TmaVariant() {
  const OpSpec op = ScaleOp();
  Variant variant;
  variant.op = "scale";
  variant.name = "tma";
  variant.targets = {"sm_80+", "host"};
  variant.sources = {{"scale_tiles.cu", kTmaSource, ""}};
  PlanProgram& plan = variant.plan;
  plan.axis_count = 1;
  const SymbolTable symbols = PlanProgram::Symbols(op, {}, {}, {});
  const auto parse = [&](const char* text) {
    absl::StatusOr<Expr> expr = Expr::Parse(text, symbols);
    if (!expr.ok()) std::abort();
    return *std::move(expr);
  };
  plan.constraints = {parse("mod(n, 64) == 0")};
  TensorMapSpec map;
  map.name = "x_rows";
  map.dtype = DType::kBF16;
  map.shape = {parse("floordiv(n, 64)"), Expr::Constant(64)};
  map.box = {Expr::Constant(8), Expr::Constant(64)};
  plan.tensor_maps = {map};
  KernelSpec kernel;
  kernel.name = "scale";
  kernel.entry = "scale_tiles";
  kernel.grid[0] = parse("ceildiv(n, 512)");
  kernel.block[0] = Expr::Constant(128);
  kernel.smem = Expr::Constant(0);
  kernel.file = "variant.toml";
  kernel.line = 40;
  ArgSpec n = Arg(ArgSpec::Kind::kValue, 0, DType::kI32, "i32(n)");
  n.value = parse("n");
  kernel.args = {Arg(ArgSpec::Kind::kTensorMap, 0, DType::kBF16, "tensor_map.x_rows"),
                 Arg(ArgSpec::Kind::kScalar, 1, DType::kF32, "alpha"),
                 Arg(ArgSpec::Kind::kTensor, 2, DType::kBF16, "y"), n};
  plan.kernels = {kernel};
  variant.fingerprint = FingerprintOf("tma");
  return variant;
}

}  // namespace kvr
