// SPDX-License-Identifier: Apache-2.0
//
// stream_chunks: checksum[i] = sum of the words of chunk i. A warp takes kChunks neighbouring
// chunks and adds nothing before all their loads are under way: many small loads for a few
// megabytes, where the last wave counts, long runs for many.
//
// Tried on an H200 beside this (2026-11-30; 84 blocks of 9.44 MB, 176 us): blocks that stay and
// stride, 174 us where they keep one sum for all, which says less of what was read, 181 where they
// store a sum for each 2 KiB; loads a step ahead in registers, 179; bulk copies into shared memory,
// 175 to 181; work handed out by a counter, 174 to 179. What is left is the memory's.
#include <kvr/device.cuh>

namespace stream {

constexpr int kChunkBytes = 2048;
constexpr int kLoads = kChunkBytes / (16 * kvr::kWarpLanes);  // of a lane

KVR_DEVICE uint32_t Sum(const uint4& v) { return v.x + v.y + v.z + v.w; }

}  // namespace stream

// blocks    [chunks, 512]
// checksum  [chunks]
// Grid: ceil(chunks / (kWarps * kChunks)).
template <int kWarps, int kChunks>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    stream_chunks(const int* blocks, int* checksum, int chunks) {
  using namespace stream;
  const int lane = kvr::LaneIndex();
  const int first = (static_cast<int>(blockIdx.x) * kWarps + kvr::WarpIndex()) * kChunks;
  const auto* const bytes =
      reinterpret_cast<const unsigned char*>(blocks) + int64_t{first} * kChunkBytes + lane * 16;
  uint4 values[kChunks][kLoads];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      values[chunk][load] = make_uint4(0, 0, 0, 0);
      if (first + chunk < chunks) {
        values[chunk][load] = kvr::LoadOnce<uint4>(bytes + int64_t{chunk} * kChunkBytes +
                                                   load * 16 * kvr::kWarpLanes);
      }
    }
  }
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    uint32_t total = 0;
#pragma unroll
    for (int load = 0; load < kLoads; ++load) total += Sum(values[chunk][load]);
    total = __reduce_add_sync(kvr::kAllLanes, total);
    if (lane == 0 && first + chunk < chunks) checksum[first + chunk] = static_cast<int>(total);
  }
}
