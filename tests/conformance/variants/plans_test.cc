// SPDX-License-Identifier: Apache-2.0
//
// What a manifest says, taken at its word on devices that do nothing: plans at the largest shapes
// that it allows, on every device of its targets that a profile describes, and targets.
#include <algorithm>
#include <utility>

#include "core/device_info.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/null/null.h"
#include "devices/profiles.h"
#include "tests/conformance/variants/edges.h"
#include "tests/conformance/variants/variant_conformance.h"

namespace kvr {
namespace {

// The null device, and one that does nothing for each profile.
std::vector<std::unique_ptr<NullDevice>> IdleDevices() {
  std::vector<std::unique_ptr<NullDevice>> devices;
  devices.push_back(OpenNull());
  const auto profiles = ListProfiles();
  EXPECT_TRUE(profiles.ok()) << profiles.status();
  for (size_t i = 0; profiles.ok() && i < profiles->size(); ++i) {
    const auto profile = LoadProfile((*profiles)[i]);
    EXPECT_TRUE(profile.ok()) << profile.status();
    if (profile.ok()) devices.push_back(OpenNull(*profile));
  }
  return devices;
}

absl::StatusOr<PreparedPtr> PrepareOnIdle(const VariantSubject& subject, const Config& config,
                                          NullDevice& device) {
  auto binary = std::make_shared<Binary>();
  binary->target = device.info().target;
  for (const KernelSpec& kernel : subject.variant->plan.kernels) {
    binary->kernels.push_back({kernel.entry, kernel.entry, {}});
  }
  return Prepare(device, subject.spec(), subject.variant, config, binary);
}

// Empty, or what the plan asks that no device has.
std::string BeyondLimits(const LaunchPlan& plan, size_t regions, const DeviceInfo& device) {
  for (const KernelLaunch& launch : plan.launches()) {
    const Dim3 &grid = launch.grid, &block = launch.block;
    if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535) {
      return StrCat("a grid of ", grid.x, " x ", grid.y, " x ", grid.z);
    }
    if (block.volume() < 1 || block.volume() > device.max_threads_per_block || block.z > 64) {
      return StrCat("a block of ", block.x, " x ", block.y, " x ", block.z);
    }
    if (launch.cluster.volume() > device.max_cluster_size) return "too large a cluster";
    if (launch.smem < 0 || launch.smem > device.smem_per_block) {
      return StrCat(launch.smem, " bytes of dynamic shared memory");
    }
  }
  int64_t end = 0;
  for (size_t r = 0; r < regions; ++r) {
    if (plan.region_offset[r] < end || plan.region_offset[r] % kWorkspaceAlign != 0 ||
        plan.region_bytes[r] < 0) {
      return StrCat("a workspace whose region ", r, " lies at ", plan.region_offset[r], " of ",
                    plan.region_bytes[r], " bytes, behind ", end);
    }
    end = plan.region_offset[r] + plan.region_bytes[r];
  }
  if (end > plan.workspace_bytes) return StrCat(plan.workspace_bytes, " bytes of workspace");
  return "";
}

// The manifest's own word, that axes are too much; a limit that is hit is not.
bool IsConstraint(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) &&
         What(status).find("constraint") != std::string_view::npos;
}

