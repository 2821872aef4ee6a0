// SPDX-License-Identifier: Apache-2.0
//
// The gather warps: rows that a token's list names, from the caches into the stages.
#pragma once

#include "layout.cuh"

namespace mla {

// A warp copies a quarter of each tile's rows. Lanes hold the indices of its rows in several tiles,
// a batch, and have read those of the next batch; rows are copied one after the other, 512 bytes
// with an instruction, because the memory system wants neighbouring bytes together in time.
template <int kStages>
class Gather {
 public:
  // Arrivals that fill a stage: of each thread's copies, and of its part of the mask.
  static constexpr int kArrivals = 2 * kGatherThreads;

  // Positions [begin, end) of the list. Reads it.
  KVR_DEVICE Gather(const __nv_bfloat16* ckv_cache, const __nv_bfloat16* kpe_cache,
                    const int* indices, int begin, int end)
      : ckv_cache_(ckv_cache),
        kpe_cache_(kpe_cache),
        indices_(indices),
        position_(begin + FirstRow() + Lane() % kRows + Lane() / kRows * kTile),
        end_(end) {
    index_ = Read();
    next_index_ = Read();
  }

  KVR_DEVICE void Run(Shared<kStages>& shared, int tiles) {
    Ring<kStages> ring;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      kvr::WaitBarrier(&shared.emptied[ring.stage], ring.parity ^ 1);
      Copy(shared.rows[ring.stage], shared.mask[ring.stage], tile);
      kvr::ArriveAfterCopies(&shared.filled[ring.stage]);
      kvr::Arrive(&shared.filled[ring.stage]);
      ring.Next();
    }
  }

 private:
  static constexpr int kRows = kTile / kGatherWarps;             // of a tile
  static constexpr int kBatch = kvr::kWarpLanes / kRows;         // tiles
  static constexpr int kKpePieces = kKpeDim / kPiece;            // of a row
  static constexpr int kKpeRows = kvr::kWarpLanes / kKpePieces;  // of an instruction

  KVR_DEVICE static int Lane() { return kvr::LaneIndex(); }
  KVR_DEVICE static int FirstRow() { return kvr::WarpIndex() % kGatherWarps * kRows; }

  // The index of this lane's row in the next batch that has not been read. Positions past the end
  // are padding, too.
  KVR_DEVICE int Read() {
    const int position = position_;
    position_ += kBatch * kTile;
    return position < end_ ? kvr::LoadReadOnly<int>(indices_ + position) : -1;
  }

  // A padding row is filled with zeros: 0 * NaN would survive a score of -infinity.
  KVR_DEVICE void Copy(Row (&rows)[kTile], float (&mask)[kTile], int tile) {
    const int first_lane = tile % kBatch * kRows, lane = Lane();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int slot = __shfl_sync(kvr::kAllLanes, index_, first_lane + i);
      const __nv_bfloat16* ckv = ckv_cache_ + static_cast<int64_t>(slot) * kCkvDim;
#pragma unroll
      for (int first = 0; first < kCkvDim; first += kvr::kWarpLanes * kPiece) {
        const int dim = first + lane * kPiece;
        kvr::CopyAsync16(rows[FirstRow() + i] + dim, ckv + dim, slot >= 0, policy_);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; i += kKpeRows) {
      const int row = i + lane / kKpePieces, dim = lane % kKpePieces * kPiece;
      const int slot = __shfl_sync(kvr::kAllLanes, index_, first_lane + row);
      kvr::CopyAsync16(rows[FirstRow() + row] + kCkvDim + dim,
                       kpe_cache_ + static_cast<int64_t>(slot) * kKpeDim + dim, slot >= 0, policy_);
    }
    if (lane / kRows == tile % kBatch) {
      mask[FirstRow() + lane % kRows] = index_ >= 0 ? 0.0f : -kvr::kInfinity;
    }
    if (tile % kBatch == kBatch - 1) {
      index_ = next_index_;
      next_index_ = Read();
    }
  }

  const __nv_bfloat16* const ckv_cache_;  // [slots, 512]
  const __nv_bfloat16* const kpe_cache_;  // [slots, 64]
  const int* const indices_;              // [topk], of this token
  int position_;
  const int end_;
  int index_, next_index_;
  const uint64_t policy_ = kvr::ReadOncePolicy();
};

}  // namespace mla
