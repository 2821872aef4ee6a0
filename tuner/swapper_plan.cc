// SPDX-License-Identifier: Apache-2.0
//
// What a swap selects: from a request to the next generation and the keys that it changes.
#include <algorithm>
#include <optional>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/roots.h"
#include "registry/overrides.h"
#include "registry/selection_file.h"
#include "tuner/contest.h"
#include "tuner/swapper_impl.h"
#include "tuner/worker/try_plugin.h"

namespace kvr {
namespace {

bool SameCode(const Candidate& a, const Candidate& b) {
  return a.variant != nullptr && b.variant != nullptr && a.variant->name == b.variant->name &&
         a.variant->fingerprint == b.variant->fingerprint && a.config == b.config;
}

const KeyPolicy& PolicyIn(const Generation& generation, const Catalog::Op& op) {
  const Generation::Op* found = generation.FindOp(op.name());
  return found != nullptr ? found->policy : op.policy;
}

// The values of `old`, where `now` still has them; what was at its default follows the new one.
Config Carried(const Config& config, const Variant& old, const Variant& now) {
  const Config defaults = DefaultConfig(old.tunables);
  Config carried = DefaultConfig(now.tunables);
  for (const Tunable& tunable : now.tunables) {
    const auto was = config.find(tunable.name);
    if (was == config.end()) continue;
    const auto default_was = defaults.find(tunable.name);
    // What changes results stays what its caller opted in to.
    const bool searched = tunable.scope != Scope::kQuality;
    if (searched && default_was != defaults.end() && default_was->second == was->second) continue;
    const auto& legal = tunable.values;
    if (std::find(legal.begin(), legal.end(), was->second) != legal.end()) {
      carried[tunable.name] = was->second;
    }
  }
  return carried;
}

// A refusal for want of consent, as a swap meets it: no request can give it.
absl::Status OnlyTheProgramCan(const absl::Status& refused, std::string_view what) {
  return Error(refused.code(), what,
               "only its own options (approximate) can; a swap's --approximate states values");
}

}  // namespace

std::string SwapChange::Text() const {
  return StrCat(op->name(), " {", AxesText(key), "}: ", ContestantText(after));
}

absl::Status SwapPlan::MakeNext() {
  for (const Selected& s : selected) {
    KVR_RETURN_IF_ERROR(builder.Select(s.op, s.key, s.selection));
  }
  next = builder.Build(number);
  return absl::OkStatus();
}

absl::StatusOr<SwapPlan> Swapper::Impl::PlanOf(const SwapRequest& request) {
  SwapPlan plan(dispatcher.generation());
  // Unlike that of any generation that can be had back: after a rollback the current one is no
  // measure.
  plan.number = plan.base->number() + 1;
  for (const GenerationPtr& kept : dispatcher.history()) {
    plan.number = std::max(plan.number, kept->number() + 1);
  }
  if (!request.selection_file.empty()) {
    KVR_RETURN_IF_ERROR(PlanSelectionFile(request.selection_file, plan));
  } else if (!request.bundle.empty()) {
    KVR_RETURN_IF_ERROR(PlanBundle(request.bundle, plan));
  } else if (!request.rollback.empty()) {
    KVR_RETURN_IF_ERROR(PlanOlder(request.rollback, plan));
  } else {
    KVR_RETURN_IF_ERROR(PlanVariant(request, plan));
  }
  KVR_RETURN_IF_ERROR(plan.MakeNext());
  KVR_RETURN_IF_ERROR(FindChanges(plan));
  return plan;
}

absl::Status Swapper::Impl::PlanVariant(const SwapRequest& request, SwapPlan& plan) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, dispatcher.catalog().FindOp(request.op));
  KVR_ASSIGN_OR_RETURN(const ContestantParts parts, SplitContestant(request.variant));
  KVR_ASSIGN_OR_RETURN(const VariantPtr variant, FindVariant(op->name(), parts.variant));
  Selection selection{.variant = variant};
  KVR_ASSIGN_OR_RETURN(selection.config, ConfigWith(*variant, parts.config));
  const DispatcherOptions& opened = dispatcher.options();
  if (const Overrides::ForOp* forced = opened.overrides.Find(op->name());
      forced != nullptr && !forced->variant.empty()) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat(forced->variant_source, " forces ", op->name(), " to '", forced->variant, "'"),
        "start without it: nothing that is selected serves as long as it holds");
  }
  // What changes results is the program's own word: where the request leaves it out, that holds.
  Config named;
  if (!parts.config.empty()) {
    KVR_ASSIGN_OR_RETURN(named, ParseConfig(parts.config, variant->tunables));
  }
  if (const ApproximateOptIn* opt_in = FindOptIn(opened.approximate, *variant)) {
    for (const auto& [name, value] : opt_in->quality) {
      if (named.count(name) == 0) selection.config[name] = value;
    }
  }
  if (const absl::Status refused = CheckConsent(opened.approximate, *variant, selection.config);
      !refused.ok()) {
    return OnlyTheProgramCan(
        refused, StrCat("the program did not opt in to '",
                        OptInText(OptInFor(*variant, selection.config)), "': ", What(refused)));
  }

  const KeyPolicy& policy = PolicyIn(*plan.base, *op);
  std::vector<BucketedKey> wanted;
  for (const Axes& axes : request.keys) {
    KVR_ASSIGN_OR_RETURN(const AxisVector resolved, ResolveAxes(op->spec(), axes));
    wanted.push_back(policy.Bucket(resolved));
    plan.shapes.emplace_back(op, NamedAxes(op->spec(), policy.Representative(resolved)));
  }
  std::map<Axes, ServedInfo> loaded;
  for (ServedInfo& served : dispatcher.served()) {
    if (served.op == op->name()) loaded.emplace(served.key, std::move(served));
  }
  for (const BucketedKey& key : wanted) {
    if (!dispatcher.frozen() || loaded.count(policy.Named(key)) > 0) continue;
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(op->name(), " {", AxesText(policy.Named(key)),
                        "} is not loaded and the registry is frozen: nothing could launch it"),
                 "name keys that are loaded, as `kvr status` lists them");
  }
  if (request.keys.empty()) {
    for (const auto& [key, served] : loaded) {
      KVR_ASSIGN_OR_RETURN(wanted.emplace_back(), policy.FromNamed(key));
    }
  }
  if (wanted.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("nothing of ", op->name(), " is loaded"),
                 "Load it first, or name the keys to swap");
  }
  // A generation that speaks of an op speaks of all its keys: what is silent now stays as it is.
  if (plan.base->FindOp(op->name()) == nullptr) {
    plan.builder.SetPolicy(op->name(), policy);
    for (const auto& [key, served] : loaded) {
      if (op->baseline == nullptr) break;
      Selection stays{.variant = op->baseline, .config = DefaultConfig(op->baseline->tunables)};
      if (served.fingerprint == op->baseline->fingerprint && served.config == stays.config) {
        stays.binary = served.binary;
      }
      KVR_ASSIGN_OR_RETURN(const BucketedKey bucketed, policy.FromNamed(key));
      plan.selected.push_back({op->name(), bucketed, std::move(stays)});
    }
  }
  for (const BucketedKey& key : wanted) {
    const Selection* now = plan.base->Find(op->name(), key);
    if (now != nullptr && SameCode({now->variant, now->config}, {variant, selection.config})) {
      continue;
    }
    plan.selected.push_back({op->name(), key, selection});
  }
  return absl::OkStatus();
}

