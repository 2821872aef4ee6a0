// SPDX-License-Identifier: Apache-2.0
#include "plugins/usage.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"

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
  AddAll(m.constraints, &usage.plan);
  for (const LetEntry& let : m.lets) AddNames(let.value.value, &usage.plan);
  for (const RegionEntry& region : m.regions) AddOne(region.elements, &usage.plan);
  for (const TensorMapEntry& map : m.tensor_maps) {
    AddAll(map.shape, &usage.plan);
    AddAll(map.box, &usage.plan);
  }
  for (const KernelEntry& kernel : m.kernels) {
    AddOne(kernel.entry, &usage.entries);
    for (const auto* texts : {&kernel.grid, &kernel.block, &kernel.cluster, &kernel.args}) {
      AddAll(*texts, &usage.plan);
    }
    AddOne(kernel.smem, &usage.plan);
    AddOne(kernel.when, &usage.plan);
  }
  if (m.HasPlanFunction() || m.HasLaunchFunction()) {
    for (const TunableEntry& entry : m.tunables) usage.plan.insert(entry.tunable.name);
  }
  return usage;
}

}  // namespace kvr::bundle
