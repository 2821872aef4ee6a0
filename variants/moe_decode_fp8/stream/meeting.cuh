// SPDX-License-Identifier: Apache-2.0
//
// Where the warps' sums of a turn meet. Each multiplying warp leaves its part in a cell of the
// turn's slot; a finishing warp adds the cells, in the order of the depth whoever filled them.
// A slot serves every kSlots-th turn. Finishing takes long now and then (a release waits for
// memory) and would hold up a warp that has weights to multiply, so it is the work of warps that
// have none.
//
// Hand-overs:
//   full   every lane writes its cell, __syncwarp, then one lane's arrival (release) is for the
//          warp; every lane of the finishing warp waits (acquire). kWarps arrivals a turn, whoever
//          gives to it, and none of the next turn before `next` says so: a phase is a turn.
//   next   every lane of the finishing warp has read its cells, __syncwarp, then one stores the
//          turn that comes (release); every lane that writes a cell has loaded it (acquire). Only
//          turns whose parts have all been left move it on, so no waiting warp misses its number.
#pragma once

#include <kvr/device.cuh>
#include <kvr/hopper.cuh>

#include "work.cuh"

namespace moe {

template <int kWarps, int kSlots>
struct Meeting {
  struct alignas(16) Storage {
    float4 cells[kSlots][kWarps][kvr::kWarpLanes];
    Piece turns[kSlots];
    uint64_t full[kSlots];
    int next[kSlots];  // the turn that may use the slot; a warp may skip turns, so parity won't do
  };

  Storage& storage;

  // Once, by one thread.
  KVR_DEVICE static void Init(Storage& storage) {
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot) {
      kvr::InitBarrier(&storage.full[slot], kWarps);
      storage.next[slot] = slot;
    }
    kvr::FenceBarrierInit();
  }

  // A multiplying warp's part of a turn to which `warps` of them give.
  KVR_DEVICE void Leave(const Piece& at, int warps, const float4& sum) {
    const int lane = kvr::LaneIndex(), slot = at.turn % kSlots, cell = at.piece % kWarps;
    WaitForSlot(at.turn);
    storage.cells[slot][cell][lane] = sum;
    if (lane == 0 && cell == 0) storage.turns[slot] = at;
    __syncwarp();
    if (lane == 0) kvr::Arrive(&storage.full[slot], cell == 0 ? kWarps - warps + 1 : 1);
  }

  // All multiplying warps: turns from at.turn on are the end, one for each finishing warp.
  KVR_DEVICE void LeaveEnd(const Piece& at, int finishers) {
    for (int turn = at.turn; turn < at.turn + finishers; ++turn) {
      const int slot = turn % kSlots;
      WaitForSlot(turn);
      if (kvr::LaneIndex() != 0) continue;
      if (kvr::WarpIndex() == 0) storage.turns[slot] = at;
      kvr::Arrive(&storage.full[slot]);
    }
  }

  // A finishing warp: the turn, once all have left their parts.
  KVR_DEVICE Piece Await(int turn) {
    const int slot = turn % kSlots;
    kvr::WaitBarrier(&storage.full[slot], turn / kSlots % 2);
    return storage.turns[slot];
  }

  // Its sum; gives the slot back.
  KVR_DEVICE float4 Sum(int turn, int warps) {
    const int lane = kvr::LaneIndex(), slot = turn % kSlots;
    float4 sum = storage.cells[slot][0][lane];
#pragma unroll
    for (int cell = 1; cell < kWarps; ++cell) {
      if (cell >= warps) break;
      const float4 more = storage.cells[slot][cell][lane];
      sum.x += more.x;
      sum.y += more.y;
      sum.z += more.z;
      sum.w += more.w;
    }
    __syncwarp();
    if (lane == 0) kvr::SharedStoreRelease(&storage.next[slot], turn + kSlots);
    return sum;
  }

 private:
  KVR_DEVICE void WaitForSlot(int turn) {
    while (kvr::SharedLoadAcquire(&storage.next[turn % kSlots]) != turn) {
    }
    __syncwarp();
  }
};

}  // namespace moe
