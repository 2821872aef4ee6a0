// SPDX-License-Identifier: Apache-2.0
//
// Hopper's matrix product of a warpgroup (sm_90a): D[64,N] += A[64,16] * B[16,N], 16-bit inputs,
// fp32 accumulators, asynchronous. A is in registers: warp w of the four holds rows 16 w ... + 15
// as an A fragment of matrix.cuh; or in shared memory, like B, where MatrixAddress or
// SwizzledAddress says where. D: warp w holds rows 16 w ... + 15, as N / 8 fragments of 8 columns:
// d[4 n ... + 3] as D of matrix.cuh.
//
//   kvr::FenceProducts();               // registers written so far may be read, d too
//   kvr::ProductF16(d, a, b, false);    // any number; `false`: d is not added to
//   kvr::CommitProducts();
//   kvr::WaitForProducts<0>();          // all but the newest 0 groups: only then touch a or d
//
// Ordinary stores into B pass kvr::FenceAsyncProxy in the threads that wrote, then a barrier.
#pragma once

#include <kvr/hopper.cuh>
#include <kvr/platform.cuh>

namespace kvr {

// B as tiles of 8x8 values, each 128 bytes in a row. K-major (kTransposed false): a tile's rows of
// 16 bytes are columns of B, 8 of its depth; otherwise they are rows of B, 8 of its columns.
// `depth_stride`, `column_stride`: bytes from a tile to the next in that direction. All of it, and
// `shared`, multiples of 16.
KVR_DEVICE uint64_t MatrixAddress(const void* shared, int depth_stride, int column_stride) {
  return static_cast<uint64_t>((SharedAddress(shared) & 0x3ffff) >> 4) |
         static_cast<uint64_t>(depth_stride >> 4) << 16 |
         static_cast<uint64_t>(column_stride >> 4) << 32;
}

// The same as rows of 128 bytes, 64 values, 8 of them together, 1024 bytes aligned to 1024; the 16
// bytes number i of row r lie at place i ^ (r % 8) in it. K-major: rows are columns of B (or rows
// of A), 64 of its depth; the address of 16 further ones in depth is 32 bytes more. Otherwise they
// are rows of B, 64 of its columns. `eight_stride`: bytes to the next 8 rows; `wide_stride`: to the
// next 64 columns, of the second form.
KVR_DEVICE uint64_t SwizzledAddress(const void* shared, int eight_stride, int wide_stride) {
  return MatrixAddress(shared, wide_stride, eight_stride) | uint64_t{1} << 62;
}

KVR_DEVICE void FenceProducts() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
KVR_DEVICE void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int kNewest>
KVR_DEVICE void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kNewest) : "memory");
}

#define KVR_PRODUCT(type)                                                                          \
  asm volatile(                                                                                    \
      "{\n"                                                                                        \
      ".reg .pred add;\n"                                                                          \
      "setp.ne.b32 add, %37, 0;\n"                                                                 \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                  \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "    \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                         \
      "{%32, %33, %34, %35}, %36, add, 1, 1, %38;\n"                                               \
      "}\n"                                                                                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),        \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                                         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),            \
        "n"(kTransposed ? 1 : 0))

template <bool kTransposed>
KVR_DEVICE void ProductF16(float (&d)[32], const uint32_t* a, uint64_t b, bool add) {
  KVR_PRODUCT("f16");
}
template <bool kTransposed>
KVR_DEVICE void ProductBf16(float (&d)[32], const uint32_t* a, uint64_t b, bool add) {
  KVR_PRODUCT("bf16");
}
#undef KVR_PRODUCT

// A and B in shared memory. N = 32, both K-major.
KVR_DEVICE void ProductBf16(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, add, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// The same, N = 128, A K-major, B not.
KVR_DEVICE void ProductBf16(float (&d)[64], uint64_t a, uint64_t b) {
#define KVR_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KVR_16(i) KVR_4(i), KVR_4(i + 4), KVR_4(i + 8), KVR_4(i + 12)
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, "
      "%37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, "
      "%55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, 1, 1, 1, 0, 1;\n"
      : KVR_16(0), KVR_16(16), KVR_16(32), KVR_16(48)
      : "l"(a), "l"(b));
#undef KVR_16
#undef KVR_4
}

}  // namespace kvr
