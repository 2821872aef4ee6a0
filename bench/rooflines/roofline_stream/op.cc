// SPDX-License-Identifier: Apache-2.0
//
// roofline_stream: memory read once, in order, by everything the device has. The output is one sum
// for each 2 KiB, so that no read can be left out and writing costs a five-hundredth of reading.
// Threading: pure functions.
#include <algorithm>

#include "variants/common/operation.h"
#include "variants/common/parallel.h"
#include "variants/common/random.h"

namespace kvr::roofline_stream {
namespace {

// Positions in definition.json.
enum Axis { kNumBlocks, kBlockChunks, kChunkWords };
enum Input { kBlocks };
enum OutputTensor { kChecksum };

// Words that one task makes or sums, in chunks.
constexpr int64_t kTaskChunks = 256;

template <typename F>
void ForChunks(const int64_t* axes, int threads, const F& f) {
  const int64_t chunks = axes[kNumBlocks] * axes[kBlockChunks];
  ParallelFor((chunks + kTaskChunks - 1) / kTaskChunks, threads, [&](int64_t task) {
    const int64_t end = std::min(chunks, (task + 1) * kTaskChunks);
    for (int64_t chunk = task * kTaskChunks; chunk < end; ++chunk) f(chunk);
  });
}

void Generate(const int64_t* axes, uint64_t seed, const kvr_tensor* inputs) {
  const RandomStream random(seed, kBlocks);
  auto* const pairs = static_cast<uint64_t*>(inputs[kBlocks].data);
  const int64_t chunk_pairs = axes[kChunkWords] / 2;
  ForChunks(axes, HardwareThreads(), [&](int64_t chunk) {
    for (int64_t i = chunk * chunk_pairs; i < (chunk + 1) * chunk_pairs; ++i) {
      pairs[i] = random.Bits(i);
    }
  });
}

int Reference(const int64_t* axes, const kvr_tensor* inputs, int threads, kvr_expected* outputs,
              char* /*error*/, size_t /*error_size*/) {
  const auto* const words = static_cast<const uint32_t*>(inputs[kBlocks].data);
  ForChunks(axes, threads, [&](int64_t chunk) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < axes[kChunkWords]; ++i) sum += words[chunk * axes[kChunkWords] + i];
    outputs[kChecksum].expected[chunk] = static_cast<int32_t>(sum);
  });
  return KVR_OK;
}

int64_t MinimumBytes(const int64_t* axes, uint32_t /*axis_count*/) {
  return axes[kNumBlocks] * axes[kBlockChunks] * 4 * (axes[kChunkWords] + 1);
}

constexpr kvr_operation kOperation =
    OperationOf<Generate, Reference>("roofline_stream", MinimumBytes);
constexpr kvr_plugin kPlugin = OperationPlugin<kOperation>();

}  // namespace
}  // namespace kvr::roofline_stream

KVR_EXPORT const kvr_plugin* kvr_plugin_v1() { return &kvr::roofline_stream::kPlugin; }
