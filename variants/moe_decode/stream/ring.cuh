// SPDX-License-Identifier: Apache-2.0
//
// Rings of weight pieces in shared memory, 16 rows of kColumns values each, one ring for each
// multiplying warp. One warp fills all of them by the tensor memory accelerator, lane w the ring of
// warp w, and knows nothing but what comes next; a multiplying warp only takes what its ring has.
// All rings together are the bytes that a block keeps in flight.
//
// A piece is posted before its weights arrive, so that its tokens can be fetched meanwhile.
//
// What hands a stage over, each an mbarrier with one arrival a use; its readers have seen phase n
// before phase n + 1 can begin, so that a parity tells phases apart with any number of stages:
//   posted   the filling lane has written the piece (release); all lanes of the warp look (acquire)
//   arrived  the copy's bytes are there; its waiters may read them, as for any bulk copy
//   free     the warp's reads are over: each lane's fence, then __syncwarp, then one arrives for
//            all; the lane that sees it starts the next copy. The fence is between the proxies:
//            arriving and waiting order ordinary accesses, but a copy writes through another proxy,
//            and compiled code may arrive while its loads are still under way.
#pragma once

#include <cuda_bf16.h>

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "work.cuh"

namespace moe {

template <int kColumns, int kStages>
struct Ring {
  static constexpr int kBytes = kTileRows * kColumns * 2;  // of a stage

  struct alignas(128) Storage {
    __nv_bfloat16 rows[kStages][kTileRows][kColumns];
    Piece pieces[kStages];
    uint64_t posted[kStages];   // the piece is in `pieces`
    uint64_t arrived[kStages];  // so are its weights in `rows`
    uint64_t free[kStages];     // the warp is done with the stage
  };

  // Once, by one thread.
  KVR_DEVICE static void Init(Storage& storage) {
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      kvr::InitBarrier(&storage.posted[i], 1);
      kvr::InitBarrier(&storage.arrived[i], 1);
      kvr::InitBarrier(&storage.free[i], 1);
    }
    kvr::FenceBarrierInit();
  }

  // The end that fills, by one lane.
  struct Source {
    Storage& storage;
    const CUtensorMap *w13, *w2;
    // Without it reads came at 3.9 instead of 4.7 TB/s on an H200.
    uint64_t policy = kvr::ReadOncePolicy();
    int stage = 0, parity = 1;

    KVR_DEVICE bool HasRoom() const { return kvr::TestBarrier(&storage.free[stage], parity); }

    // Posts a piece and starts its copy. Needs room.
    KVR_DEVICE void Fill(const Piece& piece, int expert) {
      storage.pieces[stage] = piece;
      kvr::Arrive(&storage.posted[stage]);
      if (piece.kind == kEnd) return;
      uint64_t* const arrived = &storage.arrived[stage];
      const bool gate_up = piece.kind == kGateUp;
      kvr::ExpectBytes(arrived, kBytes);
      kvr::TensorCopy(storage.rows[stage], gate_up ? w13 : w2, gate_up ? 2 * expert : expert,
                      piece.row, piece.piece * kColumns, arrived, policy);
      if (++stage < kStages) return;
      stage = 0;
      parity ^= 1;
    }
  };

  // The end that empties, by one warp.
  struct Sink {
    Storage& storage;
    int stage = 0, parity = 0;

    KVR_DEVICE Piece AwaitFirst() const {
      kvr::WaitBarrier(&storage.posted[0], 0);
      __syncwarp();
      return storage.pieces[0];
    }
    // Whether the piece after the current one is posted; the same for all lanes.
    KVR_DEVICE bool NextIsPosted() const {
      const bool last = stage + 1 == kStages;
      const bool posted = kvr::TestBarrier(&storage.posted[last ? 0 : stage + 1], parity ^ last);
      return __all_sync(kvr::kAllLanes, posted);
    }
    KVR_DEVICE Piece Next() const { return storage.pieces[stage + 1 == kStages ? 0 : stage + 1]; }
    // The current piece's weights.
    KVR_DEVICE void Wait() {
      kvr::WaitBarrier(&storage.arrived[stage], parity);
      __syncwarp();
    }
    // 8 values of a row of the current piece.
    KVR_DEVICE uint4 Values(int row, int column) const {
      return kvr::Load<uint4>(&storage.rows[stage][row][column]);
    }
    // The warp has read all it wants of the current piece.
    KVR_DEVICE void Release() {
      kvr::FenceAsyncProxy();
      __syncwarp();
      if (kvr::LaneIndex() == 0) kvr::Arrive(&storage.free[stage]);
    }
    // To the next piece, which is posted.
    KVR_DEVICE void Advance() {
      if (++stage < kStages) return;
      stage = 0;
      parity ^= 1;
    }
  };
};

}  // namespace moe
