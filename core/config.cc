// SPDX-License-Identifier: Apache-2.0
#include "core/config.h"

#include <algorithm>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr std::string_view kScopeNames[] = {"compile", "launch", "quality"};

const Tunable* Find(absl::Span<const Tunable> tunables, std::string_view name) {
  for (const Tunable& tunable : tunables)
    if (tunable.name == name) return &tunable;
  return nullptr;
}

absl::Status UnknownTunable(std::string_view name, absl::Span<const Tunable> tunables) {
  std::vector<std::string_view> names;
  for (const Tunable& tunable : tunables) names.push_back(tunable.name);
  return UnknownName("tunable", name, names);
}

absl::Status CheckValue(const Tunable& tunable, int64_t value) {
  const std::vector<int64_t>& legal = tunable.values;
  if (std::find(legal.begin(), legal.end(), value) != legal.end()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("tunable '", tunable.name, "' cannot be ", value),
               StrCat("legal values: ", StrJoin(legal, ", ")));
}

}  // namespace

std::string_view ScopeName(Scope scope) { return kScopeNames[static_cast<size_t>(scope)]; }

absl::StatusOr<Scope> ParseScope(std::string_view name) {
  for (size_t i = 0; i < std::size(kScopeNames); ++i)
    if (kScopeNames[i] == name) return static_cast<Scope>(i);
  return UnknownName("scope", name, kScopeNames);
}

Config DefaultConfig(absl::Span<const Tunable> tunables) {
  Config config;
  for (const Tunable& tunable : tunables) config[tunable.name] = tunable.default_value;
  return config;
}

absl::StatusOr<Config> ParseConfig(std::string_view text, absl::Span<const Tunable> tunables) {
  KVR_ASSIGN_OR_RETURN(auto pairs, ParseAssignments(text, "tunable", /*negative=*/true));
  for (const auto& [name, value] : pairs) {
    const Tunable* tunable = Find(tunables, name);
    if (!tunable) return UnknownTunable(name, tunables);
    KVR_RETURN_IF_ERROR(CheckValue(*tunable, value));
  }
  return Config(pairs.begin(), pairs.end());
}

absl::Status CheckConfig(const Config& config, absl::Span<const Tunable> tunables) {
  for (const auto& [name, value] : config) {
    const Tunable* tunable = Find(tunables, name);
    if (!tunable) return UnknownTunable(name, tunables);
    KVR_RETURN_IF_ERROR(CheckValue(*tunable, value));
  }
  for (const Tunable& tunable : tunables) {
    if (!config.contains(tunable.name)) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("config '", ConfigText(config), "' lacks tunable '", tunable.name, "'"),
                   StrCat("give every tunable; its default is ", tunable.default_value));
    }
  }
  return absl::OkStatus();
}

std::string ConfigText(const Config& config) { return JoinPairs(config); }

Config CompileScope(const Config& config, absl::Span<const Tunable> tunables) {
  Config result;
  for (const auto& [name, value] : config) {
    const Tunable* tunable = Find(tunables, name);
    if (tunable && tunable->scope != Scope::kLaunch) result[name] = value;
  }
  return result;
}

std::vector<Config> Enumerate(absl::Span<const Tunable> tunables, const Config& fixed) {
  Config first;
  std::vector<const Tunable*> free;
  for (const Tunable& tunable : tunables) {
    auto pinned = fixed.find(tunable.name);
    first[tunable.name] = pinned != fixed.end() ? pinned->second : tunable.default_value;
    if (pinned == fixed.end() && tunable.scope != Scope::kQuality && !tunable.values.empty()) {
      free.push_back(&tunable);
    }
  }
  std::vector<Config> result = {first};
  // An odometer whose last tunable turns fastest.
  std::vector<size_t> digit(free.size(), 0);
  for (;;) {
    Config config = first;
    for (size_t i = 0; i < free.size(); ++i) config[free[i]->name] = free[i]->values[digit[i]];
    if (config != first) result.push_back(std::move(config));
    size_t i = free.size();
    while (i > 0 && ++digit[i - 1] == free[i - 1]->values.size()) digit[--i] = 0;
    if (i == 0) return result;
  }
}

}  // namespace kvr
