// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// By the score warps: the block's heads of one token to shared memory, zeros from `heads` on.
// q_nope, q_pe: of the first of them.
KVR_DEVICE void LoadQuery(const __nv_bfloat16* q_nope, const __nv_bfloat16* q_pe, int heads,
                          Row (&query)[kHeads]) {
  constexpr int kPieces = kQkDim / kPiece;  // of a head
#pragma unroll
  for (int i = threadIdx.x % kScoreThreads; i < kHeads * kPieces; i += kScoreThreads) {
    const int head = i / kPieces, dim = i % kPieces * kPiece;
    const __nv_bfloat16* from =
        dim < kCkvDim ? q_nope + head * kCkvDim + dim : q_pe + head * kKpeDim + (dim - kCkvDim);
    kvr::CopyAsync16(query[head] + dim, from, head < heads);
  }
  kvr::CommitCopies();
  kvr::WaitForCopies<0>();
}

// Scores of a tile: Q K^T over the 576 dims. A warp takes kWarpRows rows and a quarter of the dims;
// its share of the query stays in registers.
class Scores {
 public:
  KVR_DEVICE explicit Scores(const Row (&query)[kHeads]) {
    const int lane = kvr::LaneIndex();
#pragma unroll
    for (int step = 0; step < kWarpSteps; ++step) {
      // The four 8x8 tiles of an ldmatrix: heads 0...7 and 8...15, then the next 8 dims of both.
      kvr::LoadMatrixX4(query_[step], &query[lane % 16][Dim(step) + lane / 16 * 8]);
    }
  }

  // This warp's part. A barrier of the score warps, then Softmax.
  KVR_DEVICE void Tile(const Row (&rows)[kTile],
                       float (&partial_scores)[kParts][kHeads][kScoreStride]) const {
    // The four 8x8 tiles: tokens 0...7 and 8...15, dims 0...7 and 8...15 of each.
    const int lane = kvr::LaneIndex(), first_row = kvr::WarpIndex() / kParts * kWarpRows;
    const int row = first_row + lane / 16 * 8 + lane % 8, dim = lane / 8 % 2 * 8;
    float s[2][2][4] = {};  // of even and odd steps: products that add to each other wait
#pragma unroll
    for (int step = 0; step < kWarpSteps; ++step) {
      uint32_t k[4];
      kvr::LoadMatrixX4(k, &rows[row][Dim(step) + dim]);
      kvr::MmaBf16(s[step % 2][0], query_[step], k[0], k[1]);
      kvr::MmaBf16(s[step % 2][1], query_[step], k[2], k[3]);
    }
    const int g = lane / 4, t = lane % 4;
    auto& to = partial_scores[kvr::WarpIndex() % kParts];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int token = first_row + n * kFragmentN + 2 * t;
      const float(&even)[4] = s[0][n], (&odd)[4] = s[1][n];
      kvr::Store<float2>(&to[g][token], make_float2(even[0] + odd[0], even[1] + odd[1]));
      kvr::Store<float2>(&to[g + 8][token], make_float2(even[2] + odd[2], even[3] + odd[3]));
    }
  }

 private:
  KVR_DEVICE static int Dim(int step) {
    return (kvr::WarpIndex() % kParts * kWarpSteps + step) * kFragmentK;
  }

  uint32_t query_[kWarpSteps][4];
};

// Online softmax in base 2; a warp has two heads, a lane two tokens of one of them.
//
// The reference that exponents are taken from need not be the maximum, only near it: it moves when
// a score exceeds it by more than kSlack, so that most tiles rescale nothing. 2^(s - reference)
// stays below 2^kSlack, where bf16 is as exact as near 1. While a head has seen padding only, its
// reference is -infinity and its sum 0.
class Softmax {
 public:
  KVR_DEVICE static int Head() { return 2 * kvr::WarpIndex() + kvr::LaneIndex() / kLanes; }

  // Takes the parts of a tile's scores to probabilities, a pair in bf16; `factor`: of the output so
  // far.
  KVR_DEVICE uint32_t Tile(const float (&partial_scores)[kParts][kHeads][kScoreStride],
                           const float (&mask)[kTile], float scale_log2, float& factor) {
    float2 parts[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      parts[i] = kvr::Load<float2>(&partial_scores[i][Head()][Token()]);
    }
    const float2 masks = kvr::Load<float2>(&mask[Token()]);
    float s[2] = {(parts[0].x + parts[1].x) + (parts[2].x + parts[3].x),
                  (parts[0].y + parts[1].y) + (parts[2].y + parts[3].y)};
    s[0] = masks.x == 0 ? s[0] * scale_log2 : masks.x;  // an infinite query times 0 is NaN
    s[1] = masks.y == 0 ? s[1] * scale_log2 : masks.y;
    const float largest = fmaxf(s[0], s[1]);
    factor = 1;
    if (__any_sync(kvr::kAllLanes, largest > reference_ + kSlack)) {
      const float moved = kvr::WarpMax<kLanes>(largest);
      if (moved > reference_ + kSlack) {
        factor = kvr::Exp2(reference_ - moved);
        reference_ = moved;
        sum_ *= factor;
      }
    }
    const float reference = reference_ == -kvr::kInfinity ? 0 : reference_;
    s[0] = kvr::Exp2(s[0] - reference), s[1] = kvr::Exp2(s[1] - reference);
    sum_ += s[0] + s[1];
    return kvr::PackBf16x2(s[0], s[1]);
  }

  KVR_DEVICE static int Token() { return 2 * (kvr::LaneIndex() % kLanes); }

  // Of the lane's head: the reference, and the sum over the block's tokens.
  KVR_DEVICE float2 Sum() const { return make_float2(reference_, kvr::WarpSum<kLanes>(sum_)); }

 private:
  static constexpr float kSlack = 8;
  static constexpr int kLanes = kTile / 2;  // of a head
  static_assert(kLanes * kHeads == kScoreThreads);

  float reference_ = -kvr::kInfinity, sum_ = 0;  // the sum: of this lane's tokens
};

}  // namespace mla