TEST_P(PlanConformance, HoldsOrRefusesAtTheLargestShapes) {
  const VariantSubject& subject = GetParam();
  const std::unique_ptr<NullDevice> null = OpenNull();
  const auto on_null = PrepareOnIdle(subject, DefaultConfig(subject.variant->tunables), *null);
  if (absl::IsUnimplemented(on_null.status())) GTEST_SKIP() << What(on_null.status());
  ASSERT_TRUE(on_null.ok()) << on_null.status();
  const std::vector<AxisVector> shapes = LargestShapes(subject.spec(), [&](const AxisVector& axes) {
    LaunchPlan plan;
    return !IsConstraint((*on_null)->Plan(axes, &plan));
  });
  for (const auto& device : IdleDevices()) {
    // What a device that the variant does not run on would refuse is not its manifest's to say.
    const std::string& target = device->info().target;
    if (target != null->info().target && !subject.variant->Supports(target)) continue;
    for (const Config& config : ConfigsToTry(subject.variant->tunables)) {
      const auto prepared = PrepareOnIdle(subject, config, *device);
      if (absl::IsUnimplemented(prepared.status())) continue;  // a launch function's own choice
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      LaunchPlan plan;
      // A config may be too much for a device at any shape: the tuner leaves it out, and says why.
      if (!(*prepared)->Plan(SmallShape(subject.spec()), &plan).ok()) continue;
      for (const AxisVector& axes : shapes) {
        const Place place(subject, config, axes, *device);
        const absl::Status status = (*prepared)->Plan(axes, &plan);
        std::string wrong;
        if (status.ok()) {
          wrong = BeyondLimits(plan, subject.variant->plan.regions.size(), device->info());
          if (!wrong.empty()) wrong = StrCat("the plan asks for ", wrong);
        } else if (!IsConstraint(status)) {
          wrong = StrCat("no constraint excludes it, but the plan fails: ", What(status));
        }
        if (wrong.empty()) continue;
        ADD_FAILURE() << place.text() << " (" << device->info().name << "): " << wrong;
        return;
      }
    }
  }
}

TEST_P(PlanConformance, LaunchesWhatItPlans) {
  const VariantSubject& subject = GetParam();
  const std::unique_ptr<NullDevice> device = OpenNull();
  for (const Config& config : ConfigsToTry(subject.variant->tunables)) {
    const auto prepared = PrepareOnIdle(subject, config, *device);
    if (absl::IsUnimplemented(prepared.status())) GTEST_SKIP() << What(prepared.status());
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    std::vector<AxisVector> shapes = AwkwardShapes(subject.spec());
    shapes.push_back(SmallShape(subject.spec()));
    for (const AxisVector& axes : EmptyShapes(subject.spec())) shapes.push_back(axes);
    for (const AxisVector& axes : shapes) {
      const Place place(subject, config, axes, *device);
      auto rig = Rig::Create(subject.spec(), *prepared, axes, WorkspaceLayout::kExact);
      if (absl::IsFailedPrecondition(rig.status())) continue;
      ASSERT_TRUE(rig.ok()) << place.text() << ": " << What(rig.status());
      const auto set = InputsOf(*subject.op->operation, axes, 1);
      ASSERT_TRUE(set.ok()) << place.text() << ": " << What(set.status());
      ASSERT_TRUE((*rig)->Upload(*set, {}).ok()) << place.text();
      const int64_t before = device->counters().launches;
      const absl::Status status = (*rig)->Launch({});
      ASSERT_TRUE(status.ok()) << place.text() << ": " << What(status);
      if (subject.variant->has_launch_function) continue;
      EXPECT_EQ(device->counters().launches - before, (*rig)->plan().kernel_count) << place.text();
    }
  }
}

TEST_P(TargetConformance, ClaimsOnlyTargetsThatExist) {
  const auto known = KnownTargets();
  for (const std::string& pattern : GetParam().variant->targets) {
    EXPECT_TRUE(std::any_of(known.begin(), known.end(),
                            [&](auto target) { return TargetMatches(pattern, target); }))
        << GetParam().op->name() << "/" << GetParam().variant->name << ": target " << pattern
        << " is none of " << StrJoin(known, ", ");
  }
}

// The default config for each; `kvr compile` does the others.
TEST_P(TargetConformance, CompilesForWhatItClaims) {
  const VariantSubject& subject = GetParam();
  int compiled = 0;
  for (const std::string& target : ThePlatform().CompilableTargets()) {
    if (!subject.variant->Supports(target)) continue;
    const auto built = ThePlatform().jit().Build(subject.spec(), *subject.variant,
                                                 DefaultConfig(subject.variant->tunables), target);
    EXPECT_TRUE(built.ok()) << What(built.status());
    ++compiled;
  }
  if (compiled == 0) GTEST_SKIP() << "no compiler here is for any of its targets";
}

}  // namespace
}  // namespace kvr
