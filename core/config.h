// SPDX-License-Identifier: Apache-2.0
//
// Tunables and configs. A tunable is a named integer parameter with its legal values, a default
// and a scope; a config assigns every tunable of a variant. Values are integers (a switch is 0/1).
//
//   compile   enters the source as a constexpr, and the cache key
//   launch    used by the launch plan alone; changing it compiles nothing
//   quality   changes results; never searched, set only by the caller
//
// Text form "BLOCK_H=16,TARGET_CTAS=256". Threading: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace kvr {

enum class Scope : uint8_t { kCompile, kLaunch, kQuality };
std::string_view ScopeName(Scope scope);
absl::StatusOr<Scope> ParseScope(std::string_view name);

struct Tunable {
  std::string name;  // [A-Z][A-Z0-9_]*, as it appears in the source
  std::vector<int64_t> values;
  int64_t default_value = 0;
  Scope scope = Scope::kCompile;
  std::string description;
};

using Config = std::map<std::string, int64_t>;

Config DefaultConfig(absl::Span<const Tunable> tunables);

// A partial assignment ("NAME=VALUE,..."): known names and legal values only. The error lists the
// legal values, or the nearest name.
absl::StatusOr<Config> ParseConfig(std::string_view text, absl::Span<const Tunable> tunables);

// `config` names every tunable once and each value is legal; else an error saying which not.
absl::Status CheckConfig(const Config& config, absl::Span<const Tunable> tunables);

std::string ConfigText(const Config& config);  // sorted by name
// The part that enters the source and the cache key: compile and quality tunables.
Config CompileScope(const Config& config, absl::Span<const Tunable> tunables);

// Every assignment of the searched tunables (compile and launch), quality ones at their value in
// `fixed` or their default; other entries of `fixed` pin their tunable. In a stable order: the
// default config first, then lexicographic in tunable order.
std::vector<Config> Enumerate(absl::Span<const Tunable> tunables, const Config& fixed);

}  // namespace kvr
