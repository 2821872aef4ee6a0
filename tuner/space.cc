// SPDX-License-Identifier: Apache-2.0
#include "tuner/space.h"

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

std::string CandidateText(const Candidate& candidate) {
  return absl::StrCat(candidate.variant->name, " {", ConfigText(candidate.config), "}");
}

bool IsDefault(const Candidate& candidate) {
  const auto& tunables = candidate.variant->tunables;
  return std::all_of(tunables.begin(), tunables.end(), [&](const Tunable& tunable) {
    return tunable.scope == Scope::kQuality ||
           candidate.config.at(tunable.name) == tunable.default_value;
  });
}

absl::StatusOr<std::vector<std::pair<std::string, int64_t>>> ParsePins(
    absl::Span<const std::string> texts) {
  std::vector<std::pair<std::string, int64_t>> pins;
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    for (absl::string_view piece : absl::StrSplit(text, ',')) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(piece, absl::MaxSplits('=', 1));
      int64_t value = 0;
      if (parts.first.empty() || !absl::SimpleAtoi(parts.second, &value)) {
        return Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("'", std::string(piece), "' is not a tunable's assignment"),
                     "write NAME=INTEGER, as in --set BLOCK_H=16");
      }
      if (!seen.emplace(parts.first).second) {
        return Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("tunable '", parts.first, "' is set twice"),
                     "give each --set NAME once");
      }
      pins.emplace_back(std::string(parts.first), value);
    }
  }
  return pins;
}

namespace {

const Tunable* FindTunable(const Variant& variant, const std::string& name) {
  for (const Tunable& tunable : variant.tunables) {
    if (tunable.name == name) return &tunable;
  }
  return nullptr;
}

std::string KnownTunables(absl::Span<const VariantPtr> variants) {
  std::set<std::string> names;
  for (const VariantPtr& variant : variants) {
    for (const Tunable& tunable : variant->tunables) names.insert(tunable.name);
  }
  return absl::StrJoin(names, ", ");
}

// Empty: all pins fit `variant`.
std::string WhyPinsExclude(const Variant& variant,
                           absl::Span<const std::pair<std::string, int64_t>> pins) {
  for (const auto& [name, value] : pins) {
    const Tunable* tunable = FindTunable(variant, name);
    if (tunable == nullptr) return absl::StrCat("has no tunable ", name, ", which --set pins");
    if (std::find(tunable->values.begin(), tunable->values.end(), value) == tunable->values.end()) {
      return absl::StrCat(name, "=", value, " is not among its values ",
                          absl::StrJoin(tunable->values, ", "));
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<Space> BuildSpace(absl::Span<const VariantPtr> variants,
                                 absl::Span<const std::string> pin_texts, Coverage coverage,
                                 absl::Span<const ApproximateOptIn> opt_ins) {
  KVR_ASSIGN_OR_RETURN(const auto pins, ParsePins(pin_texts));
  for (const auto& pin : pins) {
    const bool known = std::any_of(variants.begin(), variants.end(), [&](const VariantPtr& v) {
      return FindTunable(*v, pin.first) != nullptr;
    });
    if (!known) {
      return Error(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("no variant here has a tunable '", pin.first, "'"),
                   absl::StrCat("use one of: ", KnownTunables(variants)));
    }
  }
  Space space;
  for (const VariantPtr& variant : variants) {
    if (std::string reason = WhyPinsExclude(*variant, pins); !reason.empty()) {
      space.omitted.push_back({variant, std::move(reason)});
      continue;
    }
    Config fixed(pins.begin(), pins.end());
    if (const ApproximateOptIn* opt_in = FindOptIn(opt_ins, *variant)) {
      std::string other;
      for (const auto& [name, value] : opt_in->quality) {
        const auto [at, added] = fixed.emplace(name, value);
        if (!added && at->second != value) other = StrCat(name, "=", at->second);
      }
      if (!other.empty()) {
        space.omitted.push_back({variant, StrCat(other, " is set, and the opt-in is to ",
                                                 ConfigText(opt_in->quality))});
        continue;
      }
    }
    if (coverage == Coverage::kDefault) {
      Config config = DefaultConfig(variant->tunables);
      for (const auto& [name, value] : fixed) config[name] = value;
      space.candidates.push_back({variant, std::move(config)});
      continue;
    }
    for (Config& config : Enumerate(variant->tunables, fixed)) {
      space.candidates.push_back({variant, std::move(config)});
    }
  }
  if (space.candidates.empty() && !space.omitted.empty()) {
    const Omitted& first = space.omitted.front();
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("--set leaves no variant: ", first.variant->name, ": ", first.reason),
                 "give the tunable a value that some variant allows");
  }
  return space;
}

}  // namespace kvr