absl::Status Swapper::Impl::PlanSelectionFile(const std::string& path, SwapPlan& plan) {
  const DeviceInfo& device = dispatcher.device().info();
  KVR_ASSIGN_OR_RETURN(const SelectionContent content, ReadSelectionContent(path));
  KVR_ASSIGN_OR_RETURN(const LoadedSelections loaded,
                       ResolveSelections(content, path, dispatcher.catalog(), device));
  plan.builder = GenerationBuilder(*loaded.generation);
  plan.misfits_fall_back = true;
  // What was measured is not what the catalog has: perhaps it was edited, tuned and is on disk.
  for (const DroppedSelection& dropped : loaded.dropped) {
    const std::string place =
        StrCat(path, ": ", dropped.op, " {", AxesText(dropped.key), "} -> ", dropped.variant);
    const absl::StatusOr<const Catalog::Op*> op = dispatcher.catalog().FindOp(dropped.op);
    if (!op.ok()) {
      plan.notes.push_back(StrCat(place, " is left out: ", dropped.reason));
      continue;
    }
    const StoredSelection& stored = content.ops.at(dropped.op).by_key.at(dropped.key);
    const absl::StatusOr<VariantPtr> variant =
        FindMeasured(dropped.op, dropped.variant, stored.variant_fingerprint, plan);
    if (!variant.ok() || (*variant)->version != stored.version) {
      return Error(absl::StatusCode::kFailedPrecondition, StrCat(place, ": ", dropped.reason),
                   "tune what is here, or bring the variant that was measured");
    }
    KVR_ASSIGN_OR_RETURN(const KeyPolicy policy,
                         KeyPolicy::Parse(content.ops.at(dropped.op).key_policy, (*op)->spec()));
    KVR_ASSIGN_OR_RETURN(const BucketedKey key, policy.FromNamed(dropped.key));
    plan.selected.push_back({dropped.op,
                             key,
                             {.variant = *variant,
                              .config = stored.config,
                              .binary = stored.binary,
                              .evidence = stored.evidence}});
  }
  return absl::OkStatus();
}

