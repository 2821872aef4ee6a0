// SPDX-License-Identifier: Apache-2.0
#include "registry/opt_in.h"

#include <algorithm>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

bool IsQuality(const Variant& variant, std::string_view name) {
  return std::any_of(variant.tunables.begin(), variant.tunables.end(), [&](const Tunable& t) {
    return t.scope == Scope::kQuality && t.name == name;
  });
}

std::string SayInstead(const Variant& variant, const Config& config) {
  return StrCat("say '", OptInText(OptInFor(variant, config)), "'");
}

absl::Status CheckOptIn(const Catalog& catalog, const ApproximateOptIn& opt_in) {
  const std::string what = StrCat("approximate '", OptInText(opt_in), "'");
  const absl::StatusOr<VariantPtr> found = catalog.Find(opt_in.op, opt_in.variant);
  if (!found.ok()) return WithContext(what, found.status());
  const Variant& variant = **found;
  if (variant.semantics == Semantics::kExact) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(what, ": '", variant.name, "' is exact and needs no such word"),
                 "leave it out");
  }
  // Unknown ones first: a typo leaves another one out.
  for (const auto& [name, value] : opt_in.quality) {
    if (IsQuality(variant, name)) continue;
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(what, ": ", name, " is no quality tunable of '", variant.name, "'"),
                 SayInstead(variant, opt_in.quality));
  }
  for (const Tunable& tunable : variant.tunables) {
    if (tunable.scope != Scope::kQuality) continue;
    const auto given = opt_in.quality.find(tunable.name);
    if (given == opt_in.quality.end()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(what, " does not say ", tunable.name, ", which its results depend on"),
                   StrCat(SayInstead(variant, opt_in.quality), ", or other values"));
    }
    const std::vector<int64_t>& legal = tunable.values;
    if (std::find(legal.begin(), legal.end(), given->second) == legal.end()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(what, ": ", given->second, " is no value of ", tunable.name),
                   StrCat("legal values: ", StrJoin(legal, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ApproximateOptIn> ParseOptIn(std::string_view text, std::string_view op) {
  const auto refuse = [&](std::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("approximate ", Quoted(text), " ", what),
                 "write op/variant, or op/variant{TUNABLE=value,...}");
  };
  const size_t brace = text.find('{');
  const std::string_view named = text.substr(0, brace);
  const size_t slash = named.find('/');
  ApproximateOptIn opt_in;
  opt_in.op = slash == std::string_view::npos ? op : named.substr(0, slash);
  opt_in.variant = slash == std::string_view::npos ? named : named.substr(slash + 1);
  if (opt_in.op.empty() || opt_in.variant.empty()) return refuse("names no variant");
  if (!op.empty() && opt_in.op != op) return refuse(StrCat("is not about ", op));
  if (brace == std::string_view::npos) return opt_in;
  if (text.back() != '}') return refuse("does not end with its values' }");
  const std::string_view values = text.substr(brace + 1, text.size() - brace - 2);
  if (values.empty()) return opt_in;
  KVR_ASSIGN_OR_RETURN(const auto assigned, ParseAssignments(values, "tunable", /*negative=*/true));
  for (const auto& [name, value] : assigned) opt_in.quality[name] = value;
  return opt_in;
}

std::string OptInText(const ApproximateOptIn& opt_in) {
  const std::string name = StrCat(opt_in.op, "/", opt_in.variant);
  return opt_in.quality.empty() ? name : StrCat(name, "{", ConfigText(opt_in.quality), "}");
}

ApproximateOptIn OptInFor(const Variant& variant, const Config& config) {
  ApproximateOptIn opt_in{variant.op, variant.name, {}};
  for (const Tunable& tunable : variant.tunables) {
    if (tunable.scope != Scope::kQuality) continue;
    const auto value = config.find(tunable.name);
    opt_in.quality[tunable.name] = value == config.end() ? tunable.default_value : value->second;
  }
  return opt_in;
}

absl::Status CheckOptIns(const Catalog& catalog, absl::Span<const ApproximateOptIn> opt_ins) {
  for (size_t i = 0; i < opt_ins.size(); ++i) {
    KVR_RETURN_IF_ERROR(CheckOptIn(catalog, opt_ins[i]));
    for (size_t j = 0; j < i; ++j) {
      if (opt_ins[j].op != opt_ins[i].op || opt_ins[j].variant != opt_ins[i].variant) continue;
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("approximate '", OptInText(opt_ins[i]), "' comes after '",
                          OptInText(opt_ins[j]), "'"),
                   "opt in to a variant once");
    }
  }
  return absl::OkStatus();
}

const ApproximateOptIn* FindOptIn(absl::Span<const ApproximateOptIn> opt_ins,
                                  const Variant& variant) {
  for (const ApproximateOptIn& opt_in : opt_ins) {
    if (opt_in.op == variant.op && opt_in.variant == variant.name) return &opt_in;
  }
  return nullptr;
}

absl::Status CheckConsent(absl::Span<const ApproximateOptIn> opt_ins, const Variant& variant,
                          const Config& config) {
  if (variant.semantics == Semantics::kExact) return absl::OkStatus();
  const ApproximateOptIn* opt_in = FindOptIn(opt_ins, variant);
  const ApproximateOptIn wanted = OptInFor(variant, config);
  if (opt_in != nullptr && opt_in->quality == wanted.quality) return absl::OkStatus();
  const std::string values =
      wanted.quality.empty() ? "" : StrCat(" with ", ConfigText(wanted.quality));
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat("'", variant.name, "' of ", variant.op, " is approximate, and ",
                      opt_in == nullptr ? StrCat("nobody opted in to it", values)
                                        : StrCat("the opt-in is to ", ConfigText(opt_in->quality),
                                                 ", not to ", ConfigText(wanted.quality))),
               StrCat("to take its results for right, say so: --approximate '", OptInText(wanted),
                      "', or the same text in the options of the program that serves"));
}

}  // namespace kvr
