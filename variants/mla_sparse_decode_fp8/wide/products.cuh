// SPDX-License-Identifier: Apache-2.0
//
// Products of a warpgroup as wgmma.cuh has them, bf16, with matrices in shared memory as blocks of
// rows of 128 bytes: byte 16 (c ^ r % 8) of row r has values 8 c ... + 7 of it, and 8 rows are 1024
// bytes, aligned to that. Here D is [64, 64] or [64, 128], A in registers unless said.
#pragma once

#include <kvr/wgmma.cuh>

namespace mla {

inline constexpr int kBlockRowBytes = 128, kBlockRowChunks = 8;

// Where chunk `chunk` of row `row` lies.
KVR_DEVICE int Swizzled(int row, int chunk) {
  return row * kBlockRowBytes + (chunk ^ row % kBlockRowChunks) * 16;
}

// The address of a block for a product. `next`: bytes to the block with the next 64 columns, if
// rows of B are rows of the block.
KVR_DEVICE uint64_t BlockAddress(const void* block, int next = 0) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kvr::MatrixAddress(block, next, kBlockRowChunks * kBlockRowBytes) | kSwizzle128;
}

// In its unit: 16 values further in a row, 16 rows further.
inline constexpr int kColumnStep = 16 * 2 / 16, kRowStep = 16 * kBlockRowBytes / 16;

// D += A B, both in shared memory; rows of the blocks are rows of A and columns of B.
KVR_DEVICE void AddProduct(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

// The same, rows of A's block are rows of A, and rows of B's rows of B.
KVR_DEVICE void AddProduct(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, 1, 1, 1, 0, 1;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b));
}

// Four 8x8 tiles of 16-bit values, held as D of matrix.cuh is, to shared memory: lanes 8 i ... + 7
// give the addresses of the rows of tile i.
KVR_DEVICE void StoreMatrixX4(void* row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(
                   kvr::SharedAddress(row)),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

}  // namespace mla