absl::Status Swapper::Impl::PlanBundle(const std::string& place, SwapPlan& plan) {
  jit.Reload();  // what failed to compile before may do so no longer
  KVR_ASSIGN_OR_RETURN(const Rescanned rescanned, Rescan(place));
  for (const VariantPtr& variant : rescanned.brought) plan.adopted.push_back({variant, place});
  for (const VariantPtr& child : rescanned.children) {
    plan.adopted.push_back({child, PlaceOf(*child)});
  }
  for (const auto& [variant, from] : plan.adopted) {
    const Generation::Op* selections = plan.base->FindOp(variant->op);
    bool selected = false;
    if (selections != nullptr) {
      for (const auto& [key, old] : selections->selections) {
        if (old.variant->name != variant->name) continue;
        selected = true;
        Selection next{.variant = variant, .config = Carried(old.config, *old.variant, *variant)};
        if (variant->fingerprint == old.variant->fingerprint && next.config == old.config) {
          next.binary = old.binary;
          next.evidence = old.evidence;
        }
        plan.selected.push_back({variant->op, key, std::move(next)});
      }
    }
    if (!selected) {
      plan.notes.push_back(StrCat(variant->op, "/", variant->name,
                                  " is selected for no key; from now on its name means this one"));
    }
  }
  return absl::OkStatus();
}

absl::Status Swapper::Impl::PlanOlder(const std::string& digest, SwapPlan& plan) {
  for (const GenerationPtr& generation : older) {
    if (!generation->digest().Hex().starts_with(digest)) continue;
    plan.builder = GenerationBuilder(*generation);
    plan.misfits_fall_back = plan.served_before = true;
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kNotFound, StrCat("no generation of digest ", digest, " is known"),
               "publish it from its selection file");
}

