// SPDX-License-Identifier: Apache-2.0
#include "registry/overrides.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

const Tunable* FindTunable(const Variant& variant, std::string_view name) {
  for (const Tunable& tunable : variant.tunables) {
    if (tunable.name == name) return &tunable;
  }
  return nullptr;
}

// `tunable` exists in some variant of the op and one of them allows `value`.
absl::Status CheckValue(const Catalog::Op& op, std::string_view tunable, int64_t value,
                        std::string_view source) {
  std::vector<std::string_view> names;
  std::vector<int64_t> legal;
  for (const VariantPtr& variant : op.variants) {
    for (const Tunable& candidate : variant->tunables) {
      if (candidate.name == tunable) {
        legal.insert(legal.end(), candidate.values.begin(), candidate.values.end());
      } else {
        names.push_back(candidate.name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (legal.empty()) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat(source, ": no variant of ", op.name(), " has a tunable '", tunable, "'"),
                 SuggestNames(tunable, names));
  }
  if (std::find(legal.begin(), legal.end(), value) != legal.end()) return absl::OkStatus();
  std::sort(legal.begin(), legal.end());
  legal.erase(std::unique(legal.begin(), legal.end()), legal.end());
  std::string list;
  for (int64_t v : legal) StrAppend(&list, list.empty() ? "" : ", ", v);
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(source, ": ", value, " is no value of '", tunable, "'"),
               StrCat("legal values: ", list));
}

// The op whose capitals, as a whole word, start `rest`; of several, the longest name.
const Catalog::Op* OpOfVariable(const Catalog& catalog, std::string_view rest) {
  const Catalog::Op* best = nullptr;
  for (const auto& op : catalog.ops()) {
    const std::string prefix = StrCat(EnvironmentName(op->name()), "_");
    if (rest.size() > prefix.size() && rest.substr(0, prefix.size()) == prefix &&
        (best == nullptr || op->name().size() > best->name().size())) {
      best = op.get();
    }
  }
  return best;
}

// Forcing the variant and every quality tunable by hand names all that an opt-in has to name.
bool IsConsent(const Overrides::ForOp& forced, const Variant& variant) {
  if (forced.variant != variant.name) return false;
  return std::all_of(variant.tunables.begin(), variant.tunables.end(), [&](const Tunable& t) {
    return t.scope != Scope::kQuality || forced.tunables.count(t.name) > 0;
  });
}

// What is set by hand gives no quality tunable another value than the opt-in does.
absl::Status CheckAgreement(const Overrides::ForOp* entry, const Variant& variant,
                            const std::vector<ApproximateOptIn>& opt_ins) {
  const ApproximateOptIn* opt_in = FindOptIn(opt_ins, variant);
  if (entry == nullptr || opt_in == nullptr) return absl::OkStatus();
  for (const auto& [name, value] : opt_in->quality) {
    const auto by_hand = entry->tunables.find(name);
    if (by_hand == entry->tunables.end() || by_hand->second.value == value) continue;
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(by_hand->second.source, " sets ", name, "=", by_hand->second.value, " of '",
                        variant.name, "', and the opt-in is to '", OptInText(*opt_in), "'"),
                 StrCat("leave ", name, " to the opt-in, or opt in to the value that is meant"));
  }
  return absl::OkStatus();
}

// A config of `variant` that somebody consented to, with nothing set by hand against it.
absl::Status CheckAllowed(const Overrides::ForOp* entry, const Variant& variant,
                          const Config& config, const std::vector<ApproximateOptIn>& opt_ins) {
  KVR_RETURN_IF_ERROR(CheckAgreement(entry, variant, opt_ins));
  return CheckConsent(opt_ins, variant, config);
}

}  // namespace

std::string EnvironmentName(std::string_view op) {
  std::string name(op);
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c))
            ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
            : '_';
  }
  return name;
}

absl::StatusOr<Overrides> Overrides::FromEnvironment(const Catalog& catalog) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return FromEnvironment(catalog, environment);
}

absl::StatusOr<Overrides> Overrides::FromEnvironment(const Catalog& catalog,
                                                     const std::vector<std::string>& environment) {
  Overrides overrides;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    const std::string value = entry.substr(equals + 1);
    if (name.rfind("KVR_", 0) != 0) continue;
    const std::string_view rest = std::string_view(name).substr(4);

    if (rest.rfind("FORCE_", 0) == 0) {
      const std::string_view forced = rest.substr(6);
      const Catalog::Op* op = nullptr;
      std::vector<std::string> names;
      for (const auto& candidate : catalog.ops()) {
        if (EnvironmentName(candidate->name()) == forced) op = candidate.get();
        names.push_back(StrCat("KVR_FORCE_", EnvironmentName(candidate->name())));
      }
      if (op == nullptr) {
        return Error(absl::StatusCode::kNotFound, StrCat(name, " names no operation"),
                     SuggestNames(name, std::vector<std::string_view>(names.begin(), names.end())));
      }
      absl::StatusOr<VariantPtr> variant = catalog.Find(op->name(), value);
      if (!variant.ok()) return WithContext(name, variant.status());
      ForOp& entry_of_op = overrides.ops_[op->name()];
      entry_of_op.variant = value;
      entry_of_op.variant_source = name;
      continue;
    }

    const Catalog::Op* op = OpOfVariable(catalog, rest);
    if (op == nullptr) continue;  // KVR_CACHE_DIR and the like
    const std::string_view tunable = rest.substr(EnvironmentName(op->name()).size() + 1);
    const absl::StatusOr<int64_t> number = ParseInteger(value, /*negative=*/true);
    if (!number.ok()) return WithContext(name, number.status());
    KVR_RETURN_IF_ERROR(CheckValue(*op, tunable, *number, name));
    overrides.ops_[op->name()].tunables[std::string(tunable)] = {*number, name};
  }
  return overrides;
}

