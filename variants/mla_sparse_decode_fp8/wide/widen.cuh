// SPDX-License-Identifier: Apache-2.0
//
// The gather warps: rows that a token's lists name, from the caches into tiles, widened to bf16.
#pragma once

#include "gather.cuh"
#include "layout.cuh"

namespace mla {

KVR_DEVICE uint32_t MultiplyBf16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;\n" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// 2^(scale - 127), twice: a UE8M0 byte is the exponent of bf16.
KVR_DEVICE uint32_t ScalePair(int scale) { return scale * ((1 << 7) * 0x10001u); }

// Bits of `a` where bf16 has those of an e4m3 code but its sign, else of `b`.
KVR_DEVICE uint32_t JoinCode(uint32_t a, uint32_t b) {
  uint32_t joined;
  asm("lop3.b32 %0, %1, %2, 0x07f007f0, 0xe4;\n" : "=r"(joined) : "r"(a), "r"(b));
  return joined;
}

// Codes 0 and 2, 1 and 3, times the scale: exact, subnormal codes too. A code put where bf16 has
// sign, exponent and mantissa is 2^-120 of its value, as the biases are 7 and 127.
KVR_DEVICE void Widen(uint32_t codes, uint32_t scale, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kUnit = (120 + 127) * (1 << 7) * 0x10001u;
  const uint32_t signs = codes & 0x80808080;
  even = MultiplyBf16x2(MultiplyBf16x2(JoinCode(codes << 4, signs << 8), kUnit), scale);
  odd = MultiplyBf16x2(MultiplyBf16x2(JoinCode(codes >> 4, signs), kUnit), scale);
}

// A warp has 8 rows of each half of a tile, a batch. A lane copies 16 bytes of each row, and widens
// what it has copied itself, once for all heads; its place is free for a later batch's bytes as
// soon as it has read it. So kAhead batches are nearly always on their way, without a barrier.
class RowFeed {
 public:
  // Positions [begin, end) of both lists together.
  KVR_DEVICE RowFeed(const List& main, const List& extra, int topk, int begin, int end)
      : main_(main),
        extra_(extra),
        topk_(topk),
        lane_(kvr::LaneIndex()),
        warp_(kvr::WarpIndex() % kGatherWarps),
        position_(begin + lane_ / kBatchRows * kHalfTile + warp_ * kBatchRows + lane_ % kBatchRows),
        end_(end) {
    index_ = Read(0);
    next_index_ = Read(1);
  }

