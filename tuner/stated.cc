// SPDX-License-Identifier: Apache-2.0
#include "tuner/stated.h"

#include <algorithm>
#include <vector>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// Null: all that can be asked is met.
const Expr* FirstNotMet(const OpSpec& op, const Variant& variant, const Config& stated,
                        const AxisVector& axes) {
  // As PlanProgram::Symbols numbers them: axes, then tunables.
  const size_t first_tunable = op.axes.size();
  std::vector<int64_t> slots(axes.begin(), axes.begin() + static_cast<ptrdiff_t>(first_tunable));
  std::vector<bool> known(first_tunable, true);
  for (const Tunable& tunable : variant.tunables) {
    const auto value = stated.find(tunable.name);
    known.push_back(value != stated.end());
    slots.push_back(value != stated.end() ? value->second : 0);
  }
  for (const Expr& constraint : variant.plan.constraints) {
    const std::vector<int> used = constraint.UsedSlots();
    const bool can_be_asked = std::all_of(used.begin(), used.end(), [&](int slot) {
      return static_cast<size_t>(slot) < known.size() && known[static_cast<size_t>(slot)];
    });
    int64_t met = 1;
    if (can_be_asked && constraint.TryEval(slots, &met) && met == 0) return &constraint;
  }
  return nullptr;
}

}  // namespace

absl::Status CheckStated(const OpSpec& op, const Variant& variant, const Config& stated,
                         absl::Span<const AxisVector> shapes) {
  if (stated.empty()) return absl::OkStatus();
  const Expr* not_met = nullptr;  // at the first shape
  for (const AxisVector& axes : shapes) {
    const Expr* const here = FirstNotMet(op, variant, stated, axes);
    if (here == nullptr) return absl::OkStatus();
    if (not_met == nullptr) not_met = here;
  }
  if (not_met == nullptr) return absl::OkStatus();
  Axes named;
  for (const int slot : not_met->UsedSlots()) {
    if (static_cast<size_t>(slot) >= op.axes.size()) continue;
    named[op.axes[static_cast<size_t>(slot)].name] = shapes.front()[static_cast<size_t>(slot)];
  }
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(op.name, "/", variant.name, " with ", ConfigText(stated), " requires ",
                      not_met->text(), ", not met ",
                      named.empty() ? "at any shape" : StrCat("by ", AxesText(named)),
                      shapes.size() > 1 && !named.empty() ? " or another shape here" : ""),
               "state values that meet it, or choose other axes");
}

}  // namespace kvr
