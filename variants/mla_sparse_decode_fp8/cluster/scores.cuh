// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "layout.cuh"

namespace mla {

// Scores of a tile, as S^T = K Q^T: tokens x 16 heads. A warp takes kScoreRows tokens, in blocks of
// 16, and a part of the dims; the softmax adds the parts.
//
// A lane reads 16 consecutive bytes of a row: 16 dims, its share of four 16-deep steps. So dims are
// not in order within the steps, and the query's are loaded to match: step s of a group takes from
// lane t dims 16 t + 4 s ... + 3; of RoPE, dims 8 t + 32 (s / 2) + 4 (s % 2) ... + 3.
template <class Shape>
class Scores {
 public:
  // q: [heads, 512], of one token. Further heads count as zeros.
  KVR_DEVICE Scores(const __nv_bfloat16* q, int heads)
      : part_(kvr::WarpIndex() / kRowWarps), t_(kvr::LaneIndex() % 4) {
    const int g = kvr::LaneIndex() / 4;
    row_ = Shape::kScoreRows * (kvr::WarpIndex() % kRowWarps) + g;
#pragma unroll
    for (int group = 0; group < kGroupsHere; ++group) {
      const bool rope = group == kLast && HasRope();
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int head = n * 8 + g;
        const __nv_bfloat16* dims =
            q + head * kDim + (part_ * kGroupsHere + group) * kGroupDims + (rope ? 8 : 16) * t_;
        uint4 low = make_uint4(0, 0, 0, 0), high = low;
        if (head < heads) {
          low = kvr::LoadReadOnly<uint4>(dims);
          high = kvr::LoadReadOnly<uint4>(dims + (rope ? 32 : 8));
        }
        uint32_t(&b)[8] = query_[group][n];
        b[0] = low.x, b[1] = low.y, b[2] = low.z, b[3] = low.w;
        b[4] = high.x, b[5] = high.y, b[6] = high.z, b[7] = high.w;
      }
    }
    // Keys become f16, but those of RoPE, which stay bf16.
#pragma unroll
    for (int group = 0; group < kGroupsHere; ++group) {
      if (group == kLast && HasRope()) continue;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (uint32_t& pair : query_[group][n]) {
          pair = kvr::PackF16x2(kvr::LowBf16(pair), kvr::HighBf16(pair));
        }
      }
    }
  }

  // A barrier of the score warps follows.
  KVR_DEVICE void Tile(const typename Shape::Stage& stage, typename Shape::Scores& scores) const {
    Fragment s[kBlocks][2] = {};
#pragma unroll
    for (int group = 0; group < kLast; ++group) Group(stage, group, s);
    if (HasRope()) {
      RopeGroup(stage, s);
    } else {
      Group(stage, kLast, s);
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int row = row_ + 16 * block;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float(*to)[Shape::kScoreStride] = scores[part_] + n * 8 + 2 * t_;
        const Fragment& d = s[block][n];
        to[0][row] = d[0], to[1][row] = d[1], to[0][row + 8] = d[2], to[1][row + 8] = d[3];
      }
    }
  }

 private:
  static constexpr int kBlocks = Shape::kScoreRows / 16;
  static constexpr int kRowWarps = Shape::kTile / Shape::kScoreRows;  // that share a part
  static constexpr int kGroupsHere = Shape::kPartGroups, kLast = kGroupsHere - 1;
  using Fragment = float[4];

  KVR_DEVICE bool HasRope() const { return part_ == Shape::kParts - 1; }

  // D = A * B, f16 inputs.
  KVR_DEVICE static void FirstMma(Fragment& d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }

  // 16 bytes of the lane's rows of each block: [block][upper row].
  KVR_DEVICE void LoadRows(const typename Shape::Stage& stage, int byte,
                           uint4 (&rows)[kBlocks][2]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint8_t* at = stage.rows[0] + RowOffset(row_) + RowOffset(16 * block) + byte + 16 * t_;
      rows[block][0] = kvr::Load<uint4>(at);
      rows[block][1] = kvr::Load<uint4>(at + RowOffset(8));
    }
  }

  KVR_DEVICE void Group(const typename Shape::Stage& stage, int group,
                        Fragment (&s)[kBlocks][2]) const {
    uint4 rows[kBlocks][2];
    LoadRows(stage, (part_ * kGroupsHere + group) * kGroupDims, rows);
    Fragment products[kBlocks][2];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const uint4(&r)[2] = rows[block];
        const uint32_t low = step == 0 ? r[0].x : step == 1 ? r[0].y : step == 2 ? r[0].z : r[0].w;
        const uint32_t high = step == 0 ? r[1].x : step == 1 ? r[1].y : step == 2 ? r[1].z : r[1].w;
        uint32_t a[4];
        UnpackE4m3(low, a[0], a[2]);
        UnpackE4m3(high, a[1], a[3]);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t* b = query_[group][n] + 2 * step;
          if (step == 0) {
            FirstMma(products[block][n], a, b[0], b[1]);
          } else {
            kvr::MmaF16(products[block][n], a, b[0], b[1]);
          }
        }
      }
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint8_t* scales = stage.scales[row_ + 16 * block] + part_ * kGroupsHere + group;
      const float low = PowerOfTwo(scales[0]), high = PowerOfTwo(scales[8 * kScaleBytes]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const Fragment& d = products[block][n];
        s[block][n][0] += d[0] * low, s[block][n][1] += d[1] * low;
        s[block][n][2] += d[2] * high, s[block][n][3] += d[3] * high;
      }
    }
  }

  KVR_DEVICE void RopeGroup(const typename Shape::Stage& stage, Fragment (&s)[kBlocks][2]) const {
#pragma unroll
    for (int step = 0; step < 4; step += 2) {
      uint4 rows[kBlocks][2];
      LoadRows(stage, kRopeGroup * kGroupDims + step * 32, rows);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const uint4(&r)[2] = rows[block];
        const uint32_t first[4] = {r[0].x, r[1].x, r[0].y, r[1].y};
        const uint32_t second[4] = {r[0].z, r[1].z, r[0].w, r[1].w};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t* b = query_[kLast][n] + 2 * step;
          kvr::MmaBf16(s[block][n], first, b[0], b[1]);
          kvr::MmaBf16(s[block][n], second, b[2], b[3]);
        }
      }
    }
  }

  const int part_, t_;
  int row_;                            // this lane's first; the others lie 8, 16 and 24 further
  uint32_t query_[kGroupsHere][2][8];  // [group][8 heads][step, register of B]
};

}  // namespace mla
