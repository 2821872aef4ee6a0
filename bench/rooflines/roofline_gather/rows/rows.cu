// SPDX-License-Identifier: Apache-2.0
//
// gather_rows: checksum[token, g] = sum of the words of what entries 4g ... 4g + 3 of the token's
// list name. A warp takes kGroups neighbouring sums. Each of its lanes holds one entry's addresses;
// then the warp's lanes go over the bytes of 4 rows as if they were one run, 16 a lane, so all
// lanes have a load in flight whatever a row's length is.
//
// Nothing is staged and nothing is kept: what limits it is memory alone.
#include <kvr/device.cuh>

namespace gather {

constexpr int kRows = 4;   // of a sum
constexpr int kLoads = 8;  // of a lane: 4 rows of at most 1024 bytes, 512 a step
constexpr int kSideLanes = kvr::kWarpLanes / kRows;
constexpr uint32_t kNoRow = ~0u;  // padding, or beyond the list
constexpr int kUnit = 8;          // addresses are counted in 8 bytes: caches up to 32 GiB

struct Entry {
  uint32_t row, side;  // in units, from the cache's beginning
};

KVR_DEVICE Entry Locate(int slot, int page_size, int row_bytes, int side_bytes) {
  if (slot < 0) return {kNoRow, kNoRow};
  const int page = slot / page_size, offset = slot % page_size;
  const int64_t begin = int64_t{page} * page_size * (row_bytes + side_bytes);
  const int64_t sides = begin + int64_t{page_size} * row_bytes;
  return {static_cast<uint32_t>((begin + int64_t{offset} * row_bytes) / kUnit),
          static_cast<uint32_t>((sides + int64_t{offset} * side_bytes) / kUnit)};
}

KVR_DEVICE uint32_t Sum(const uint4& v) { return v.x + v.y + v.z + v.w; }

}  // namespace gather

// cache           [num_pages, page_size, row_bytes + side_bytes]: rows of a page, then sides
// sparse_indices  [num_tokens, topk]
// checksum        [num_tokens, groups]; sums = num_tokens * groups
// Grid: ceil(sums / (kWarps * kGroups)).
template <int kWarps, int kGroups>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    gather_rows(const unsigned char* cache, const int* sparse_indices, int* checksum, int sums,
                int groups, int topk, int page_size, int row_bytes, int side_bytes) {
  using namespace gather;
  const int lane = kvr::LaneIndex();
  const int first = (static_cast<int>(blockIdx.x) * kWarps + kvr::WarpIndex()) * kGroups;
  if (first >= sums) return;

  Entry entry{kNoRow, kNoRow};
  if (const int sum = first + lane / kRows; lane < kGroups * kRows && sum < sums) {
    const int token = sum / groups, at = sum % groups * kRows + lane % kRows;
    if (at < topk) {
      entry = Locate(sparse_indices[int64_t{token} * topk + at], page_size, row_bytes, side_bytes);
    }
  }

  const int row_loads = row_bytes / 16;  // at least 32: a step of all lanes passes one row at most
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    uint4 values[kLoads];
    int row = 0, at = lane;
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const uint32_t begin = __shfl_sync(kvr::kAllLanes, entry.row, group * kRows + row % kRows);
      values[load] = make_uint4(0, 0, 0, 0);
      if (row < kRows && begin != kNoRow) {
        values[load] = kvr::LoadReadOnly<uint4>(cache + int64_t{begin} * kUnit + at * 16);
      }
      at += kvr::kWarpLanes;
      if (at >= row_loads) {
        at -= row_loads;
        ++row;
      }
    }
    // Sides: 8 lanes a row, 16 bytes each, or 8 where that is all there is.
    const uint32_t begin =
        __shfl_sync(kvr::kAllLanes, entry.side, group * kRows + lane / kSideLanes);
    const auto* const side = cache + int64_t{begin} * kUnit;
    const int part = lane % kSideLanes;
    uint32_t total = 0;
    if (begin != kNoRow && side_bytes % 16 == 0 && part * 16 < side_bytes) {
      total = Sum(kvr::LoadReadOnly<uint4>(side + part * 16));
    } else if (begin != kNoRow && side_bytes % 16 != 0 && part * 8 < side_bytes) {
      const uint2 value = kvr::LoadReadOnly<uint2>(side + part * 8);
      total = value.x + value.y;
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) total += Sum(values[load]);
    total = __reduce_add_sync(kvr::kAllLanes, total);
    if (lane == 0 && first + group < sums) checksum[first + group] = static_cast<int>(total);
  }
}
