// SPDX-License-Identifier: Apache-2.0
#include "core/variant.h"

#include <algorithm>
#include <optional>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr std::string_view kTargets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a", "host"};

// 90 of "sm_90" and of "sm_90a"; nothing for other text.
std::optional<int64_t> SmNumber(std::string_view target) {
  if (!target.starts_with("sm_")) return std::nullopt;
  target.remove_prefix(3);
  if (!target.empty() && (target.back() == 'a' || target.back() == 'f')) target.remove_suffix(1);
  absl::StatusOr<int64_t> number = ParseInteger(target, /*negative=*/false);
  if (!number.ok()) return std::nullopt;
  return *number;
}

std::vector<std::string_view> CubinTargets(const Variant& variant) {
  std::vector<std::string_view> targets;
  for (const PrebuiltBinary& cubin : variant.cubins) targets.push_back(cubin.target);
  return targets;
}

// Targets that are no GPU's have what they pretend to have; host pretends nothing.
bool HasTma(std::string_view target) {
  return target != "host" && SmNumber(target).value_or(90) >= 90;
}

}  // namespace

bool TargetMatches(std::string_view pattern, std::string_view target) {
  if (!pattern.ends_with('+')) return pattern == target;
  std::optional<int64_t> least = SmNumber(pattern.substr(0, pattern.size() - 1));
  std::optional<int64_t> number = SmNumber(target);
  return least && number && *number >= *least;
}

absl::Span<const std::string_view> KnownTargets() { return kTargets; }

absl::StatusOr<std::vector<std::string>> ParseTargets(std::string_view comma_separated) {
  std::vector<std::string> targets;
  for (std::string_view target : Split(comma_separated, ',')) {
    if (std::find(std::begin(kTargets), std::end(kTargets), target) == std::end(kTargets)) {
      // "sm_90" is a habit; its plain form gives binaries without the architecture's own features.
      for (std::string_view known : kTargets) {
        if (known == StrCat(target, "a")) {
          return Error(
              absl::StatusCode::kInvalidArgument,
              StrCat("target ", Quoted(target), " is not exact"),
              StrCat("give '", known, "'; known: ", StrJoin(absl::MakeSpan(kTargets), ", ")));
        }
      }
      return UnknownName("target", target, kTargets);
    }
    if (std::find(targets.begin(), targets.end(), target) != targets.end()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("target '", target, "' is given twice"), "give each target once");
    }
    targets.emplace_back(target);
  }
  return targets;
}

const PrebuiltBinary* Variant::Cubin(std::string_view target) const {
  for (const PrebuiltBinary& cubin : cubins)
    if (cubin.target == target) return &cubin;
  return nullptr;
}

absl::StatusOr<std::vector<ReferenceOutput>> VariantCode::Reference(
    const AxisVector& /*axes*/, absl::Span<const int64_t> /*tunable_values*/,
    absl::Span<const TensorView> /*inputs*/, int /*threads*/) const {
  return Error(absl::StatusCode::kUnimplemented, "this variant has no reference of its own",
               "hold it to the operation's");
}

bool Variant::Supports(std::string_view target, std::string* reason) const {
  std::string why;
  const bool listed = std::any_of(targets.begin(), targets.end(), [&](const std::string& pattern) {
    return TargetMatches(pattern, target);
  });
  if (!cubins.empty() && Cubin(target) == nullptr) {
    why = StrCat("has no cubin for ", target, ", only for ", StrJoin(CubinTargets(*this), ", "));
  } else if (!listed && !(targets.empty() && !cubins.empty())) {
    why = target == "host" && !host_skip_reason.empty()
              ? host_skip_reason
              : StrCat("needs ", StrJoin(targets, " or "), ", not ", target);
  } else if (!plan.tensor_maps.empty() && !HasTma(target)) {
    why = StrCat("uses tensor maps, which need TMA: sm_90a or newer, not ", target);
  }
  if (reason != nullptr) *reason = why;
  return why.empty();
}

std::vector<int64_t> Variant::TunableValues(const Config& config) const {
  std::vector<int64_t> values;
  values.reserve(tunables.size());
  for (const Tunable& tunable : tunables) {
    auto found = config.find(tunable.name);
    values.push_back(found != config.end() ? found->second : tunable.default_value);
  }
  return values;
}

}  // namespace kvr
