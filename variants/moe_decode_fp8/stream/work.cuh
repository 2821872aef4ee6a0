// SPDX-License-Identifier: Apache-2.0
//
// What is streamed, in which order, and which warp multiplies what.
//
// A tile is 16 weight rows of one expert over their whole depth:
//
//   gate_up  8 rows of up and the same 8 of gate; depth hidden
//   down     16 rows of the second layer; depth inner
//
// All gate_up tiles of all segments come first, then all down tiles, in the order of segments. They
// are dealt out in runs by a ticket: memory serves multiprocessors unevenly, and who is served well
// takes more. Whoever holds a gate_up ticket waits for nobody, and down tickets come after them: so
// whoever waits for a hidden layer waits for blocks that run, however few of them do.
//
// A tile is a turn of its block, or several where its segment has more than 8 tokens. A turn
// is cut over its depth into pieces of kColumns, and pieces go to the warps in rotation, turn after
// turn: all warps have equally much.
#pragma once

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "table.cuh"

namespace moe {

inline constexpr int kTokenTile = 8;  // tokens of a turn: columns of B
inline constexpr int kTileRows = 16;
inline constexpr int kTileInner = 8;  // rows of up, and of gate, of a gate_up tile

enum Kind : int16_t { kGateUp, kDown, kEnd };

// A warp's part of a turn: kColumns of its 16 rows, in one stage of the warp's ring.
struct alignas(16) Piece {
  Kind kind;
  int16_t pass;   // tokens kTokenTile * pass ... of the segment
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

// Every tile of a step, numbered in the order above, and the runs of them that a ticket is for. The
// last runs are of one tile, so that blocks end together.
struct Tiles {
  int up_tiles, down_tiles;  // of a segment
  int gate_up, all;          // of all segments: gate_up, and with down
  int run, long_runs;        // tiles of a run; how many of those there are

  KVR_DEVICE Tiles(int segments, int hidden, int inner, int run)
      : up_tiles(inner / kTileInner),
        down_tiles(hidden / kTileRows),
        gate_up(segments * up_tiles),
        all(gate_up + segments * down_tiles),
        run(run),
        long_runs(max(0, all - kLastTiles * static_cast<int>(gridDim.x)) / run) {}

  KVR_DEVICE int FirstOf(int ticket) const {
    return min(all, ticket <= long_runs ? ticket * run : long_runs * run + ticket - long_runs);
  }

  static constexpr int kLastTiles = 8;  // a block, about: of one tile each
};

// The tickets of a block: a warp of its own fetches them, so that nobody waits for global memory.
template <int kAhead>
struct Tickets {
  static constexpr int kRing = 64;
  // No warp is 64 tickets ahead of another: it would have left its part of a turn in a slot that
  // the other one still holds up (meeting.cuh).
  struct Storage {
    int first[kRing];  // tile, of the round
    int end[kRing];    // and past the last
    int known[kRing];  // the round that is in place
    int asked;         // the highest round that anybody asked for
  };

  Storage& storage;

  // By one thread, before a block barrier.
  KVR_DEVICE static void Init(Storage& storage) {
    storage.asked = 0;
    for (int i = 0; i < kRing; ++i) storage.known[i] = -1;
  }

  // The fetching warp, by one thread: until there are none left. `taken`: the first one.
  KVR_DEVICE void Fetch(const Tiles& tiles, int taken, int* ticket) {
#pragma unroll 1
    for (int round = 0;; ++round) {
      const int first = tiles.FirstOf(taken), end = tiles.FirstOf(taken + 1);
      storage.first[round % kRing] = first;
      storage.end[round % kRing] = end;
      kvr::SharedStoreRelease(&storage.known[round % kRing], round);
      if (first == end) return;
      // 20 ns apart: looking all the time would hold up those who multiply.
      while (round >= kvr::SharedLoadAcquire(&storage.asked) + kAhead) __nanosleep(20);
      taken = atomicAdd(ticket, 1);
    }
  }

  // The block's run number `round`, the same for every warp that asks; first == end: none is left.
  KVR_DEVICE void Take(int round, int* first, int* end) const {
    if (kvr::LaneIndex() == 0) atomicMax(&storage.asked, round);
    while (kvr::SharedLoadAcquire(&storage.known[round % kRing]) != round) {
    }
    *first = storage.first[round % kRing];
    *end = storage.end[round % kRing];
    __syncwarp();
  }
};

// A warp's way through its pieces. All warps of a block take the same turns.
template <int kWarps, class Tickets>
struct Walk {
  const Table& table;
  const Tiles& tiles;
  const Tickets& tickets;
  int gate_up_pieces, down_pieces;

  // Before the first turn; Next() is called first.
  Kind kind = kGateUp;
  int piece = kvr::WarpIndex() - kWarps, pass = 0, segment = 0, row = 0, turn = -1;
  int pieces = 0;                     // of the turn
  int passes = 0;                     // of the segment
  int round = 0, tile = -1, end = 0;  // the block's tickets, and the current one's tiles

  KVR_DEVICE void Next() {
    piece += kWarps;
    while (piece >= pieces && kind != kEnd) {
      piece -= pieces;
      NextTurn();
    }
  }

  KVR_DEVICE Piece At() const {
    return {kind,
            static_cast<int16_t>(pass),
            static_cast<int16_t>(piece),
            static_cast<int16_t>(segment),
            row,
            turn};
  }

  KVR_DEVICE int Pieces(Kind of) const { return of == kGateUp ? gate_up_pieces : down_pieces; }

 private:
  KVR_DEVICE void NextTurn() {
    ++turn;
    if (++pass < passes) return;
    pass = 0;
    if (++tile >= end) {
      tickets.Take(round++, &tile, &end);
      if (tile == end) {
        kind = kEnd;
        return;
      }
    }
    kind = tile < tiles.gate_up ? kGateUp : kDown;
    const int place = kind == kGateUp ? tile : tile - tiles.gate_up;
    const int of_segment = kind == kGateUp ? tiles.up_tiles : tiles.down_tiles;
    segment = Quotient(place, of_segment);
    row = (place - segment * of_segment) * (kind == kGateUp ? kTileInner : kTileRows);
    pieces = Pieces(kind);
    const int tokens = table.segment_first[segment + 1] - table.segment_first[segment];
    passes = (tokens + kTokenTile - 1) / kTokenTile;
  }
};

}  // namespace moe
