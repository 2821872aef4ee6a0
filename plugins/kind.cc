// SPDX-License-Identifier: Apache-2.0
#include "plugins/kind.h"

#include <algorithm>

#include "core/status.h"
#include "core/strings.h"
#include "core/variant.h"
#include "plugins/cubin.h"
#include "plugins/library.h"

namespace kvr::bundle {
namespace {

absl::Status CheckComplete(const Manifest& m) {
  auto missing = [&](std::string_view key, std::string_view example) {
    return Invalid(m.at, StrCat("key '", key, "' is missing"), StrCat("state ", example));
  };
  const Flag* function = m.HasLaunchFunction() ? &*m.launch_function : nullptr;
  if (!m.semantics) return missing("semantics", "semantics = \"exact\" or \"approximate\"");
  if (!m.targets && m.cubins.empty()) {
    return missing("targets", "targets = [\"sm_80+\", \"host\"]");
  }
  if (m.sources.empty() && m.cubins.empty() && function == nullptr) {
    return missing("sources",
                   "sources = [\"kernel.cu\"], cubins = {...} or launch_function = true");
  }
  if (m.kernels.empty() && function == nullptr) {
    return missing("kernel", "at least one [[kernel]]");
  }
  return absl::OkStatus();
}

// Sources, cubins or a launch function, and what does not go with the one.
absl::Status CheckOneKind(const Manifest& m) {
  const bool function = m.HasLaunchFunction(), cubins = !m.cubins.empty();
  const auto beside = [&](std::string_view what, const Place& at) {
    return Invalid(at, StrCat(what, " beside ", cubins ? "cubins" : "launch_function = true"),
                   "state one of sources, cubins and launch_function, and what belongs to it");
  };
  if (function && cubins) return beside("launch_function", m.launch_function->at);
  if (!function && !cubins) return absl::OkStatus();
  if (!m.sources.empty()) return beside("sources", m.sources[0].name.at);
  if (!m.headers.empty()) return beside("headers", m.headers[0].name.at);
  if (function && !m.kernels.empty()) return beside("[[kernel]]", m.kernels[0].name.at);
  if (function && !m.tensor_maps.empty()) {
    return beside("[[tensor_map]]", m.tensor_maps[0].name.at);
  }
  for (const TunableEntry& entry : m.tunables) {
    if (entry.tunable.scope != Scope::kCompile) continue;
    return Invalid(
        entry.at,
        StrCat("tunable '", entry.tunable.name, "' has scope compile beside ",
               cubins ? "cubins" : "launch_function = true", ", and there is nothing to compile"),
        "state scope = \"launch\", or remove it");
  }
  return absl::OkStatus();
}

absl::Status CheckCode(const CodeEntry& code, std::string_view key, const Place& at) {
  if (code.library == nullptr) {
    return Invalid(at, StrCat(key, " needs code, and a bundle runs none"),
                   "wrap the bundle with kvr_add_plugin(), or do without");
  }
  if (!code.library->section().has_code) {
    return Invalid(at,
                   StrCat(key, " needs code, and the library defines no exported kvr_plugin_v1"),
                   "define it in its sources, with KVR_EXPORT before it");
  }
  return absl::OkStatus();
}

absl::Status CheckCode(const Manifest& m) {
  if (m.HasPlanFunction()) {
    KVR_RETURN_IF_ERROR(CheckCode(m.plan_code, "plan_values", m.plan_values->front().at));
  }
  if (m.HasLaunchFunction()) {
    KVR_RETURN_IF_ERROR(CheckCode(m.launch_code, "launch_function", m.launch_function->at));
  }
  if (m.HasReferenceFunction()) {
    KVR_RETURN_IF_ERROR(
        CheckCode(m.reference_code, "reference_function", m.reference_function->at));
  }
  return absl::OkStatus();
}

absl::Status CheckSemantics(const Manifest& m) {
  const bool approximate = m.semantics->value == "approximate";
  if (approximate && m.baseline && m.baseline->value) {
    return Invalid(m.baseline->at, "an approximate variant cannot be the baseline",
                   "state baseline = false: the baseline is what every miss falls back to");
  }
  if (approximate && !m.HasReferenceFunction()) {
    return Invalid(m.semantics->at,
                   "approximate, and no reference function says what it computes: nothing could "
                   "tell whether it is right",
                   "state reference_function = true and give the function in a compiled plugin, "
                   "or extend a variant that has one");
  }
  if (!approximate && m.HasReferenceFunction()) {
    return Invalid(m.reference_function->at,
                   "reference_function beside semantics = \"exact\": an exact variant is held to "
                   "the operation's reference",
                   "remove it, or state semantics = \"approximate\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKind(const Manifest& m) {
  KVR_RETURN_IF_ERROR(CheckComplete(m));
  KVR_RETURN_IF_ERROR(CheckOneKind(m));
  KVR_RETURN_IF_ERROR(CheckCode(m));
  return CheckSemantics(m);
}

absl::StatusOr<std::vector<std::string>> CubinTargets(const Manifest& m) {
  std::vector<std::string> targets;
  for (const CubinEntry& cubin : m.cubins) {
    const std::string& target = cubin.target.value;
    if (absl::Status status = ParseTargets(target).status(); !status.ok()) {
      return At(cubin.target.at, status);
    }
    if (target == "host") {
      return Invalid(cubin.target.at, "cubins has no 'host'", "state sources for the host device");
    }
    KVR_RETURN_IF_ERROR(CheckCubin(cubin, m.kernels));
    targets.push_back(target);
  }
  if (!m.targets) return targets;
  std::vector<std::string> stated;
  for (const Text& text : *m.targets) stated.push_back(text.value);
  std::sort(stated.begin(), stated.end());
  std::vector<std::string> sorted = targets;
  std::sort(sorted.begin(), sorted.end());
  if (stated == sorted) return targets;
  return Invalid(
      m.targets->empty() ? m.at : m.targets->front().at,
      StrCat("targets are ", StrJoin(stated, ", "), ", and cubins are for ", StrJoin(sorted, ", ")),
      "leave targets out: cubins say them");
}

}  // namespace kvr::bundle
