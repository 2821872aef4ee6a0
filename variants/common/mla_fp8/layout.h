// SPDX-License-Identifier: Apache-2.0
//
// Rows of a quantised latent cache: e4m3 codes with a scale for each group of dims, then 64 bf16
// values of RoPE, which are not scaled. Two layouts are in use:
//
//   kV4    448 codes, a UE8M0 scale per 64. A page holds page_size rows of 576 bytes (codes, RoPE),
//          then page_size times 8 bytes: a row's 7 scales and a pad.
//   kV32   512 codes, an fp32 scale per 128. A row is 656 bytes on its own: codes, scales, RoPE.
#pragma once

#include <cstdint>

namespace kvr::mla_fp8 {

inline constexpr int kRopeDims = 64;

struct Layout {
  int codes;           // quantised dims
  int group;           // dims that share a scale
  bool scales_follow;  // UE8M0 behind the rows of a page; else fp32 within each row
  int token_bytes;

  constexpr int groups() const { return codes / group; }
  constexpr int key_dims() const { return codes + kRopeDims; }
};

inline constexpr Layout kV4 = {
    .codes = 448, .group = 64, .scales_follow = true, .token_bytes = 584};
inline constexpr Layout kV32 = {
    .codes = 512, .group = 128, .scales_follow = false, .token_bytes = 656};

inline constexpr int kMostKeyDims = kV32.key_dims();
inline constexpr int kFooterBytes = 8;  // of a kV4 row: 7 scales and a pad

// Where the parts of a slot's row lie. `Byte` is uint8_t, const or not.
template <typename Byte>
struct Row {
  Byte* codes;
  Byte* rope;    // bf16, two-aligned
  Byte* scales;  // `groups` of UE8M0 or fp32
};

// `cache`: [num_pages, page_size, token_bytes].
template <typename Byte>
Row<Byte> RowOf(const Layout& layout, Byte* cache, int64_t page_size, int64_t slot) {
  if (!layout.scales_follow) {
    Byte* const row = cache + slot * layout.token_bytes;
    return {.codes = row,
            .rope = row + layout.codes + layout.groups() * sizeof(float),
            .scales = row + layout.codes};
  }
  const int64_t page = slot / page_size, offset = slot % page_size;
  Byte* const rows = cache + page * page_size * layout.token_bytes;
  const int64_t row_bytes = layout.token_bytes - kFooterBytes;
  Byte* const row = rows + offset * row_bytes;
  return {.codes = row,
          .rope = row + layout.codes,
          .scales = rows + page_size * row_bytes + offset * kFooterBytes};
}

// Writes the row's key_dims() values: code times scale, then RoPE.
void Decode(const Layout& layout, const Row<const uint8_t>& row, double* values);

// Writes a row. `values`: key_dims(), of which the first are quantised with the least scale at
// which nothing saturates, and times 2^exponents[group]. A pad is left alone.
void Encode(const Layout& layout, const float* values, const int* exponents,
            const Row<uint8_t>& row);

}  // namespace kvr::mla_fp8
