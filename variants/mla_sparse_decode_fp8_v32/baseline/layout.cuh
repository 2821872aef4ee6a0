// SPDX-License-Identifier: Apache-2.0
//
// A row of the cache, DeepSeek-V3.2's layout: 512 e4m3 codes, 4 fp32 scales, one per 128 codes, and
// 64 bf16 of RoPE that no scale multiplies, in this order: 656 bytes. The key is codes and RoPE,
// the value the codes alone.
//
// All else in this bundle is the same for every layout, and the same as in mla_sparse_decode_fp8.
#pragma once

#include <kvr/device.cuh>

namespace mla {

inline constexpr int kCodes = 512;
inline constexpr int kRopeDims = 64;
inline constexpr int kKeyDims = kCodes + kRopeDims;  // what a score is a product over
inline constexpr int kValueDims = 512;               // the first ones of a key

// Dims that share a scale. RoPE is the last group; its scale is 1.
inline constexpr int kGroupDims = 128;
inline constexpr int kGroups = kCodes / kGroupDims + 1;
inline constexpr bool kScalesArePowersOfTwo = false;

// A row is copied in pieces of 16 bytes: those of codes, those of RoPE, and one with the scales.
inline constexpr int kPiece = 16;
inline constexpr int kCodePieces = kCodes / kPiece;
inline constexpr int kRopePieces = kRopeDims * 2 / kPiece;
inline constexpr int kPieces = kCodePieces + kRopePieces + 1;

inline constexpr int kScaleBytes = (kGroups - 1) * 4;
inline constexpr int kRowBytes = kCodes + kScaleBytes + kRopeDims * 2;

// Where a slot's row lies. kv_cache: [slots, 656].
struct RowAddress {
  const unsigned char* row;

  KVR_DEVICE RowAddress(const unsigned char* kv_cache, int /*page_size*/, int slot)
      : row(kv_cache + static_cast<int64_t>(slot) * kRowBytes) {}

  KVR_DEVICE const unsigned char* Piece(int piece) const {
    if (piece < kCodePieces) return row + piece * kPiece;
    if (piece < kCodePieces + kRopePieces) return row + kScaleBytes + piece * kPiece;
    return row + kCodes;
  }
};

// The scales of groups 0 ... kGroups - 2 from their piece.
struct RowScales {
  float4 scales;

  KVR_DEVICE RowScales(const void* piece, int /*slot*/) : scales(kvr::Load<float4>(piece)) {}
  KVR_DEVICE float operator[](int group) const {
    return group == 0 ? scales.x : group == 1 ? scales.y : group == 2 ? scales.z : scales.w;
  }
};

}  // namespace mla
