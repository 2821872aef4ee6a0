// SPDX-License-Identifier: Apache-2.0
//
// stream_chunks: checksum[i] = sum of the words of chunk i. A warp takes kChunks neighbouring
// chunks and adds nothing before all their loads are under way.
#include <kvr/device.cuh>

namespace stream {

constexpr int kChunkBytes = 4096;
constexpr int kLoads = kChunkBytes / (16 * kvr::kWarpLanes);  // of a lane

KVR_DEVICE uint32_t Sum(const uint4& v) { return v.x + v.y + v.z + v.w; }

}  // namespace stream

// blocks    [chunks, 1024]
// checksum  [chunks]
// Grid: any; warps stride through the chunks.
template <int kWarps, int kChunks>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    stream_chunks(const int* blocks, int* checksum, int chunks) {
  using namespace stream;
  const int lane = kvr::LaneIndex();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(blocks) + lane * 16;
  const int step = static_cast<int>(gridDim.x) * kWarps * kChunks;
  int first = (static_cast<int>(blockIdx.x) * kWarps + kvr::WarpIndex()) * kChunks;
  for (; first < chunks; first += step) {
    uint4 values[kChunks][kLoads];
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        values[chunk][load] = make_uint4(0, 0, 0, 0);
        if (first + chunk < chunks) {
          values[chunk][load] = kvr::LoadReadOnly<uint4>(
              bytes + int64_t{first + chunk} * kChunkBytes + load * 16 * kvr::kWarpLanes);
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
}
