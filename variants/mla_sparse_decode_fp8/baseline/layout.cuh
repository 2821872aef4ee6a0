// SPDX-License-Identifier: Apache-2.0
//
// A row of the cache, DeepSeek-V4's layout: 448 e4m3 codes, 64 bf16 of RoPE that no scale
// multiplies, and 7 UE8M0 scales, one per 64 codes. The row is key and value.
//
// A page is page_size rows of 576 bytes (codes, RoPE), then page_size times 8 bytes: 7 scales and a
// pad. All else in this bundle is the same for every layout.
#pragma once

#include <kvr/device.cuh>

namespace mla {

inline constexpr int kCodes = 448;
inline constexpr int kRopeDims = 64;
inline constexpr int kKeyDims = kCodes + kRopeDims;  // what a score is a product over
inline constexpr int kValueDims = 512;               // the first ones of a key

// Dims that share a scale. RoPE is the last group; its scale is 1.
inline constexpr int kGroupDims = 64;
inline constexpr int kGroups = kCodes / kGroupDims + 1;
inline constexpr bool kScalesArePowersOfTwo = true;

// A row is copied in pieces of 16 bytes: those of codes, those of RoPE, and one with the scales.
inline constexpr int kPiece = 16;
inline constexpr int kCodePieces = kCodes / kPiece;
inline constexpr int kRopePieces = kRopeDims * 2 / kPiece;
inline constexpr int kPieces = kCodePieces + kRopePieces + 1;

inline constexpr int kRowBytes = kCodes + kRopeDims * 2;
inline constexpr int kScaleBytes = 8;

// Where a slot's row lies. kv_cache: [num_pages, page_size * 584].
struct RowAddress {
  const unsigned char *data, *scales;

  KVR_DEVICE RowAddress(const unsigned char* kv_cache, int page_size, int slot) {
    const int page = slot / page_size;
    const int64_t offset = slot % page_size;  // a page may have more than 2^31 bytes
    const unsigned char* rows = kv_cache + int64_t{page} * page_size * (kRowBytes + kScaleBytes);
    data = rows + offset * kRowBytes;
    // The scales of two slots are one piece.
    scales = rows + int64_t{page_size} * kRowBytes + offset / 2 * (2 * kScaleBytes);
  }

  KVR_DEVICE const unsigned char* Piece(int piece) const {
    return piece < kCodePieces + kRopePieces ? data + piece * kPiece : scales;
  }
};

// The scales of groups 0 ... kGroups - 2 from their piece.
struct RowScales {
  uint64_t bytes;

  KVR_DEVICE RowScales(const void* piece, int slot) {
    const uint2 own = kvr::Load<uint2>(static_cast<const uint2*>(piece) + slot % 2);
    bytes = static_cast<uint64_t>(own.y) << 32 | own.x;
  }
  KVR_DEVICE float operator[](int group) const {
    return kvr::E8m0ToFloat(static_cast<uint32_t>(bytes >> (8 * group)) & 0xff);
  }
};

}  // namespace mla
