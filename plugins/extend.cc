// SPDX-License-Identifier: Apache-2.0
#include "plugins/extend.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/files.h"

namespace kvr::bundle {
namespace {

template <typename T>
void Override(std::optional<T>* base, const std::optional<T>& stated) {
  if (stated) *base = stated;
}

std::string_view NameOf(const TunableEntry& entry) { return entry.tunable.name; }
std::string_view NameOf(const CubinEntry& entry) { return entry.target.value; }
template <typename Entry>
std::string_view NameOf(const Entry& entry) {
  return entry.name.value;
}

template <typename Entry>
auto FindNamed(std::vector<Entry>& entries, std::string_view name) {
  return std::find_if(entries.begin(), entries.end(),
                      [name](const Entry& entry) { return NameOf(entry) == name; });
}

template <typename Entry>
void ReplaceOrAppend(std::vector<Entry>* base, const std::vector<Entry>& stated) {
  for (const Entry& entry : stated) {
    if (auto found = FindNamed(*base, NameOf(entry)); found != base->end()) {
      *found = entry;
    } else {
      base->push_back(entry);
    }
  }
}

// A new value stated before a replaced one is most likely read by it, so it must precede it.
void MergeLets(std::vector<LetEntry>* base, const std::vector<LetEntry>& stated) {
  for (LetEntry& let : *base) let.inherited = true;
  std::vector<LetEntry> waiting;
  for (const LetEntry& let : stated) {
    auto found = FindNamed(*base, let.name.value);
    if (found == base->end()) {
      waiting.push_back(let);
      continue;
    }
    *found = let;
    base->insert(found, waiting.begin(), waiting.end());
    waiting.clear();
  }
  base->insert(base->end(), waiting.begin(), waiting.end());
}

void MergeRegions(std::vector<RegionEntry>* base, const std::vector<RegionEntry>& stated) {
  for (RegionEntry& region : *base) region.inherited = true;
  for (const RegionEntry& region : stated) {
    auto found = FindNamed(*base, region.name.value);
    if (found == base->end()) {
      base->push_back(region);
      continue;
    }
    found->name = region.name;
    found->inherited = false;
    Override(&found->dtype, region.dtype);
    Override(&found->elements, region.elements);
    Override(&found->zeroed, region.zeroed);
  }
}

void MergeTensorMaps(std::vector<TensorMapEntry>* base, const std::vector<TensorMapEntry>& stated) {
  for (TensorMapEntry& map : *base) map.inherited = true;
  for (const TensorMapEntry& map : stated) {
    auto found = FindNamed(*base, map.name.value);
    if (found == base->end()) {
      base->push_back(map);
      continue;
    }
    found->name = map.name;
    found->inherited = false;
    Override(&found->tensor, map.tensor);
    Override(&found->shape, map.shape);
    Override(&found->box, map.box);
    Override(&found->swizzle, map.swizzle);
  }
}

void MergeKernels(std::vector<KernelEntry>* base, const std::vector<KernelEntry>& stated) {
  for (const KernelEntry& kernel : stated) {
    auto found = FindNamed(*base, kernel.name.value);
    if (found == base->end()) {
      base->push_back(kernel);
      continue;
    }
    found->name = kernel.name;
    Override(&found->entry, kernel.entry);
    Override(&found->grid, kernel.grid);
    Override(&found->block, kernel.block);
    Override(&found->cluster, kernel.cluster);
    Override(&found->smem, kernel.smem);
    Override(&found->when, kernel.when);
    Override(&found->args, kernel.args);
    Override(&found->cooperative, kernel.cooperative);
    Override(&found->programmatic, kernel.programmatic);
  }
}

absl::Status CheckKinds(std::vector<FileEntry>& others, const std::vector<FileEntry>& stated,
                        std::string_view other_kind) {
  for (const FileEntry& file : stated) {
    if (FindNamed(others, file.name.value) == others.end()) continue;
    return Invalid(file.name.at,
                   StrCat("file '", file.name.value, "' is a ", other_kind,
                          " of the variant that this one extends"),
                   StrCat("list it as a ", other_kind, ", or give it another name"));
  }
  return absl::OkStatus();
}

// A child that says what is launched does not also launch what its parent does.
void DropOtherKinds(const Manifest& child, Manifest* merged) {
  const bool sources = !child.sources.empty(), cubins = !child.cubins.empty(),
             function = child.HasLaunchFunction();
  if (cubins || function) {
    merged->sources.clear();
    merged->headers.clear();
  }
  if (sources || function) merged->cubins.clear();
  if (sources || cubins) {
    merged->launch_function.reset();
    merged->launch_code = {};
  }
  if (function) {
    merged->kernels.clear();
    merged->tensor_maps.clear();
  }
  if (cubins) merged->targets.reset();
}

absl::Status CheckFunction(const Manifest& child, bool inherited, std::string_view kind,
                           std::string_view key) {
  if (!inherited || child.ParentOp() == child.op.value) return absl::OkStatus();
  return Invalid(child.extends->op->at,
                 StrCat("extends '", child.ParentName(), "', whose ", kind,
                        " function takes the axes and tensors of '", child.ParentOp(), "'"),
                 StrCat("state ", key, " here: for a function of your own, or for none"));
}

// What is called with axes and tensors by position is the op's.
absl::Status CheckFunctions(const Manifest& child, const Manifest& merged) {
  KVR_RETURN_IF_ERROR(CheckFunction(child, merged.HasPlanFunction() && !child.HasPlanFunction(),
                                    "plan", "plan_values"));
  KVR_RETURN_IF_ERROR(CheckFunction(child, merged.HasLaunchFunction() && !child.HasLaunchFunction(),
                                    "launch", "launch_function"));
  return CheckFunction(child, merged.HasReferenceFunction() && !child.HasReferenceFunction(),
                       "reference", "reference_function");
}

absl::Status CheckCount(size_t count, size_t limit, std::string_view kind, const Place& at) {
  if (count <= limit) return absl::OkStatus();
  return Invalid(at, StrCat("with the extended variant's, ", count, " ", kind),
                 StrCat("at most ", limit));
}

absl::Status CheckCounts(const Manifest& m) {
  KVR_RETURN_IF_ERROR(CheckCount(m.tunables.size(), kMaxTunables, "tunables", m.at));
  KVR_RETURN_IF_ERROR(CheckCount(m.lets.size(), kMaxLets, "let values", m.at));
  KVR_RETURN_IF_ERROR(CheckCount(m.regions.size(), kMaxRegions, "workspace regions", m.at));
  KVR_RETURN_IF_ERROR(CheckCount(m.tensor_maps.size(), kMaxTensorMaps, "tensor maps", m.at));
  KVR_RETURN_IF_ERROR(CheckCount(m.kernels.size(), kMaxKernels, "kernels", m.at));
  return CheckCount(m.sources.size() + m.headers.size(), kMaxBundleFiles, "files", m.at);
}

}  // namespace

absl::StatusOr<Manifest> Extend(const Manifest& parent, const Manifest& child) {
  Manifest merged = parent;
  merged.directory = child.directory;
  merged.plugin = child.plugin;
  merged.at = child.at;
  merged.op = child.op;
  merged.name = child.name;
  merged.version = child.version;
  merged.extends = child.extends;
  merged.baseline = child.baseline;
  merged.description = child.description;

  Override(&merged.semantics, child.semantics);
  Override(&merged.key_policy, child.key_policy);
  Override(&merged.constraints, child.constraints);
  DropOtherKinds(child, &merged);
  if (child.targets || !child.cubins.empty()) {
    // The parent's reason speaks of the parent's targets.
    if (child.targets) merged.targets = child.targets;
    merged.host_skip_reason.reset();
  }
  Override(&merged.host_skip_reason, child.host_skip_reason);

  if (child.plan_values) {
    merged.plan_values = child.plan_values;
    merged.plan_code = child.plan_code;
  }
  if (child.launch_function) {
    merged.launch_function = child.launch_function;
    merged.launch_code = child.launch_code;
  }
  const bool turns_exact = child.semantics && child.semantics->value == "exact";
  if (child.reference_function || turns_exact) {
    merged.reference_function = child.reference_function;
    merged.reference_code = child.reference_code;
  }
  KVR_RETURN_IF_ERROR(CheckFunctions(child, merged));
  for (TunableEntry& tunable : merged.tunables) tunable.inherited = true;
  ReplaceOrAppend(&merged.tunables, child.tunables);
  MergeLets(&merged.lets, child.lets);
  MergeRegions(&merged.regions, child.regions);
  MergeTensorMaps(&merged.tensor_maps, child.tensor_maps);
  MergeKernels(&merged.kernels, child.kernels);

  KVR_RETURN_IF_ERROR(CheckKinds(merged.headers, child.sources, "header"));
  KVR_RETURN_IF_ERROR(CheckKinds(merged.sources, child.headers, "source"));
  ReplaceOrAppend(&merged.sources, child.sources);
  ReplaceOrAppend(&merged.headers, child.headers);
  ReplaceOrAppend(&merged.cubins, child.cubins);
  KVR_RETURN_IF_ERROR(CheckCounts(merged));
  return merged;
}

}  // namespace kvr::bundle