absl::Status Swapper::Impl::FindChanges(SwapPlan& plan) {
  const DispatcherOptions& opened = dispatcher.options();
  std::vector<std::pair<const Catalog::Op*, Axes>> shapes = plan.shapes;
  for (ServedInfo& served : dispatcher.served()) {
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, dispatcher.catalog().FindOp(served.op));
    for (Axes& axes : served.shapes) shapes.emplace_back(op, std::move(axes));
  }
  for (const auto& [op, axes] : shapes) {
    KVR_ASSIGN_OR_RETURN(const AxisVector resolved, ResolveAxes(op->spec(), axes));
    const auto choose = [&](const Generation& generation) {
      const Selection* selected =
          generation.Find(op->name(), PolicyIn(generation, *op).Bucket(resolved));
      return Choose(*op, selected, opened.overrides, opened.approximate);
    };
    const KeyPolicy& policy = PolicyIn(*plan.next, *op);
    const Axes key = policy.Named(policy.Bucket(resolved));
    const absl::StatusOr<Choice> before = choose(*plan.base);
    const absl::StatusOr<Choice> after = choose(*plan.next);
    if (!after.ok()) {
      if (before.status() == after.status()) continue;  // it was no better before
      return WithContext(StrCat(op->name(), " {", AxesText(key), "}"), after.status());
    }
    if (!after->refused.ok()) {
      const std::string at = StrCat(op->name(), " {", AxesText(key), "}");
      // A generation that has served does so again as it did; nothing new comes without consent.
      const bool before_too = before.ok() && before->refused == after->refused;
      if (!before_too && !plan.served_before) {
        if (absl::IsInvalidArgument(after->refused)) return WithContext(at, after->refused);
        return OnlyTheProgramCan(
            after->refused,
            StrCat(at, ": the program did not opt in to it: ", What(after->refused)));
      }
      if (!before_too) plan.notes.push_back(StrCat(at, " is served by the ", after->why));
    }
    Candidate was;
    if (before.ok()) was = {before->selection.variant, before->selection.config};
    const Candidate now{after->selection.variant, after->selection.config};
    const Fingerprint& measured = after->selection.binary;
    const bool same_binary = measured == Fingerprint{} || !before.ok() ||
                             before->selection.binary == Fingerprint{} ||
                             before->selection.binary == measured;
    if (SameCode(was, now) && same_binary) continue;
    const auto known =
        std::find_if(plan.changes.begin(), plan.changes.end(), [&](const SwapChange& change) {
          return change.op == op && change.key == key && change.before == was &&
                 change.after == now && change.measured == measured;
        });
    SwapChange& change = known != plan.changes.end() ? *known : plan.changes.emplace_back();
    change.op = op;
    change.key = key;
    change.before = was;
    change.after = now;
    change.measured = measured;
    if (std::find(change.shapes.begin(), change.shapes.end(), axes) == change.shapes.end()) {
      change.shapes.push_back(axes);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<VariantPtr> Swapper::Impl::FindVariant(std::string_view op, std::string_view name) {
  const auto found = adopted.find({std::string(op), std::string(name)});
  if (found != adopted.end()) return found->second.variant;
  return dispatcher.catalog().Find(op, name);
}

absl::StatusOr<VariantPtr> Swapper::Impl::FindMeasured(const std::string& op,
                                                       const std::string& name,
                                                       const Fingerprint& fingerprint,
                                                       SwapPlan& plan) {
  for (const Adopted& adopting : plan.adopted) {
    const Variant& variant = *adopting.variant;
    if (variant.op == op && variant.name == name && variant.fingerprint == fingerprint) {
      return adopting.variant;
    }
  }
  KVR_ASSIGN_OR_RETURN(const VariantPtr known, FindVariant(op, name));
  if (known->fingerprint == fingerprint) return known;
  const std::string place = PlaceOf(*known);
  KVR_ASSIGN_OR_RETURN(const Rescanned rescanned, Rescan(place));
  for (const VariantPtr& variant : rescanned.brought) {
    if (variant->op != op || variant->name != name) continue;
    if (variant->fingerprint != fingerprint) break;
    plan.adopted.push_back({variant, place});
    return variant;
  }
  return Error(absl::StatusCode::kNotFound, StrCat(place, " holds another one"),
               "bring the variant that was measured");
}

absl::StatusOr<Rescanned> Swapper::Impl::Rescan(const std::string& place) {
  RescanOptions rescan;
  for (const auto& [name, kept] : adopted) rescan.roots.push_back(kept.place);
  for (std::string& root : PluginRoots(options.plugin_roots)) {
    rescan.roots.push_back(std::move(root));
  }
  rescan.check_load = TryPlugin;
  rescan.still = [this](const Variant& parent) -> absl::Status {
    KVR_ASSIGN_OR_RETURN(const VariantPtr running, FindVariant(parent.op, parent.name));
    if (running->fingerprint == parent.fingerprint) return absl::OkStatus();
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(parent.directory, " has changed since it was scanned"),
                 "swap that one first");
  };
  return RescanPlace(place, dispatcher.catalog(), rescan);
}

}  // namespace kvr
