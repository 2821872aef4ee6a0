// SPDX-License-Identifier: Apache-2.0
//
// What the router leaves for the expert kernels: the (token, slot) pairs sorted by expert, as one
// segment per active expert, of the num_experts whose weights are here. In the workspace, int32:
//
//   [0]                    active experts
//   [1 + s]                expert of segment s, ascending            s < num_experts
//   [1 + num_experts + s]  its first pair; of the segment after the last: the number of pairs
//
// Within a segment pairs are in the order of their tokens, so every sum over them is too.
#pragma once

#include <kvr/device.cuh>

namespace moe {

struct Segment {
  int expert, first, count;  // count 0: there is no such segment
};

KVR_DEVICE Segment LoadSegment(const int* segments, int num_experts, int s) {
  if (s >= segments[0]) return {0, 0, 0};
  const int* first = segments + 1 + num_experts + s;
  return {segments[1 + s], first[0], first[1] - first[0]};
}

}  // namespace moe
