// SPDX-License-Identifier: Apache-2.0
//
// A warp's own ring of weight pieces in shared memory, 16 rows of kColumns codes each, filled by
// the tensor memory accelerator. Nobody but the warp touches it: it waits for a stage, multiplies,
// and fills the stage again with the piece that is kStages further on its way. All warps' rings
// together are the bytes that a block keeps in flight.
//
// A stage is filled again when each lane has passed a fence behind its reads of it, and all have
// met: a copy writes through another proxy than loads read through, and could overtake those that
// are still under way.
// `arrived` has one arrival a use, and the warp waits for every one, so a parity is enough.
#pragma once

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "work.cuh"

namespace moe {

template <int kColumns, int kStages>
struct Ring {
  static constexpr int kBytes = kTileRows * kColumns;  // of a stage
  static constexpr int kBoxColumns = 256;              // the most that a box may have
  static constexpr int kBoxes = kColumns / kBoxColumns;
  static_assert(kColumns % kBoxColumns == 0);

  struct alignas(128) Storage {
    unsigned char rows[kStages][kBoxes][kTileRows][kBoxColumns];
    Piece pieces[kStages];
    uint64_t arrived[kStages];
  };

  Storage& storage;
  const CUtensorMap *w1, *w2;
  const Table& table;
  uint64_t policy = kvr::ReadOncePolicy();  // reads came at 3.9 TB/s without, at 4.7 with it
  int stage = 0, parity = 1;                // 0 once all stages are filled

  // Once, by one thread.
  KVR_DEVICE static void Init(Storage& storage) {
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) kvr::InitBarrier(&storage.arrived[i], 1);
    kvr::FenceBarrierInit();
  }

  KVR_DEVICE const Piece& Current() const { return storage.pieces[stage]; }
  KVR_DEVICE const Piece& Next() const {
    static_assert(kStages >= 2);
    return storage.pieces[stage + 1 == kStages ? 0 : stage + 1];
  }
  KVR_DEVICE void Wait() { kvr::WaitBarrier(&storage.arrived[stage], parity); }

  // 16 codes of a row of the current stage.
  KVR_DEVICE uint4 Codes(int row, int column) const {
    return kvr::Load<uint4>(&storage.rows[stage][column / kBoxColumns][row][column % kBoxColumns]);
  }

  // Starts the copy of a piece into the current stage, which the whole warp is done with, and turns
  // to the stage after it.
  KVR_DEVICE void Fill(const Piece& piece) {
    kvr::FenceAsyncProxy();
    __syncwarp();
    if (kvr::LaneIndex() == 0) {
      storage.pieces[stage] = piece;
      if (piece.kind != kEnd) {
        uint64_t* const arrived = &storage.arrived[stage];
        const int expert = table.segment_expert[piece.segment];
        const bool gate_up = piece.kind == kGateUp;
        kvr::ExpectBytes(arrived, kBytes);
#pragma unroll
        for (int box = 0; box < kBoxes; ++box) {
          kvr::TensorCopy(storage.rows[stage][box], gate_up ? w1 : w2,
                          gate_up ? 2 * expert : expert, piece.row,
                          piece.piece * kColumns + box * kBoxColumns, arrived, policy);
        }
      }
    }
    __syncwarp();
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace moe
