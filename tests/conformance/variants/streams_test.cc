// SPDX-License-Identifier: Apache-2.0
//
// A launch among other work: in the order of its stream, and beside launches on other streams and
// threads. Default config at a few shapes.
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tests/conformance/variants/variant_conformance.h"

namespace kvr {
namespace {

constexpr uint8_t kPoison = 0xff;

// Work that takes a while, so that who does not wait for the stream runs before it.
class Delay {
 public:
  explicit Delay(Device& device) : device_(device), memory_(device.Allocate(kBytes).value()) {}
  ~Delay() { device_.Free(memory_); }
  Delay(const Delay&) = delete;
  Delay& operator=(const Delay&) = delete;
  absl::Status Enqueue(Stream stream) { return device_.MemsetAsync(memory_, 1, kBytes, stream); }

 private:
  static constexpr int64_t kBytes = 32 << 20;
  Device& device_;
  void* const memory_;
};

// Two launches with other inputs between, nothing waited for. What each needs comes right before
// it, behind a delay, and is destroyed right after it.
absl::Status RunBackToBack(Rig& rig, Delay& delay, const InputSetPtr& one, const InputSetPtr& two,
                           std::vector<Bytes>* first, std::vector<Bytes>* second, Stream stream) {
  for (const auto& [set, outputs] : {std::pair(one, first), std::pair(two, second)}) {
    KVR_RETURN_IF_ERROR(rig.Upload(set, stream));
    KVR_RETURN_IF_ERROR(delay.Enqueue(stream));
    KVR_RETURN_IF_ERROR(rig.FillOutputs(kPoison, stream));
    KVR_RETURN_IF_ERROR(rig.FillWorkspace(kPoison, stream));
    KVR_RETURN_IF_ERROR(rig.Launch(stream));
    KVR_RETURN_IF_ERROR(rig.FillInputs(kPoison, stream));
    KVR_RETURN_IF_ERROR(rig.FillWorkspace(kPoison, stream));
    KVR_RETURN_IF_ERROR(rig.CopyOutputs(outputs, stream));
  }
  return rig.Upload(two, stream);  // as Damage expects them
}

TEST_P(VariantConformance, KeepsTheOrderOfItsStream) {
  const Config config = default_config();
  const PreparedPtr prepared = PrepareOrFail(config);
  if (prepared == nullptr) return;
  ScopedStream own(device());
  Delay delay(device());
  for (const AxisVector& axes : FewShapes()) {
    const Place place(GetParam(), config, axes, device());
    const auto rig = RigOrFail(place, prepared, axes, WorkspaceLayout::kExact);
    if (rig == nullptr) continue;
    const InputSetPtr one = InputsOrFail(place, axes, 2), two = InputsOrFail(place, axes, 4);
    if (one == nullptr || two == nullptr) return;
    const std::vector<Bytes> expected_one = RunOrFail(place, *rig, one, kPoison, {});
    const std::vector<Bytes> expected_two = RunOrFail(place, *rig, two, kPoison, {});
    if (expected_one.empty() || expected_two.empty()) return;
    for (const Stream stream : {Stream{}, own.get()}) {
      std::vector<Bytes> first, second;
      if (!IsOk(place, RunBackToBack(*rig, delay, one, two, &first, &second, stream)) ||
          !IsOk(place, device().Synchronize(stream)) ||
          !IsSame(place, expected_one, first, "does not keep the order of its stream") ||
          !IsSame(place, expected_two, second, "does not keep the order of its stream") ||
          !IsUndamaged(place, *rig, stream)) {
        return;
      }
    }
  }
}

TEST_P(VariantConformance, LaunchesOnSeveralStreamsDoNotMix) {
  const Config config = default_config();
  const PreparedPtr prepared = PrepareOrFail(config);
  if (prepared == nullptr) return;
  for (const AxisVector& axes : FewShapes()) {
    const Place place(GetParam(), config, axes, device());
    std::vector<Lane> lanes = LanesOrFail(place, prepared, axes, 4);
    for (int round = 0; round < 3; ++round) {
      for (Lane& lane : lanes) {
        const Stream stream = lane.stream->get();
        if (!IsOk(place, lane.rig->FillOutputs(kPoison, stream)) ||
            !IsOk(place, lane.rig->FillWorkspace(kPoison, stream)) ||
            !IsOk(place, lane.rig->Launch(stream))) {
          return;
        }
      }
    }
    for (Lane& lane : lanes) {
      const Stream stream = lane.stream->get();
      std::vector<Bytes> got;
      if (!IsOk(place, lane.rig->CopyOutputs(&got, stream)) ||
          !IsOk(place, device().Synchronize(stream)) ||
          !IsSame(place, lane.expected, got, "differs beside launches on other streams") ||
          !IsUndamaged(place, *lane.rig, stream)) {
        return;
      }
    }
  }
}

TEST_P(VariantConformance, LaunchesOfSeveralThreadsDoNotMix) {
  constexpr int kRounds = 3;
  const Config config = default_config();
  const PreparedPtr prepared = PrepareOrFail(config);
  if (prepared == nullptr) return;
  for (const AxisVector& axes : FewShapes()) {
    const Place place(GetParam(), config, axes, device());
    std::vector<Lane> lanes = LanesOrFail(place, prepared, axes, 4);
    std::vector<std::thread> threads;
    for (Lane& lane : lanes) {
      threads.emplace_back([&place, &lane, this] {
        for (int round = 0; round < kRounds; ++round) {
          const Stream stream = lane.stream->get();
          const std::vector<Bytes> got = RunOrFail(place, *lane.rig, lane.set, kPoison, stream);
          if (got.empty() ||
              !IsSame(place, lane.expected, got, "differs beside launches of other threads")) {
            return;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (HasFailure()) return;
    for (Lane& lane : lanes) {
      if (!IsUndamaged(place, *lane.rig, lane.stream->get())) return;
    }
  }
}

}  // namespace
}  // namespace kvr
