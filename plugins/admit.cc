// SPDX-License-Identifier: Apache-2.0
#include "plugins/admit.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/key_policy.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/code.h"
#include "plugins/kind.h"
#include "plugins/plan_builder.h"
#include "plugins/usage.h"

namespace kvr::bundle {
namespace {

constexpr size_t kMaxEntryBytes = 512;

absl::StatusOr<Semantics> ParseSemantics(const Text& text) {
  if (text.value == "exact") return Semantics::kExact;
  if (text.value == "approximate") return Semantics::kApproximate;
  constexpr std::string_view kLegal[] = {"exact", "approximate"};
  return At(text.at, UnknownName("semantics", text.value, kLegal));
}

absl::StatusOr<std::vector<std::string>> CheckTargets(const std::vector<Text>& texts,
                                                      const Place& at) {
  std::vector<std::string> targets;
  for (const Text& text : texts) {
    const std::string& pattern = text.value;
    bool known = false;
    for (std::string_view target : KnownTargets()) known |= TargetMatches(pattern, target);
    if (!known) {
      // ParseTargets knows the habits ("sm_90") and names the fix.
      absl::Status status = ParseTargets(pattern).status();
      if (status.ok() || pattern.ends_with('+')) {
        status =
            Error(absl::StatusCode::kInvalidArgument,
                  StrCat("target ", Quoted(pattern), " matches no target that kvr compiles for"),
                  StrCat("known: ", StrJoin(KnownTargets(), ", "),
                         "; \"sm_80+\" matches every one from sm_80"));
      }
      return At(text.at, status);
    }
    if (std::find(targets.begin(), targets.end(), pattern) != targets.end()) {
      return Invalid(text.at, StrCat("target '", pattern, "' is stated twice"),
                     "state each target once");
    }
    targets.push_back(pattern);
  }
  if (targets.empty()) {
    return Invalid(at, "targets is empty", "state targets = [\"sm_80+\", \"host\"]");
  }
  return targets;
}

absl::Status CheckHost(const Manifest& m, const std::vector<std::string>& targets) {
  const bool host = std::find(targets.begin(), targets.end(), "host") != targets.end();
  if (host && m.host_skip_reason) {
    return Invalid(m.host_skip_reason->at, "host_skip_reason is given, but 'host' is a target",
                   "remove one of the two");
  }
  if (host && !m.tensor_maps.empty()) {
    return Invalid(m.tensor_maps[0].name.at, "a tensor map, but 'host' is a target and has none",
                   "leave \"host\" out, with host_skip_reason = \"uses TMA\"");
  }
  if (!m.cubins.empty()) return absl::OkStatus();  // their list says it
  if (!host && (!m.host_skip_reason || m.host_skip_reason->value.empty())) {
    return Invalid(m.targets->empty() ? m.at : m.targets->front().at,
                   "'host' is not among the targets and host_skip_reason is missing",
                   "add \"host\", or say why not: host_skip_reason = \"uses wgmma\"");
  }
  return absl::OkStatus();
}

absl::Status CheckTunableNames(const std::vector<TunableEntry>& tunables, const OpSpec& op) {
  for (const TunableEntry& entry : tunables) {
    if (op.AxisIndex(entry.tunable.name) < 0) continue;
    return Invalid(entry.at, StrCat("tunable '", entry.tunable.name, "' has an axis's name"),
                   "give it a name of its own");
  }
  return absl::OkStatus();
}

// Where a tunable is read decides whether its scope can be right.
absl::Status CheckUse(const TunableEntry& entry, const Usage& usage) {
  const std::string& name = entry.tunable.name;
  const bool planned = usage.plan.count(name) > 0;
  const bool entered = usage.entries.count(name) > 0;
  const bool sourced = usage.sources.count(name) > 0;
  if (entry.tunable.scope != Scope::kLaunch) {
    if (planned || entered || sourced) return absl::OkStatus();
    return Invalid(entry.at,
                   StrCat("tunable '", name,
                          "' is used nowhere: in no source, no entry "
                          "and no expression"),
                   "use it or remove it");
  }
  if (entered) {
    return Invalid(entry.at,
                   StrCat("tunable '", name,
                          "' has scope launch, but a kernel's entry "
                          "names it"),
                   "state scope = \"compile\"");
  }
  if (planned) return absl::OkStatus();
  return Invalid(entry.at,
                 StrCat("tunable '", name,
                        "' has scope launch, but no expression of the plan uses "
                        "it"),
                 sourced ? "state scope = \"compile\": the source uses it" : "use it or remove it");
}

absl::StatusOr<std::vector<Tunable>> AdmitTunables(const Manifest& m, const OpSpec& op,
                                                   const Usage& usage, Semantics semantics) {
  KVR_RETURN_IF_ERROR(CheckTunableNames(m.tunables, op));
  std::vector<Tunable> tunables;
  int64_t configs = 1;
  for (const TunableEntry& entry : m.tunables) {
    const Tunable& tunable = entry.tunable;
    const absl::Status use = CheckUse(entry, usage);
    // A child that replaces the only user of its parent's tunable has no way to take it out.
    const bool unused = usage.plan.count(tunable.name) + usage.entries.count(tunable.name) +
                            usage.sources.count(tunable.name) ==
                        0;
    // A reference function reads the values by their order, so none may go.
    if (entry.inherited && unused && !m.HasReferenceFunction()) continue;
    if (!entry.inherited || !unused) KVR_RETURN_IF_ERROR(use);
    if (tunable.scope == Scope::kQuality && semantics == Semantics::kExact) {
      return Invalid(entry.at,
                     StrCat("tunable '", tunable.name,
                            "' has scope quality, but the "
                            "variant says it is exact"),
                     "state semantics = \"approximate\", or another scope");
    }
    if (tunable.scope != Scope::kQuality) configs *= static_cast<int64_t>(tunable.values.size());
    if (configs > kMaxConfigs) {
      return Invalid(entry.at, StrCat("the tunables span more than ", kMaxConfigs, " configs"),
                     "leave out values, or split the variant in two");
    }
    tunables.push_back(tunable);
  }
  return tunables;
}

// A name expression becomes generated code: letters, digits and the punctuation of template
// arguments, brackets balanced.
bool IsNameExpression(std::string_view text) {
  if (text.empty() || text.size() > kMaxEntryBytes) return false;
  if (!IsIdentifier(text.substr(0, 1))) return false;
  std::string open;
  for (char c : text) {
    if (c == '<' || c == '(') open.push_back(c);
    if (c == '>' || c == ')') {
      if (open.empty() || open.back() != (c == '>' ? '<' : '(')) return false;
      open.pop_back();
    }
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("_:<>(), *&+-").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return open.empty() && text.back() != ' ';
}

absl::Status CheckEntry(const KernelEntry& kernel, const Usage& usage,
                        const std::vector<Tunable>& tunables) {
  const Text& entry = *kernel.entry;
  if (!IsNameExpression(entry.value)) {
    return Invalid(entry.at,
                   StrCat("kernel '", kernel.name.value, "': entry ", Quoted(entry.value),
                          " is not a C++ name expression"),
                   "give the kernel's name with its template arguments, as in \"split<BLOCK, 4>\"");
  }
  std::string_view function = entry.value;
  function = function.substr(0, function.find_first_of("<("));
  if (const size_t scope = function.rfind("::"); scope != std::string_view::npos) {
    function.remove_prefix(scope + 2);
  }
  function = Trim(function);
  std::vector<std::string_view> known;
  if (usage.sources.count(function) == 0) {
    known.assign(usage.sources.begin(), usage.sources.end());
    const std::string_view near = Nearest(function, known);
    return Invalid(entry.at,
                   StrCat("kernel '", kernel.name.value, "': entry names ", Quoted(function),
                          ", which no source of the bundle mentions"),
                   near.empty() ? std::string("declare it as a __global__ function")
                                : StrCat("did you mean '", near, "'?"));
  }
  // Constants written in capitals are meant to be tunables or constants of the source.
  Names names;
  AddNames(entry.value, &names);
  for (const std::string& name : names) {
    const bool upper = std::none_of(name.begin(), name.end(),
                                    [](unsigned char c) { return absl::ascii_islower(c); });
    if (!upper || usage.sources.count(name) > 0) continue;
    known.clear();
    for (const Tunable& tunable : tunables) known.push_back(tunable.name);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return Invalid(entry.at,
                   StrCat("kernel '", kernel.name.value, "': entry uses ", Quoted(name),
                          ", which is neither a tunable nor in a source"),
                   SuggestNames(name, known));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckKeyPolicy(const std::optional<Text>& text, const OpSpec& op) {
  if (!text) return std::string();
  absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(text->value, op);
  if (!policy.ok()) return At(text->at, WithContext("key_policy", policy.status()));
  return policy->text();
}

SourceFile ToSource(const FileEntry& file) { return {file.name.value, file.content, file.path}; }

std::vector<SourceFile> ToSources(const std::vector<FileEntry>& files) {
  std::vector<SourceFile> sources;
  for (const FileEntry& file : files) sources.push_back(ToSource(file));
  return sources;
}

}  // namespace

absl::StatusOr<Variant> Admit(Manifest m, const OpSpec& op) {
  KVR_RETURN_IF_ERROR(CheckKind(m));
  DropUnused(&m);
  Variant v;
  v.op = m.op.value;
  v.name = m.name.value;
  v.version = m.version.value;
  v.description = m.description ? m.description->value : "";
  v.extends = m.extends ? m.ParentName() : "";
  v.is_baseline = m.baseline && m.baseline->value;
  v.directory = m.directory;
  v.plugin = m.plugin;

  KVR_ASSIGN_OR_RETURN(v.semantics, ParseSemantics(*m.semantics));
  KVR_ASSIGN_OR_RETURN(v.targets,
                       m.cubins.empty() ? CheckTargets(*m.targets, m.at) : CubinTargets(m));
  KVR_RETURN_IF_ERROR(CheckHost(m, v.targets));
  if (m.host_skip_reason) v.host_skip_reason = m.host_skip_reason->value;
  if (!m.cubins.empty() && v.host_skip_reason.empty()) {
    v.host_skip_reason = "prebuilt for GPUs only";
  }
  KVR_ASSIGN_OR_RETURN(v.key_policy, CheckKeyPolicy(m.key_policy, op));

  const Usage usage = UsageOf(m);
  KVR_ASSIGN_OR_RETURN(v.tunables, AdmitTunables(m, op, usage, v.semantics));
  KVR_ASSIGN_OR_RETURN(v.plan, BuildPlan(m, op, v.tunables));
  KVR_RETURN_IF_ERROR(CheckUnused(m));  // after BuildPlan, which tells a misspelt name
  for (const KernelEntry& kernel : m.kernels) {
    if (m.cubins.empty()) KVR_RETURN_IF_ERROR(CheckEntry(kernel, usage, v.tunables));
  }
  v.sources = ToSources(m.sources);
  v.headers = ToSources(m.headers);
  for (const CubinEntry& cubin : m.cubins) {
    v.cubins.push_back({cubin.target.value, ToSource(cubin.file)});
  }
  v.has_launch_function = m.HasLaunchFunction();
  v.has_reference_function = m.HasReferenceFunction();
  if (m.HasPlanFunction() || v.has_launch_function || v.has_reference_function) {
    v.code = MakeVariantCode(op, v.tunables, m.plan_code, m.launch_code, m.reference_code);
  }
  if (m.HasPlanFunction()) v.plan.function = v.code;
  v.fingerprint = FingerprintVariant(v, {&m.plan_code, &m.launch_code, &m.reference_code});
  return v;
}

}  // namespace kvr::bundle
