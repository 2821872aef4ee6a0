// SPDX-License-Identifier: Apache-2.0
//
// The gather warps: rows that a token's list names, from the caches into the stages; and the query.
#pragma once

#include "layout.cuh"

namespace mla {

// A warp copies a quarter of each tile's rows. Lanes hold the indices of its rows in several tiles,
// a batch, and have read those of the next batch; rows are copied one after the other, 512 bytes
// with an instruction, because the memory system wants neighbouring bytes together in time.
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

  KVR_DEVICE void Run(Shared& shared, int tiles) {
    Ring ring;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      kvr::WaitBarrier(&shared.emptied[ring.stage], ring.parity ^ 1);
      Copy(shared.StageAt(ring.stage), shared.mask[ring.stage], tile);
      kvr::ArriveAfterCopies(&shared.filled[ring.stage]);
      kvr::Arrive(&shared.filled[ring.stage]);
      ring.Next();
    }
  }

 private:
  static constexpr int kRows = kTile / kGatherWarps;               // of a tile
  static constexpr int kBatch = kvr::kWarpLanes / kRows;           // tiles
  static constexpr int kKpeRows = kvr::kWarpLanes / kSlicePieces;  // of an instruction
  static constexpr int kCkvPieces = kCkvDim / kPiece;

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
  KVR_DEVICE void Copy(Stage& stage, float* mask, int tile) {
    const int first_lane = tile % kBatch * kRows, lane = Lane();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int slot = __shfl_sync(kvr::kAllLanes, index_, first_lane + i), row = FirstRow() + i;
      const __nv_bfloat16* ckv = ckv_cache_ + static_cast<int64_t>(slot) * kCkvDim;
#pragma unroll
      for (int first = 0; first < kCkvPieces; first += kvr::kWarpLanes) {
        const int piece = first + lane;
        kvr::CopyAsync16(&stage.rows[piece / kSlicePieces][row][piece % kSlicePieces ^ row % 8],
                         ckv + piece * kPiece, slot >= 0, policy_);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; i += kKpeRows) {
      const int row = FirstRow() + i + lane / kSlicePieces, piece = lane % kSlicePieces;
      const int slot = __shfl_sync(kvr::kAllLanes, index_, first_lane + i + lane / kSlicePieces);
      kvr::CopyAsync16(&stage.rows[kCkvSlices][row][piece ^ row % 8],
                       kpe_cache_ + static_cast<int64_t>(slot) * kKpeDim + piece * kPiece,
                       slot >= 0, policy_);
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

// By the value warps, which have nothing else to do yet: 8 heads each, zeros from `heads` on.
// q_nope, q_pe: of the first of the block's heads.
KVR_DEVICE void LoadQuery(Shared& shared, const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe,
                          int heads) {
  constexpr int kWarpHeads = kHeads / kValueWarps, kPeHeads = kvr::kWarpLanes / kSlicePieces;
  const int lane = kvr::LaneIndex(), first = (kvr::WarpIndex() - kScoreWarps) * kWarpHeads;
#pragma unroll
  for (int i = 0; i < kWarpHeads; ++i) {
    const int head = first + i;
#pragma unroll
    for (int piece = lane; piece < kCkvDim / kPiece; piece += kvr::kWarpLanes) {
      kvr::CopyAsync16(&shared.query[piece / kSlicePieces][head][piece % kSlicePieces ^ head % 8],
                       q_nope + head * kCkvDim + piece * kPiece, head < heads);
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpHeads; i += kPeHeads) {
    const int head = first + i + lane / kSlicePieces, piece = lane % kSlicePieces;
    kvr::CopyAsync16(&shared.query[kCkvSlices][head][piece ^ head % 8],
                     q_pe + head * kKpeDim + piece * kPiece, head < heads);
  }
  kvr::CommitCopies();
  kvr::WaitForCopies<0>();
  kvr::FenceAsyncProxy();
}

}  // namespace mla
