// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/variants/variant_conformance.h"

#include <cstdlib>
#include <iostream>

#include "core/status.h"
#include "core/strings.h"
#include "tests/conformance/variants/edges.h"

namespace kvr {

void VariantConformance::SetUp() {
  const Variant& variant = *GetParam().variant;
  const std::string& target = device().info().target;
  std::string reason;
  if (!variant.Supports(target, &reason)) GTEST_SKIP() << reason;
  if (!variant.sources.empty() && !ThePlatform().jit().CanCompile(target, &reason)) {
    GTEST_SKIP() << reason;
  }
}

PreparedPtr VariantConformance::PrepareOrFail(const Config& config) const {
  const Place place(GetParam(), config, SmallShape(spec()), device());
  const absl::StatusOr<PreparedPtr> prepared = PrepareOn(GetParam(), config);
  if (prepared.ok()) return *prepared;
  ADD_FAILURE() << place.text() << ": does not load: " << What(prepared.status());
  return nullptr;
}

std::unique_ptr<Rig> VariantConformance::RigOrFail(const Place& place, const PreparedPtr& prepared,
                                                   const AxisVector& axes,
                                                   WorkspaceLayout layout) const {
  absl::StatusOr<std::unique_ptr<Rig>> rig = Rig::Create(spec(), prepared, axes, layout);
  if (rig.ok()) return *std::move(rig);
  // A constraint, or a config that is too much for this device: not what is tested here.
  if (!absl::IsFailedPrecondition(rig.status())) {
    ADD_FAILURE() << place.text() << ": " << What(rig.status());
  }
  return nullptr;
}

InputSetPtr VariantConformance::InputsOrFail(const Place& place, const AxisVector& axes,
                                             uint64_t seed) const {
  const absl::StatusOr<InputSetPtr> set = InputsOf(*GetParam().op->operation, axes, seed);
  if (set.ok()) return *set;
  ADD_FAILURE() << place.text() << ": the op has no inputs there, though its constraints allow it: "
                << What(set.status());
  return nullptr;
}

std::vector<Bytes> VariantConformance::RunOrFail(const Place& place, Rig& rig,
                                                 const InputSetPtr& set, uint8_t poison,
                                                 Stream stream) const {
  absl::StatusOr<std::vector<Bytes>> outputs = rig.Run(set, poison, poison, stream);
  return IsOk(place, outputs.status()) ? *std::move(outputs) : std::vector<Bytes>();
}

std::vector<Lane> VariantConformance::LanesOrFail(const Place& place, const PreparedPtr& prepared,
                                                  const AxisVector& axes, size_t count) const {
  constexpr uint8_t kPoison = 0xff;
  std::vector<Lane> lanes;
  while (lanes.size() < count) {
    Lane lane;
    lane.stream = std::make_unique<ScopedStream>(device());
    lane.rig = RigOrFail(place, prepared, axes, WorkspaceLayout::kExact);
    if (lane.rig == nullptr) return {};
    lane.set = InputsOrFail(place, axes, lanes.size() % 2 == 0 ? 2 : 4);
    if (lane.set == nullptr) return {};
    lane.expected = RunOrFail(place, *lane.rig, lane.set, kPoison, lane.stream->get());
    if (lane.expected.empty()) return {};
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

bool VariantConformance::IsOk(const Place& place, const absl::Status& status) const {
  if (!status.ok()) ADD_FAILURE() << place.text() << ": " << What(status);
  return status.ok();
}

bool VariantConformance::IsUndamaged(const Place& place, Rig& rig, Stream stream) const {
  const absl::StatusOr<std::string> damage = rig.Damage(stream);
  if (!IsOk(place, damage.status())) return false;
  if (!damage->empty()) ADD_FAILURE() << place.text() << ": " << *damage;
  return damage->empty();
}

bool VariantConformance::IsSame(const Place& place, const std::vector<Bytes>& expected,
                                const std::vector<Bytes>& got, std::string_view otherwise) const {
  const std::string where = Difference(spec(), expected, got);
  if (!where.empty()) ADD_FAILURE() << place.text() << ": " << otherwise << ": " << where;
  return where.empty();
}

std::vector<AxisVector> VariantConformance::FewShapes() const {
  std::vector<AxisVector> shapes = {SmallShape(spec())};
  for (const AxisVector& axes : TileShapes(spec(), {}, 0)) shapes.push_back(axes);
  for (const AxisVector& axes : AwkwardShapes(spec())) shapes.push_back(axes);
  return shapes;
}

#ifndef KVR_TEST_HAS_HOST_DEVICE
// Nothing runs here without a GPU; where the host device is built, an empty suite is an error.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VariantConformance);
#endif
INSTANTIATE_TEST_SUITE_P(Host, VariantConformance, testing::ValuesIn(SubjectsOn("host")),
                         VariantSubjectName);
INSTANTIATE_TEST_SUITE_P(Cuda, VariantConformance, testing::ValuesIn(SubjectsOn("cuda")),
                         VariantSubjectName);
INSTANTIATE_TEST_SUITE_P(All, PlanConformance, testing::ValuesIn(AllVariants()),
                         VariantSubjectName);
INSTANTIATE_TEST_SUITE_P(All, TargetConformance, testing::ValuesIn(AllVariants()),
                         VariantSubjectName);

TEST(Catalog, AdmitsEveryVariantThatItFinds) {
  for (const Rejection& rejection : ThePlatform().catalog().rejections()) {
    ADD_FAILURE() << rejection.path << ": " << What(rejection.status) << "; "
                  << Fix(rejection.status);
  }
}

}  // namespace kvr

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  kvr::ReportFatalSignals();
  int result = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::cout << "SKIPPED: no such device or variant here" << std::endl;
    result = 77;
  }
  std::cout.flush();
  std::_Exit(result);  // a GPU's context may be broken: nothing is torn down
}
