// SPDX-License-Identifier: Apache-2.0
#include "jit/template.h"

#include <llvm/Support/FormatVariadic.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/status.h"
#include "jit/diagnostics.h"
#include "jit/directives.h"
#include "jit/includes.h"
#include "jit/scan.h"
#include "jit/signature.h"

namespace kvr {
namespace {

bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsWord(char c) {
  return IsUpper(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}
bool IsBlank(char c) { return c == ' ' || c == '\t'; }

struct Placeholder {
  size_t begin = 0, end = 0;  // braces included
  std::string_view name;
};

// The placeholder whose "{{" is at `at`, if it is one: an upper-case name anywhere, or any name in
// a directive, where C++ cannot mean nested braces.
bool ParsePlaceholder(std::string_view text, size_t at, Placeholder* out) {
  size_t i = at + 2;
  while (i < text.size() && IsBlank(text[i])) ++i;
  size_t begin = i;
  while (i < text.size() && IsWord(text[i])) ++i;
  std::string_view name = text.substr(begin, i - begin);
  while (i < text.size() && IsBlank(text[i])) ++i;
  if (name.empty() || text.substr(i, 2) != "}}") return false;
  bool upper = IsUpper(name[0]) &&
               std::none_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  size_t line = text.rfind('\n', at);
  line = line == text.npos ? 0 : line + 1;
  while (line < at && IsBlank(text[line])) ++line;
  if (!upper && text[line] != '#') return false;
  *out = {at, i + 2, name};
  return true;
}

std::string NamesOf(const Config& constants) {
  std::string names;
  for (const auto& [name, value] : constants) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

absl::Status UnknownPlaceholder(const Variant& variant, const SourceFile& file,
                                const Placeholder& placeholder, const Config& constants) {
  std::string name(placeholder.name);
  std::string what = "unknown placeholder '" + name + "'";
  std::string fix = "the tunables that enter the source are: " + NamesOf(constants) +
                    "; write { {" + name + "} } where C++ braces are meant";
  for (const Tunable& tunable : variant.tunables) {
    if (tunable.name != placeholder.name) continue;
    what = "placeholder '" + name + "' names a " + std::string(ScopeName(tunable.scope)) +
           "-scope tunable, which does not enter the source";
    fix = "give " + name + " scope = \"compile\", or pass it to the kernel as an argument";
  }
  LineColumn at = LineColumnAt(file.content, placeholder.begin);
  return Error(absl::StatusCode::kInvalidArgument,
               RenderDiagnostic(file.path.empty() ? file.name : file.path, file.content, at.line,
                                at.column, Diagnostic::Severity::kError, what),
               fix);
}

// Replaces the placeholders of `file` and adds it to the unit.
absl::Status AddFile(const Variant& variant, const SourceFile& file, const Config& constants,
                     Unit* unit) {
  if (unit->Header(file.name) != nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "the bundle names '" + file.name + "' twice among its sources and headers",
                 "name each file once");
  }
  const std::string_view text = file.content;
  BundleFile original{file.name, file.path, std::make_shared<const std::string>(text), {}};
  std::string rendered;
  size_t copied = 0;
  for (size_t at = text.find("{{"); at != text.npos; at = text.find("{{", at + 1)) {
    Placeholder placeholder;
    if (at < copied || !ParsePlaceholder(text, at, &placeholder)) continue;
    auto value = constants.find(std::string(placeholder.name));
    if (value == constants.end()) return UnknownPlaceholder(variant, file, placeholder, constants);
    rendered += text.substr(copied, at - copied);
    std::string digits = std::to_string(value->second);
    LineColumn where = LineColumnAt(rendered, rendered.size());
    original.substitutions.push_back({where.line, where.column, static_cast<int>(digits.size()),
                                      static_cast<int>(placeholder.end - placeholder.begin)});
    rendered += digits;
    copied = placeholder.end;
  }
  rendered += text.substr(copied);
  Fingerprint hash = FingerprintOf(rendered);
  unit->headers.push_back(
      {file.name, std::make_shared<const std::string>(std::move(rendered)), hash, file.path});
  unit->files.push_back(std::move(original));
  return absl::OkStatus();
}

// The angled includes before the first code or other directive of `text`: they may move to the
// unit's head, nothing before them can change what they mean.
std::vector<std::string> LeadingIncludes(std::string_view text) {
  const std::string code = BlankNonCode(text);
  std::vector<std::string> names;
  for (size_t begin = 0; begin < code.size();) {
    size_t end = std::min(code.find('\n', begin), code.size());
    std::string_view line = std::string_view(code).substr(begin, end - begin);
    size_t first = line.find_first_not_of(" \t\r");
    if (first != line.npos) {
      bool once = line.find("#pragma once", first) == first;
      std::vector<IncludeDirective> includes = ScanIncludes(text.substr(begin, end - begin));
      if (!once && includes.empty()) break;
      for (IncludeDirective& include : includes)
        if (!include.quoted) names.push_back(std::move(include.name));
    }
    begin = end + 1;
  }
  return names;
}

void AddIncludes(const Variant& variant, Unit* unit) {
  std::set<std::string> seen;
  auto add = [&](const std::string& name) {
    // A bundle's own header may use the tunables, so it stays behind the prologue.
    if (unit->Header(name) == nullptr && seen.insert(name).second) {
      unit->text += "#include <" + name + ">\n";
    }
  };
  for (const SourceFile& source : variant.sources)
    for (const std::string& name : LeadingIncludes(*unit->Header(source.name)->content)) add(name);
  for (const std::string& name : TypeHeaders(variant.plan)) add(name);
}

void AddPrologue(const Config& constants, Unit* unit) {
  for (const auto& [name, value] : constants) {
    bool fits = value >= std::numeric_limits<int32_t>::min() + int64_t{1} &&
                value <= std::numeric_limits<int32_t>::max();
    unit->text += llvm::formatv("inline constexpr {0} {1} = {2}{3};\n", fits ? "int" : "long long",
                                name, value, fits ? "" : "LL")
                      .str();
  }
}

// An entry without arguments whose kernel is a template makes every compiler speak of what it made
// of the entry; this is what is wrong.
absl::Status CheckTemplateArguments(const Unit& unit, const KernelSpec& kernel) {
  if (kernel.entry.find('<') != std::string::npos) return absl::OkStatus();
  std::string where;
  for (const BundleFile& file : unit.files) {
    for (const KernelDefinition& found :
         FindKernels(*file.original, UnqualifiedName(kernel.entry))) {
      if (!found.is_template) return absl::OkStatus();
      where = file.name + ":" + std::to_string(found.name.line);
    }
  }
  if (where.empty()) return absl::OkStatus();
  return ErrorAt(absl::StatusCode::kInvalidArgument, kernel.file, kernel.line, 0,
                 "kernel '" + kernel.name + "': " + kernel.entry + " (" + where +
                     ") is a template, and the entry gives no arguments",
                 "write " + kernel.entry + "<...> in the manifest's `entry`; tunables of compile " +
                     "scope may be arguments");
}

absl::StatusOr<Config> Constants(const Variant& variant, const Config& config) {
  Config constants;
  for (const Tunable& tunable : variant.tunables) {
    if (tunable.scope == Scope::kLaunch) continue;
    auto it = config.find(tunable.name);
    if (it == config.end()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   "the config gives no value for tunable '" + tunable.name + "' of " + variant.op +
                       "/" + variant.name,
                   "assign every tunable that enters the source, as DefaultConfig does");
    }
    constants.insert(*it);
  }
  return constants;
}

}  // namespace

absl::StatusOr<Unit> RenderUnit(const OpSpec& op, const Variant& variant, const Config& config) {
  KVR_ASSIGN_OR_RETURN(const Config constants, Constants(variant, config));
  Unit unit;
  unit.name = variant.op + "/" + variant.name + " {" + ConfigText(constants) + "}";
  for (const auto* files : {&variant.sources, &variant.headers})
    for (const SourceFile& file : *files)
      KVR_RETURN_IF_ERROR(AddFile(variant, file, constants, &unit));
  KVR_RETURN_IF_ERROR(CheckFileReferences(unit));
  AddIncludes(variant, &unit);
  AddPrologue(constants, &unit);
  for (const SourceFile& source : variant.sources)
    unit.text += "#include \"" + source.name + "\"\n";
  for (const KernelSpec& kernel : variant.plan.kernels)
    KVR_RETURN_IF_ERROR(CheckTemplateArguments(unit, kernel));
  KVR_RETURN_IF_ERROR(AddSignatureChecks(op, variant, &unit));
  std::sort(unit.headers.begin(), unit.headers.end(),
            [](const UnitHeader& a, const UnitHeader& b) { return a.name < b.name; });
  return unit;
}

}  // namespace kvr
