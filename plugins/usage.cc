// SPDX-License-Identifier: Apache-2.0
#include "plugins/usage.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/strings.h"

namespace kvr::bundle {
namespace {

bool IsWordByte(char c) { return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)); }

void AddAll(const std::optional<std::vector<Text>>& texts, Names* names) {
  if (!texts) return;
  for (const Text& text : *texts) AddNames(text.value, names);
}

void AddOne(const std::optional<Text>& text, Names* names) {
  if (text) AddNames(text->value, names);
}

// "workspace.NAME" and "tensor_map.NAME" are no expressions.
bool IsReference(std::string_view argument) {
  return argument.starts_with("workspace.") || argument.starts_with("tensor_map.");
}

// The identifiers of every expression.
Names PlanNames(const Manifest& m) {
  Names names;
  AddAll(m.constraints, &names);
  for (const LetEntry& let : m.lets) AddNames(let.value.value, &names);
  for (const RegionEntry& region : m.regions) AddOne(region.elements, &names);
  for (const TensorMapEntry& map : m.tensor_maps) {
    AddAll(map.shape, &names);
    AddAll(map.box, &names);
  }
  for (const KernelEntry& kernel : m.kernels) {
    for (const auto* texts : {&kernel.grid, &kernel.block, &kernel.cluster}) AddAll(*texts, &names);
    AddOne(kernel.smem, &names);
    AddOne(kernel.when, &names);
    if (!kernel.args) continue;
    for (const Text& argument : *kernel.args) {
      if (!IsReference(argument.value)) AddNames(argument.value, &names);
    }
  }
  return names;
}

// Does a kernel take the argument?
bool IsPassed(const Manifest& m, std::string_view argument) {
  return std::any_of(m.kernels.begin(), m.kernels.end(), [&](const KernelEntry& kernel) {
    return kernel.args && std::any_of(kernel.args->begin(), kernel.args->end(),
                                      [&](const Text& text) { return text.value == argument; });
  });
}

bool IsUsed(const Manifest& m, const RegionEntry& region) {
  return m.HasLaunchFunction() || IsPassed(m, StrCat("workspace.", region.name.value));
}

bool IsUsed(const Manifest& m, const TensorMapEntry& map) {
  return IsPassed(m, StrCat("tensor_map.", map.name.value));
}

bool IsUsed(const Manifest& m, const LetEntry& let) {
  return PlanNames(m).count(let.name.value) > 0;
}

// Backwards, so that a let which only a dropped one used goes with it.
template <typename Entry>
void DropUnusedOf(const Manifest& m, std::vector<Entry>* entries) {
  for (size_t i = entries->size(); i-- > 0;) {
    const Entry& entry = (*entries)[i];
    if (entry.inherited && !IsUsed(m, entry))
      entries->erase(entries->begin() + static_cast<ptrdiff_t>(i));
  }
}

// The end of the literal that opens at `at` with a quote; a literal ends at its line's end at the
// latest, so that a stray quote hides nothing.
size_t LiteralEnd(std::string_view source, size_t at) {
  const char quote = source[at];
  for (size_t i = at + 1; i < source.size(); ++i) {
    if (source[i] == '\\') {
      ++i;
    } else if (source[i] == quote || source[i] == '\n') {
      return i + 1;
    }
  }
  return source.size();
}

}  // namespace

void AddNames(std::string_view text, Names* names) {
  for (size_t i = 0; i < text.size();) {
    if (!IsWordByte(text[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && IsWordByte(text[end])) ++end;
    if (!absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) {
      names->emplace(text.substr(i, end - i));
    }
    i = end;
  }
}

void AddSourceNames(std::string_view source, Names* names) {
  size_t code = 0;  // where the code not yet added begins
  size_t i = 0;
  auto skip = [&](size_t end) {
    AddNames(source.substr(code, i - code), names);
    code = i = std::min(end, source.size());
  };
  while (i < source.size()) {
    const std::string_view two = source.substr(i, 2);
    if (two == "//") {
      size_t end = source.find('\n', i);
      while (end != std::string_view::npos && source[end - 1] == '\\') {
        end = source.find('\n', end + 1);
      }
      skip(end);
    } else if (two == "/*") {
      const size_t end = source.find("*/", i + 2);
      skip(end == std::string_view::npos ? end : end + 2);
    } else if (source[i] == '"' || (source[i] == '\'' && (i == 0 || !IsWordByte(source[i - 1])))) {
      i = LiteralEnd(source, i);  // 1'000 is a number
    } else {
      ++i;
    }
  }
  skip(source.size());
}

Usage UsageOf(const Manifest& m) {
  Usage usage;
  for (const FileEntry& file : m.sources) AddSourceNames(file.content, &usage.sources);
  for (const FileEntry& file : m.headers) AddSourceNames(file.content, &usage.sources);
  for (const KernelEntry& kernel : m.kernels) AddOne(kernel.entry, &usage.entries);
  usage.plan = PlanNames(m);
  if (m.HasPlanFunction() || m.HasLaunchFunction()) {
    for (const TunableEntry& entry : m.tunables) usage.plan.insert(entry.tunable.name);
  }
  return usage;
}

void DropUnused(Manifest* m) {
  DropUnusedOf(*m, &m->regions);
  DropUnusedOf(*m, &m->tensor_maps);
  DropUnusedOf(*m, &m->lets);
}

absl::Status CheckUnused(const Manifest& m) {
  for (const TensorMapEntry& map : m.tensor_maps) {
    if (IsUsed(m, map)) continue;
    return Invalid(map.name.at,
                   StrCat("tensor map '", map.name.value, "' is the argument of no kernel"),
                   StrCat("pass it as \"tensor_map.", map.name.value, "\", or remove it"));
  }
  for (const RegionEntry& region : m.regions) {
    if (IsUsed(m, region)) continue;
    return Invalid(region.name.at,
                   StrCat("workspace '", region.name.value, "' is the argument of no kernel"),
                   StrCat("pass it as \"workspace.", region.name.value, "\", or remove it"));
  }
  for (const LetEntry& let : m.lets) {
    if (IsUsed(m, let)) continue;
    return Invalid(let.name.at, StrCat("let '", let.name.value, "' is used by no expression"),
                   "use it or remove it");
  }
  return absl::OkStatus();
}

}  // namespace kvr::bundle