absl::Status Overrides::Force(const Catalog& catalog, std::string_view op,
                              std::string_view variant) {
  KVR_RETURN_IF_ERROR(catalog.Find(op, variant).status());
  ForOp& entry = ops_[std::string(op)];
  entry.variant = std::string(variant);
  entry.variant_source = "--variant";
  return absl::OkStatus();
}

absl::Status Overrides::Set(const Catalog& catalog, std::string_view op, std::string_view tunable,
                            int64_t value) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* found, catalog.FindOp(op));
  KVR_RETURN_IF_ERROR(CheckValue(*found, tunable, value, "--set"));
  ops_[std::string(op)].tunables[std::string(tunable)] = {value, "--set"};
  return absl::OkStatus();
}

const Overrides::ForOp* Overrides::Find(std::string_view op) const {
  const auto it = ops_.find(op);
  return it == ops_.end() ? nullptr : &it->second;
}

Config Overrides::FixedFor(const Variant& variant) const {
  Config fixed;
  const ForOp* entry = Find(variant.op);
  if (entry == nullptr) return fixed;
  for (const auto& [name, value] : entry->tunables) {
    if (FindTunable(variant, name) != nullptr) fixed[name] = value.value;
  }
  return fixed;
}

absl::StatusOr<Choice> Choose(const Catalog::Op& op, const Selection* selected,
                              const Overrides& overrides,
                              const std::vector<ApproximateOptIn>& opt_in) {
  const Overrides::ForOp* entry = overrides.Find(op.name());
  Choice choice;
  Selection& chosen = choice.selection;
  if (entry != nullptr && !entry->variant.empty()) {
    for (const VariantPtr& variant : op.variants) {
      if (variant->name == entry->variant) chosen.variant = variant;
    }
    if (chosen.variant == nullptr) {
      return Error(
          absl::StatusCode::kNotFound,
          StrCat(entry->variant_source, ": no variant '", entry->variant, "' of ", op.name()),
          "`kvr list` shows what there is");
    }
    choice.why = StrCat("forced by ", entry->variant_source);
    chosen.overridden = true;
  } else {
    if (selected != nullptr) {
      choice.refused = CheckAllowed(entry, *selected->variant, selected->config, opt_in);
    }
    if (selected != nullptr && choice.refused.ok()) {
      chosen.variant = selected->variant;
      choice.why = "selected";
    } else if (op.baseline != nullptr) {
      chosen.variant = op.baseline;
      choice.why = choice.refused.ok() ? std::string("baseline")
                                       : StrCat("baseline: ", What(choice.refused));
    }
  }
  if (chosen.variant == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("operation '", op.name(), "' has no baseline"),
                 "a bundle with `baseline = true` is missing or was refused: `kvr list` says why");
  }
  const Variant& variant = *chosen.variant;

  // By name too: variants made of the same files, apart in their tunables, share a fingerprint.
  const bool same_variant = selected != nullptr && selected->variant->name == variant.name &&
                            selected->variant->fingerprint == variant.fingerprint;
  chosen.config = same_variant ? selected->config : DefaultConfig(variant.tunables);

  // Of a forced approximate variant, the selection's quality values have no say.
  const ApproximateOptIn* consent = FindOptIn(opt_in, variant);
  if (consent != nullptr) {
    for (const auto& [name, value] : consent->quality) chosen.config[name] = value;
  }
  std::string by;
  for (const auto& [name, value] : overrides.FixedFor(variant)) {
    chosen.config[name] = value;
    chosen.overridden = true;
    StrAppend(&by, by.empty() ? ", with " : ", ", name, "=", value, " by ",
              entry->tunables.at(name).source);
  }
  // The one gate: nothing passes with other values than those that were consented to.
  if (const bool by_hand = consent == nullptr && entry != nullptr && IsConsent(*entry, variant);
      !by_hand) {
    const absl::Status status = CheckAllowed(entry, variant, chosen.config, opt_in);
    if (!status.ok()) {
      return WithContext(StrCat(op.name(), " (", choice.why, ")"),
                         Error(absl::StatusCode::kInvalidArgument, What(status), Fix(status)));
    }
  }
  choice.why += by;
  if (absl::Status status = CheckConfig(chosen.config, variant.tunables); !status.ok()) {
    return WithContext(StrCat(op.name(), "/", variant.name, " (", choice.why, ")"), status);
  }
  if (same_variant) {
    choice.from_generation = !chosen.overridden;
    const bool same_binary = CompileScope(chosen.config, variant.tunables) ==
                             CompileScope(selected->config, variant.tunables);
    if (same_binary) chosen.binary = selected->binary;
    if (choice.from_generation) chosen.evidence = selected->evidence;
  }
  return choice;
}

}  // namespace kvr
