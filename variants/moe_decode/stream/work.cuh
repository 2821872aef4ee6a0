// SPDX-License-Identifier: Apache-2.0
//
// What a block streams, in which order, and which warp multiplies what.
//
// A tile is 16 weight rows of one expert over their whole depth:
//
//   gate_up  8 rows of gate and the same 8 of up; depth hidden
//   down     16 rows of w2; depth inner
//
// Gate_up tiles of all segments in a row are dealt to shares, one a block: in waves of kRun tiles a
// share, so that a block stays with one expert's tokens for a while, and what is left over as
// evenly as it goes. A block's down tiles are its own rows of the output, of every segment; it
// alone sums them. Gate_up comes first.
//
// A tile is a turn, or several where its segment has more than kTokens tokens. A turn is cut over
// its depth into pieces of kColumns, and pieces go to the warps in rotation. Gate_up turns begin
// with the first warp, so that a warp has the same columns of every tile and keeps the tokens; down
// turns begin where the one before ended: all warps have equally much.
//
// A block takes its share by a ticket and, when it is done, looks for one that nobody took. So
// whoever waits for a hidden layer waits for blocks that run, however few of them do: down turns
// are filled when no share is left to take, and gate_up turns, which wait for no other block, are
// before them in every ring.
#pragma once

#include <kvr/device.cuh>

#include "table.cuh"

namespace moe {

inline constexpr int kTileRows = 16;
inline constexpr int kTileInner = 8;  // rows of gate, and of up, of a gate_up tile

enum Kind : int16_t { kGateUp, kDown, kEnd };

// A warp's part of a turn: kColumns of its 16 rows, in one stage of the warp's ring.
struct alignas(16) Piece {
  Kind kind;
  int16_t pass;   // tokens kTokens * pass ... of the segment
  int16_t piece;  // columns kColumns * piece ...
  int16_t segment;
  int row;   // the tile's first: of inner, or of hidden
  int turn;  // counted over the block's whole work
};

// x / d for 0 <= x < 2^24 and d > 0, in a fraction of the time that the compiler's division takes.
KVR_DEVICE int Quotient(int x, int d) {
  int q = static_cast<int>(__fdividef(static_cast<float>(x), static_cast<float>(d)));
  const int rest = x - q * d;
  if (rest < 0) --q;
  if (rest >= d) ++q;
  return q;
}

// The block's way through its turns, by one warp, whose lanes all know where it is.
template <int kWarps, int kRun, int kTokens, int kColumns>
struct Walk {
  const Table& table;
  int* ticket;  // shares that all blocks have taken; in global memory
  int shares;   // of all blocks
  int hidden, inner;
  int first_row, end_row;  // the block's rows of the output
  int share;               // the first ticket
  int gate_up_pieces = (hidden + kColumns - 1) / kColumns;
  int down_pieces = (inner + kColumns - 1) / kColumns;

  // Before the first turn; Next() is called first.
  Kind kind = kGateUp;
  int pass = 0, segment = 0, row = 0, turn = -1;
  int pieces = 0;         // of the turn
  int first_warp = 0;     // of the turn
  int passes = 0;         // of the segment
  int run = 0, left = 1;  // of the share: its next run of tiles; tiles left in the current one

  KVR_DEVICE static int Take(int* ticket) {
    int taken = 0;
    if (kvr::LaneIndex() == 0) taken = atomicAdd(ticket, 1);
    return __shfl_sync(kvr::kAllLanes, taken, 0);
  }

  KVR_DEVICE void Next() {
    ++turn;
    if (kind == kDown) first_warp = (first_warp + pieces) % kWarps;
    if (++pass < passes) return;
    pass = 0;
    if (kind == kGateUp) {
      row += kTileInner;
      if (--left == 0) {
        NextRun();
      } else if (row >= inner) {
        row = 0;
        ++segment;
      }
    } else {
      row += kTileRows;
      if (row >= end_row) {
        row = first_row;
        ++segment;
      }
    }
    if (kind == kDown && (segment >= *table.segments || first_row >= end_row)) {
      kind = kEnd;
      return;
    }
    pieces = kind == kGateUp ? gate_up_pieces : down_pieces;
    const int tokens = table.segment_first[segment + 1] - table.segment_first[segment];
    passes = (tokens + kTokens - 1) / kTokens;
  }

 private:
  // The next run of gate_up tiles that there is; after the last, down.
  KVR_DEVICE void NextRun() {
    const int tiles = (inner + kTileInner - 1) / kTileInner, all = *table.segments * tiles;
    const int wave = shares * kRun, waves = Quotient(all, wave), rest = all - waves * wave;
#pragma unroll 1
    while (share < shares) {
      int first = 0;
      left = 0;
      if (run > waves) {
        share = Take(ticket);
        run = 0;
        continue;
      }
      if (run < waves) {
        first = run * wave + share * kRun;
        left = kRun;
      } else {
        first = Quotient(rest * share, shares);
        left = Quotient(rest * (share + 1), shares) - first;
        first += waves * wave;
      }
      ++run;
      if (left == 0) continue;
      segment = Quotient(first, tiles);
      row = (first - segment * tiles) * kTileInner;
      return;
    }
    kind = kDown;
    segment = 0;
    row = first_row;
  }
};

}  // namespace moe
