// SPDX-License-Identifier: Apache-2.0
//
// Tensor-core fragments: D[16,8] = A[16,16] * B[16,8] + C[16,8], 16-bit inputs, fp32 accumulators.
// A warp holds the matrices together; with g = lane / 4 and t = lane % 4 a lane holds
//
//   A, 4 registers of 2 values    a[0] = A[g  ][2t, 2t+1]     a[2] = A[g  ][2t+8, 2t+9]
//                                 a[1] = A[g+8][2t, 2t+1]     a[3] = A[g+8][2t+8, 2t+9]
//   B, 2 registers of 2 values    b[0] = B[2t, 2t+1][g]       b[1] = B[2t+8, 2t+9][g]
//   C and D, 4 floats             d[0], d[1] = D[g  ][2t, 2t+1]
//                                 d[2], d[3] = D[g+8][2t, 2t+1]
//
// The lower value of a register is the one with the lower index. Two neighbouring D tiles,
// rounded to 16 bits, are therefore an A tile: {d0 d1, d2 d3, next d0 d1, next d2 d3}.
//
// LoadMatrix reads 8x8 tiles of 16-bit values from shared memory. Lanes 8i...8i+7 give the
// addresses of the 8 rows of tile i (16 bytes each, aligned to 16); register i receives
// tile i's [g][2t, 2t+1], or [2t, 2t+1][g] in the transposed form. So tiles stored as rows of A, or
// as columns of B (B's transpose, row by row), load plainly; B stored row by row loads transposed.
//
// All functions are collective: the whole warp calls them together.
#pragma once

#include <kvr/platform.cuh>

namespace kvr {

// `row`: the address this lane gives. In the x2 forms those of lanes 16...31 are ignored.
KVR_DEVICE void LoadMatrixX4(uint32_t (&r)[4], const void* row) {
#if defined(KVR_HOST)
  kvr_host_ldmatrix_x4(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

KVR_DEVICE void LoadMatrixX4Trans(uint32_t (&r)[4], const void* row) {
#if defined(KVR_HOST)
  kvr_host_ldmatrix_x4_trans(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

KVR_DEVICE void LoadMatrixX2(uint32_t (&r)[2], const void* row) {
#if defined(KVR_HOST)
  kvr_host_ldmatrix_x2(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

KVR_DEVICE void LoadMatrixX2Trans(uint32_t (&r)[2], const void* row) {
#if defined(KVR_HOST)
  kvr_host_ldmatrix_x2_trans(r, row);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

// d += A * B, bf16 inputs.
KVR_DEVICE void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if defined(KVR_HOST)
  const uint32_t b[2] = {b0, b1};
  kvr_host_mma_m16n8k16_bf16(d, a, b, d);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// d += A * B, f16 inputs.
KVR_DEVICE void MmaF16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if defined(KVR_HOST)
  const uint32_t b[2] = {b0, b1};
  kvr_host_mma_m16n8k16_f16(d, a, b, d);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace kvr
