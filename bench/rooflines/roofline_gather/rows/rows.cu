// SPDX-License-Identifier: Apache-2.0
//
// gather_rows: checksum[token, g] = sum of the words of what entries 4g ... 4g + 3 of the token's
// list name. A warp takes one sum. Four of its lanes find the addresses of one entry each; then all
// lanes go over the bytes of the 4 rows as if they were one run, 16 a lane, so that every lane has
// loads in flight whatever a row's length is.
//
// The way from an index to its row's bytes is all that a small batch waits for: nothing is divided,
// and nothing that does not need the index waits for it. What limits a large batch is memory alone.
// Rows pass the caches by; sides do not, for a line of them has those of other rows, too.
//
// Tried on an H200 beside this (2026-11-30, 584 bytes a row): two sums a warp, whose rows then
// arrive one after the other, 5.2 instead of 2.8 us for one token of 2048 rows; warps that stay and
// fetch their next index ahead, 64 instead of 43 us at 128 tokens; rows through the caches, 42.5
// instead of 39.5 us there.
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

// A page is 1 << page_shift slots.
KVR_DEVICE Entry Locate(int slot, int page_shift, int row_bytes, int side_bytes) {
  if (slot < 0) return {kNoRow, kNoRow};
  const int64_t first = int64_t{slot >> page_shift} << page_shift;  // slot of the page
  const int64_t offset = slot - first;
  const int64_t rows = first * (row_bytes + side_bytes);
  const int64_t sides = rows + (int64_t{row_bytes} << page_shift);
  return {static_cast<uint32_t>((rows + offset * row_bytes) / kUnit),
          static_cast<uint32_t>((sides + offset * side_bytes) / kUnit)};
}

KVR_DEVICE uint32_t Sum(const uint4& v) { return v.x + v.y + v.z + v.w; }

}  // namespace gather

// cache           [num_pages, page_size, row_bytes + side_bytes]: rows of a page, then sides
// sparse_indices  [num_tokens, topk]
// checksum        [num_tokens, groups]
// Grid: ceil(groups / kWarps) x num_tokens.
template <int kWarps>
__global__ void __launch_bounds__(kWarps* kvr::kWarpLanes)
    gather_rows(const unsigned char* cache, const int* sparse_indices, int* checksum, int groups,
                int topk, int page_size, int row_bytes, int side_bytes) {
  using namespace gather;
  const int lane = kvr::LaneIndex();
  const int group = static_cast<int>(blockIdx.x) * kWarps + kvr::WarpIndex();
  if (group >= groups) return;
  const int64_t token = blockIdx.y;

  const int at_entry = group * kRows + lane;
  const bool named = lane < kRows && at_entry < topk;
  const int slot = named ? sparse_indices[token * topk + at_entry] : -1;
  const Entry entry = Locate(slot, __ffs(page_size) - 1, row_bytes, side_bytes);

  const int row_loads = row_bytes / 16;  // at least 32: a step of all lanes passes one row at most
  uint4 values[kLoads];
  int row = 0, at = lane;
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const uint32_t begin = __shfl_sync(kvr::kAllLanes, entry.row, row % kRows);
    values[load] = make_uint4(0, 0, 0, 0);
    if (row < kRows && begin != kNoRow) {
      values[load] = kvr::LoadOnce<uint4>(cache + int64_t{begin} * kUnit + at * 16);
    }
    at += kvr::kWarpLanes;
    if (at >= row_loads) {
      at -= row_loads;
      ++row;
    }
  }

  // Sides: 8 lanes a row, 16 bytes each, or 8 where that is all there is.
  const uint32_t begin = __shfl_sync(kvr::kAllLanes, entry.side, lane / kSideLanes);
  const unsigned char* const side = cache + int64_t{begin} * kUnit;
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
  if (lane == 0) checksum[token * groups + group] = static_cast<int>(total);
}
