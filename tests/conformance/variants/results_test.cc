// SPDX-License-Identifier: Apache-2.0
//
// What a launch leaves behind: the right outputs, all of them, nothing else, each time the same,
// whatever memory held before.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tests/conformance/variants/edges.h"
#include "tests/conformance/variants/variant_conformance.h"

namespace kvr {
namespace {

constexpr uint8_t kNan = 0xff;   // in every float type; -1
constexpr uint8_t kHuge = 0x7f;  // NaN or huge
constexpr uint8_t kZero = 0x00;

// Which of the things that must not matter made a second run give other bits than `first`?
std::string WhyItDiffers(Rig& rig, const OpSpec& spec, const InputSetPtr& set,
                         const std::vector<Bytes>& first) {
  const struct {
    uint8_t outputs, workspace;
    const char* reason;
  } kRuns[] = {{kNan, kNan, "is not deterministic"},
               {kNan, kZero, "depends on what its workspace held before"},
               {kHuge, kNan, "depends on what its outputs held before, or leaves some unwritten"}};
  for (const auto& run : kRuns) {
    const auto again = rig.Run(set, run.outputs, run.workspace, {});
    if (!again.ok()) return std::string(What(again.status()));
    if (std::string where = Difference(spec, first, *again); !where.empty()) {
      return StrCat(run.reason, ": ", where);
    }
  }
  return "gives other bits at times";
}

// Empty: all is well.
std::string WhatIsWrong(Rig& rig, const VariantSubject& subject, const Config& config,
                        const AxisVector& axes, const InputSetPtr& set) {
  const auto first = rig.Run(set, kNan, kNan, {});
  if (!first.ok()) return std::string(What(first.status()));
  const auto damage = rig.Damage({});
  if (!damage.ok()) return std::string(What(damage.status()));
  if (!damage->empty()) return *damage;
  const auto second = rig.Run(set, kHuge, kZero, {});
  if (!second.ok()) return std::string(What(second.status()));
  if (!Difference(subject.spec(), *first, *second).empty()) {
    return WhyItDiffers(rig, subject.spec(), set, *first);
  }
  const Variant& variant = *subject.variant;
  if (variant.semantics == Semantics::kExact) return rig.Wrong(*first, set->reference, kNan);
  const auto own = variant.code->Reference(axes, variant.TunableValues(config), set->inputs,
                                           /*threads=*/2);
  return own.ok() ? rig.Wrong(*first, *own, kNan) : std::string(What(own.status()));
}

// The tunables' values are the tiles: those of the config, or the one that is not the default's.
std::vector<int64_t> TilesOf(const Variant& variant, const Config& config, bool is_default) {
  std::vector<int64_t> tiles;
  for (const Tunable& tunable : variant.tunables) {
    const int64_t value = config.at(tunable.name);
    if (is_default || value != tunable.default_value) tiles.push_back(value);
  }
  std::sort(tiles.begin(), tiles.end());
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  return tiles;
}

TEST_P(VariantConformance, IsRightAndStaysInsideAtEveryEdge) {
  constexpr int64_t kLargest = 129;
  const Variant& variant = *GetParam().variant;
  const KeyPolicy policy = ThePlatform().catalog().PolicyOf(variant).value();
  int checked = 0;
  for (const Config& config : ConfigsToTry(variant.tunables)) {
    const PreparedPtr prepared = PrepareOrFail(config);
    if (prepared == nullptr) continue;
    const bool is_default = config == default_config();
    std::vector<AxisVector> shapes = TileShapes(spec(), TilesOf(variant, config, is_default),
                                                is_default ? kLargest : kLargest / 2);
    for (const AxisVector& axes : AwkwardShapes(spec())) shapes.push_back(axes);
    if (is_default) {
      for (const AxisVector& axes : EdgeShapes(spec(), policy, kLargest)) shapes.push_back(axes);
    }
    for (const AxisVector& axes : shapes) {
      const Place place(GetParam(), config, axes, device());
      const auto rig = RigOrFail(place, prepared, axes, WorkspaceLayout::kFenced);
      if (rig == nullptr) continue;
      const InputSetPtr set = InputsOrFail(place, axes, /*seed=*/1);
      if (set == nullptr) break;
      ++checked;
      const std::string wrong = WhatIsWrong(*rig, GetParam(), config, axes, set);
      if (wrong.empty()) continue;
      ADD_FAILURE() << place.text() << ": " << wrong;
      break;  // one shape says it; the other configs may be well
    }
  }
  EXPECT_GT(checked, 0) << GetParam().op->name() << "/" << variant.name << " on "
                        << device().info().kind << ": no shape fits any config";
  RecordProperty("launched_at", checked);
}

TEST_P(VariantConformance, RepeatsBitForBit) {
  for (const Config& config : ConfigsToTry(GetParam().variant->tunables)) {
    const PreparedPtr prepared = PrepareOrFail(config);
    if (prepared == nullptr) continue;
    std::vector<AxisVector> shapes = FewShapes();
    if (config != default_config()) shapes.resize(2);
    for (const AxisVector& axes : shapes) {
      const Place place(GetParam(), config, axes, device());
      const auto rig = RigOrFail(place, prepared, axes, WorkspaceLayout::kExact);
      if (rig == nullptr) continue;
      const InputSetPtr set = InputsOrFail(place, axes, /*seed=*/2);
      if (set == nullptr) return;
      const std::vector<Bytes> first = RunOrFail(place, *rig, set, kNan, {});
      if (first.empty()) return;
      // Over and over on what the launch before left.
      for (int i = 2; i < 6; ++i) {
        std::vector<Bytes> again;
        if (!IsOk(place, rig->Launch({})) || !IsOk(place, rig->CopyOutputs(&again, {})) ||
            !IsOk(place, device().Synchronize({})) ||
            !IsSame(place, first, again, StrCat("launch ", i, " of the same differs"))) {
          return;
        }
      }
      if (!IsUndamaged(place, *rig, {})) return;
    }
  }
}

// Is what is 0 the outermost axis of every output? Other empty shapes may launch, and write
// nothing.
bool IsEmptyBatch(const OpSpec& spec, const AxisVector& axes) {
  return std::all_of(spec.outputs.begin(), spec.outputs.end(), [&](const TensorSpec& output) {
    return !output.axes.empty() && axes[output.axes.front()] == 0;
  });
}

TEST_P(VariantConformance, WritesNothingWhereEveryOutputIsEmpty) {
  const Config config = default_config();
  const PreparedPtr prepared = PrepareOrFail(config);
  if (prepared == nullptr) return;
  int checked = 0;
  for (const AxisVector& axes : EmptyShapes(spec())) {
    const Place place(GetParam(), config, axes, device());
    const auto rig = Rig::Create(spec(), prepared, axes, WorkspaceLayout::kExact);
    if (!IsOk(place, rig.status())) return;
    if (IsEmptyBatch(spec(), axes)) {
      EXPECT_EQ((*rig)->plan().kernel_count, 0) << place.text() << ": an empty batch launches";
    }
    const InputSetPtr set = InputsOrFail(place, axes, /*seed=*/3);
    if (set == nullptr) return;
    if (RunOrFail(place, **rig, set, kNan, {}).empty()) return;
    if (!IsUndamaged(place, **rig, {})) return;
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "no axis of the op may be 0 and empty every output";
}

}  // namespace
}  // namespace kvr
