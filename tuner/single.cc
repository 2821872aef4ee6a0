// SPDX-License-Identifier: Apache-2.0
#include "tuner/single.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/config.h"
#include "core/plan.h"
#include "tuner/feasibility.h"

namespace kvr {
namespace {

// What enters the kernels; of a launch function every tunable may.
Config OfKernels(const Candidate& candidate) {
  Config fixed;
  for (const Tunable& tunable : candidate.variant->tunables) {
    if (tunable.scope != Scope::kLaunch || candidate.variant->has_launch_function) {
      fixed[tunable.name] = candidate.config.at(tunable.name);
    }
  }
  return fixed;
}

// Variants of one fingerprint differ in the values their tunables may take, nothing else.
bool SameKernels(const Candidate& a, const Candidate& b) {
  return a.variant->fingerprint == b.variant->fingerprint && OfKernels(a) == OfKernels(b);
}

// None: it does not fit one of the shapes.
std::optional<std::vector<LaunchPlan>> PlansOf(const Candidate& candidate,
                                               absl::Span<const AxisVector> shapes,
                                               const DeviceInfo& device) {
  std::vector<LaunchPlan> plans(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!CheckPlan(*candidate.variant, candidate.config, shapes[i], device, &plans[i]).ok()) {
      return std::nullopt;
    }
  }
  return plans;
}

bool SamePlans(const std::vector<LaunchPlan>& a, const std::vector<LaunchPlan>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SamePlan);
}

// The races of one key, to be asked for any config.
class Races {
 public:
  Races(const SingleKey& key, const DeviceInfo& device) : key_(key), device_(device) {
    for (const Behind& raced : key.behind) {
      if (auto plans = PlansOf(raced.candidate, key.shapes, device)) {
        raced_[KernelsOf(raced.candidate)].push_back({&raced, *std::move(plans)});
      }
    }
  }

  // NaN: nobody knows.
  double By(const Candidate& candidate) const {
    const auto alike = raced_.find(KernelsOf(candidate));
    if (alike == raced_.end()) return NAN;
    for (const auto& [raced, plans] : alike->second) {
      if (raced->candidate == candidate) return raced->by;
    }
    const auto plans = PlansOf(candidate, key_.shapes, device_);
    if (!plans.has_value()) return NAN;
    for (const auto& [raced, its_plans] : alike->second) {
      if (SamePlans(*plans, its_plans)) return raced->by;
    }
    return NAN;
  }

 private:
  using Kernels = std::pair<std::string, Config>;
  static Kernels KernelsOf(const Candidate& candidate) {
    return {candidate.variant->fingerprint.Hex(), OfKernels(candidate)};
  }

  const SingleKey& key_;
  const DeviceInfo& device_;
  std::map<Kernels, std::vector<std::pair<const Behind*, std::vector<LaunchPlan>>>> raced_;
};

}  // namespace

bool SameWork(const Candidate& a, const Candidate& b, absl::Span<const AxisVector> shapes,
              const DeviceInfo& device) {
  if (a == b) return true;
  if (!SameKernels(a, b) || a.variant->has_launch_function) return false;
  const auto plans_a = PlansOf(a, shapes, device), plans_b = PlansOf(b, shapes, device);
  return plans_a.has_value() && plans_b.has_value() && SamePlans(*plans_a, *plans_b);
}

std::optional<Candidate> BestSingle(absl::Span<const SingleKey> keys, const DeviceInfo& device,
                                    size_t* of) {
  std::vector<Races> races;
  for (const SingleKey& key : keys) {
    if (!key.behind.empty()) races.emplace_back(key, device);
  }
  std::set<std::pair<const Variant*, Config>> everywhere;
  std::optional<Candidate> best;
  double least = INFINITY;
  for (const SingleKey& key : keys) {
    for (const Behind& raced : key.behind) {
      double sum = 0;
      for (const Races& others : races) sum += others.By(raced.candidate);
      if (std::isnan(sum)) continue;
      everywhere.emplace(raced.candidate.variant.get(), raced.candidate.config);
      if (sum >= least) continue;
      least = sum;
      best = raced.candidate;
    }
  }
  if (of != nullptr) *of = everywhere.size();
  return best;
}

}  // namespace kvr