  KVR_DEVICE void Run(Shared& shared, int num_tiles) {
    int batch = 0;  // the next to be copied
#pragma unroll 1
    for (; batch < kAhead; ++batch) {
      Begin(shared, batch);
      Batch& to = shared.batches[batch][warp_];
      CopyScales(to, batch);
#pragma unroll
      for (int row = 0; row < kBatchRows; row += kRowsAtOnce) CopyCodes(shared, to, batch, row);
      CopyRope(shared, to, batch);
      kvr::CommitCopies();
    }
    const int group = lane_ / 4;
    int swizzled[kBatchRows];  // of this lane's even dims, in a block
#pragma unroll
    for (int row = 0; row < kBatchRows; ++row) {
      swizzled[row] = group * static_cast<int>(sizeof(Block<kTile>)) +
                      Swizzled(warp_ * kBatchRows + row, ChunkOf(group, lane_ % 4, 0));
    }
    uint8_t* const tiles = shared.tiles[0][0].bytes;
    Ring<kTiles> ring;
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile, ring.Next()) {
#pragma unroll 1
      for (int half = 0; half < 2; ++half, ++batch) {
        Batch& from = shared.batches[batch % kAhead][warp_];
        int to = ring.stage * static_cast<int>(sizeof(Tile)) + half * kHalfTile * kBlockRowBytes;
        asm volatile("" : "+r"(to));  // else its parts are added to each address below
        kvr::WaitForCopies<kAhead - 1>();
        __syncwarp();  // scales are copied by other lanes
        uint32_t scale[kBatchRows];
#pragma unroll
        for (int row = 0; row < kBatchRows; ++row) {
          scale[row] = ScalePair(from.rows[row].scales[group]);
        }
        kvr::WaitBarrier(&shared.emptied[ring.stage][half], ring.parity ^ 1);
        if (lane_ < kBatchRows) {
          const bool keep = kept_ >> (kBatchRows * (kAhead - 1) + lane_) & 1;
          shared.mask[ring.stage][half * kHalfTile + warp_ * kBatchRows + lane_] =
              keep ? 0 : -kvr::kInfinity;
        }
        Begin(shared, batch);
        __syncwarp();  // scales are read
        CopyScales(from, batch);
#pragma unroll
        for (int first = 0; first < kBatchRows; first += kRowsAtOnce) {
          uint4 v[kRowsAtOnce];
          if (lane_ < kCodeLanes) {
#pragma unroll
            for (int i = 0; i < kRowsAtOnce; ++i) {
              v[i] = kvr::Load<uint4>(from.rows[first + i].codes + 16 * lane_);
            }
          }
          CopyCodes(shared, from, batch, first);
          if (lane_ < kCodeLanes) {
#pragma unroll
            for (int i = 0; i < kRowsAtOnce; ++i) {
              const int row = first + i;
              uint4 even, odd;
              Widen(v[i].x, scale[row], even.x, odd.x);
              Widen(v[i].y, scale[row], even.y, odd.y);
              Widen(v[i].z, scale[row], even.z, odd.z);
              Widen(v[i].w, scale[row], even.w, odd.w);
              kvr::Store(tiles + (to + swizzled[row]), even);
              kvr::Store(tiles + (to + (swizzled[row] ^ 16)), odd);
            }
          }
        }
        const uint4 rope[2] = {kvr::Load<uint4>(from.rope[0] + 16 * lane_),
                               kvr::Load<uint4>(from.rope[4] + 16 * lane_)};
        CopyRope(shared, from, batch);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          kvr::Store(tiles + to + kRopeGroup * sizeof(Block<kTile>) +
                         Swizzled(warp_ * kBatchRows + 4 * i + lane_ / 8, lane_ % 8),
                     rope[i]);
        }
        kvr::CommitCopies();
        kvr::FenceAsyncProxy();
      }
      kvr::Arrive(&shared.widened[ring.stage]);
    }
    kvr::WaitForCopies<0>();
  }

 private:
  static constexpr int kLocated = kvr::kWarpLanes / kBatchRows;  // batches whose rows lanes find
  static constexpr int kRowsAtOnce = 4;
  static constexpr int kCodeLanes = kRopeGroup * kGroupDims / 16;

  // The index of this lane's row, `ahead` times kLocated batches after position_.
  KVR_DEVICE int Read(int ahead) const {
    const int position = position_ + ahead * kLocated * kHalfTile;
    if (position >= end_) return -1;
    return kvr::LoadReadOnly<int>(position < topk_ ? main_.indices + position
                                                   : extra_.indices + (position - topk_));
  }

  // Before the copies of `batch`: where its rows are, and which of them count.
  KVR_DEVICE void Begin(Shared& shared, int batch) {
    if (batch % kLocated == 0) {
      const bool first = position_ < topk_;
      const int at = first ? position_ : position_ - topk_;
      const bool keep = index_ >= 0 && at < (first ? main_.length : extra_.length);
      const RowAddress address(first ? main_.cache : extra_.cache,
                               first ? main_.page_size : extra_.page_size,
                               first ? main_.reciprocal : extra_.reciprocal, keep ? index_ : 0);
      scales_ = address.scales;
      located_ = __ballot_sync(kvr::kAllLanes, keep);
      shared.rows[warp_][lane_] = address.row;
      index_ = next_index_;
      next_index_ = Read(2);
      position_ += kLocated * kHalfTile;
      __syncwarp();
    }
    kept_ = kept_ << kBatchRows | (located_ >> batch % kLocated * kBatchRows & 0xff);
  }

  KVR_DEVICE void CopyScales(Batch& to, int batch) const {
    if (lane_ / kBatchRows == batch % kLocated) {
      kvr::CopyAsync8(to.rows[lane_ % kBatchRows].scales, scales_, located_ >> lane_ & 1);
    }
  }
  // Of rows first ... + 3.
  KVR_DEVICE void CopyCodes(const Shared& shared, Batch& to, int batch, int first) const {
    const uint8_t* rows[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      rows[i] = shared.rows[warp_][batch % kLocated * kBatchRows + first + i];
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (lane_ < kCodeLanes) {
        kvr::CopyAsync16(to.rows[first + i].codes + 16 * lane_, rows[i] + 16 * lane_,
                         kept_ >> (first + i) & 1);
      }
    }
  }
  KVR_DEVICE void CopyRope(const Shared& shared, Batch& to, int batch) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 4 * i + lane_ / 8;
      kvr::CopyAsync16(to.rope[4 * i] + 16 * lane_,
                       shared.rows[warp_][batch % kLocated * kBatchRows + row] +
                           kRopeGroup * kGroupDims + lane_ % 8 * 16,
                       kept_ >> row & 1);
    }
  }

  const List main_, extra_;
  const int topk_;
  const int lane_, warp_;
  int position_;  // of this lane's row in the batches that are located next
  const int end_;
  int index_, next_index_;
  const uint8_t* scales_;
  uint32_t located_;   // which of the warp's located rows count
  uint32_t kept_ = 0;  // 8 bits a batch, the last copied one's lowest
};

}  // namespace mla
