// SPDX-License-Identifier: Apache-2.0
//
// The gather warps: rows that a token's lists name, from the caches into the stages.
#pragma once

#include "layout.cuh"

namespace mla {

// One of a token's lists and the cache it points into.
struct List {
  const uint8_t* cache;  // [pages, page_size, kTokenBytes]
  const int* indices;    // of this token
  int length;            // entries that count
  int page_size;
  int reciprocal;  // floor((2^32 - 1) / page_size)

  // Reads no memory; ReadLength does.
  KVR_DEVICE List(const uint8_t* pages, const int* all_indices, int token, int topk, int page_slots,
                  int page_reciprocal)
      : cache(pages),
        indices(all_indices + static_cast<int64_t>(token) * topk),
        length(topk),
        page_size(page_slots),
        reciprocal(page_reciprocal) {}

  KVR_DEVICE void ReadLength(const int* lengths, int token) {
    if (lengths != nullptr) length = kvr::LoadReadOnly<int>(lengths + token);
  }
};

// Has L2 fetch the indices of positions [begin, end), 128 bytes a thread of the block, before the
// kernel in front has ended. It may still write them: nothing is read here, and L2 is where its
// writes go.
KVR_DEVICE void Prefetch(const List& main, const List& extra, int topk, int begin, int end) {
  const int position =
      begin + static_cast<int>(threadIdx.x) * (128 / static_cast<int>(sizeof(int)));
  if (position >= end) return;
  kvr::PrefetchL2(position < topk ? main.indices + position : extra.indices + (position - topk));
}

// A warp copies a quarter of each tile's rows. Lanes read the indices of several tiles at once, two
// such batches ahead, and find the address of a row each; then the warp copies row after row, 512
// bytes with an instruction, because the memory system wants neighbouring bytes together in time.
template <class Shape>
class Gather {
 public:
  // Arrivals that fill a stage: each lane's for its copies, and for what it stored.
  static constexpr int kArrivals = kGatherWarps * 2 * kvr::kWarpLanes;

  // Positions [begin, end) of both lists together.
  KVR_DEVICE Gather(const List& main, const List& extra, int topk, int begin, int end)
      : main_(main),
        extra_(extra),
        topk_(topk),
        position_(begin + FirstRow() + Lane() % kRows + Lane() / kRows * kTile),
        end_(end) {
    index_ = Read(0);
    next_index_ = Read(1);
  }

  KVR_DEVICE void Run(typename Shape::Shared& shared, int tiles) {
    Ring<Shape::kStages> ring, arriving;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile % kBatch == 0) {
        Locate();
        index_ = next_index_;
        next_index_ = Read(2);
        position_ += kBatch * kTile;
      }
      if (tile >= Shape::kInFlight) {
        kvr::WaitBarrier(&shared.filled[arriving.stage], arriving.parity);
        arriving.Next();
      }
      kvr::WaitBarrier(&shared.emptied[ring.stage], ring.parity ^ 1);
      Copy(shared.stages[ring.stage], tile % kBatch);
      kvr::ArriveAfterCopies(&shared.filled[ring.stage]);
      kvr::Arrive(&shared.filled[ring.stage]);
      ring.Next();
    }
  }

 private:
  static constexpr int kTile = Shape::kTile;
  static constexpr int kRows = kTile / kGatherWarps;      // of a tile
  static constexpr int kBatch = kvr::kWarpLanes / kRows;  // tiles
  static constexpr int kPieces = kRowBytes / 16;          // of a row

  KVR_DEVICE static int Lane() { return kvr::LaneIndex(); }
  KVR_DEVICE static int FirstRow() { return kvr::WarpIndex() % kGatherWarps * kRows; }

  // The index of this lane's row, `batches` after position_.
  KVR_DEVICE int Read(int batches) const {
    const int position = position_ + batches * kBatch * kTile;
    if (position >= end_) return -1;
    return kvr::LoadReadOnly<int>(position < topk_ ? main_.indices + position
                                                   : extra_.indices + (position - topk_));
  }

  // row_ and scales_ of index_, which stands at position_. row_ is 0 for padding.
  KVR_DEVICE void Locate() {
    const bool first = position_ < topk_;
    const int at = first ? position_ : position_ - topk_;
    const bool keep = index_ >= 0 && at < (first ? main_.length : extra_.length);
    const RowAddress address(first ? main_.cache : extra_.cache,
                             first ? main_.page_size : extra_.page_size,
                             first ? main_.reciprocal : extra_.reciprocal, keep ? index_ : 0);
    row_ = keep ? reinterpret_cast<uint64_t>(address.row) : 0;
    scales_ = address.scales;
  }

  // `batch`: which of the tiles that row_ stands for.
  KVR_DEVICE void Copy(typename Shape::Stage& stage, int batch) const {
    if (Lane() / kRows == batch) {
      const int row = FirstRow() + Lane() % kRows;
      if constexpr (kScaleBytes > 0) kvr::CopyAsync8(stage.scales[row], scales_, row_ != 0);
      stage.mask[row] = row_ != 0 ? 0.0f : -kvr::kInfinity;
    }
    int lane = Lane();
    asm volatile("" : "+r"(lane));  // else what follows is kept in registers for all i
#pragma unroll
    for (int i = 0; i < (kRows * kPieces + kvr::kWarpLanes - 1) / kvr::kWarpLanes; ++i) {
      const int piece = i * kvr::kWarpLanes + lane;
      const int row = piece * ((1 << 16) / kPieces + 1) >> 16;  // piece / kPieces
      const uint64_t address = __shfl_sync(kvr::kAllLanes, row_, batch * kRows + row);
      // The last turn may have lanes to spare.
      if ((i + 1) * kvr::kWarpLanes > kRows * kPieces && piece >= kRows * kPieces) break;
      // Rows may lie in pairs.
      constexpr int kTogether = sizeof(stage.rows[0]) / kRowBytes;
      const int byte = (piece - row * kPieces) * 16;
      kvr::CopyAsync16(
          stage.rows[(FirstRow() + row) / kTogether] + row % kTogether * kRowBytes + byte,
          reinterpret_cast<const uint8_t*>(address) + byte, address != 0);
    }
  }

  const List main_, extra_;
  const int topk_;
  int position_;  // of this lane's row in the batch of tiles that is next
  const int end_;
  int index_, next_index_;
  uint64_t row_;
  const uint8_t* scales_;
};

}  // namespace mla
