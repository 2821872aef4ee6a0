// SPDX-License-Identifier: Apache-2.0
//
// What every variant must do, as one suite; a variant takes part by being found. On a bundle of
// one's own:
//
//   KVR_PLUGIN_PATH=my/bundles build/release/tests/variant_conformance --gtest_filter='*my_variant'
//
// A variant is taken to be deterministic: manifests have no way to say otherwise.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "tests/conformance/variants/rig.h"
#include "tests/conformance/variants/world.h"

namespace kvr {

// One launch's whole surroundings, and what it gave when nothing else ran.
struct Lane {
  std::unique_ptr<ScopedStream> stream;
  std::unique_ptr<Rig> rig;
  InputSetPtr set;
  std::vector<Bytes> expected;
};

// On a device, which runs it.
class VariantConformance : public testing::TestWithParam<VariantSubject> {
 protected:
  void SetUp() override;

  const OpSpec& spec() const { return GetParam().spec(); }
  Device& device() const { return *GetParam().device; }
  Config default_config() const { return DefaultConfig(GetParam().variant->tunables); }
  // Null: not prepared, and the test failed for it.
  PreparedPtr PrepareOrFail(const Config& config) const;
  // Null: the shape is not for this config (the plan's constraints say so), or the test failed.
  std::unique_ptr<Rig> RigOrFail(const Place& place, const PreparedPtr& prepared,
                                 const AxisVector& axes, WorkspaceLayout layout) const;
  InputSetPtr InputsOrFail(const Place& place, const AxisVector& axes, uint64_t seed) const;
  // Empty: not run, and the test failed for it.
  std::vector<Bytes> RunOrFail(const Place& place, Rig& rig, const InputSetPtr& set, uint8_t poison,
                               Stream stream) const;
  // With two input sets by turns. Empty: as for RigOrFail.
  std::vector<Lane> LanesOrFail(const Place& place, const PreparedPtr& prepared,
                                const AxisVector& axes, size_t count) const;
  // Each is true, or one more failure, in one line that begins with the place.
  bool IsOk(const Place& place, const absl::Status& status) const;
  bool IsUndamaged(const Place& place, Rig& rig, Stream stream) const;
  bool IsSame(const Place& place, const std::vector<Bytes>& expected, const std::vector<Bytes>& got,
              std::string_view otherwise) const;

  // Small, different primes, then those awkward to the op.
  std::vector<AxisVector> FewShapes() const;
};

// By what its manifest says alone, nothing launched.
class PlanConformance : public testing::TestWithParam<VariantSubject> {};
class TargetConformance : public testing::TestWithParam<VariantSubject> {};

}  // namespace kvr
