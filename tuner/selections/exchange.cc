// SPDX-License-Identifier: Apache-2.0
#include "tuner/selections/exchange.h"

#include <set>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/selection_file.h"
#include "tuner/selections/shipped.h"

namespace kvr {
namespace {

std::string Place(const std::string& op, const Axes& key) {
  return StrCat(op, " {", AxesText(key), "}");
}

std::string Named(const StoredSelection& selection) {
  return ConfigName(selection.variant, ConfigText(selection.config));
}

// The comparison that would ship it: at the shapes in question, on a device of that model.
std::string AbCommand(const Catalog::Op& op, const StoredSelection& selection,
                      const ShipProof& proof, const std::string& device_model,
                      std::string_view options) {
  Config differs = selection.config;  // what kvr ab is not told is at its default
  for (const VariantPtr& variant : op.variants) {
    if (variant->name != selection.variant) continue;
    for (const auto& [name, value] : DefaultConfig(variant->tunables)) {
      const auto it = differs.find(name);
      if (it != differs.end() && it->second == value) differs.erase(it);
    }
  }
  std::string command =
      StrCat("kvr ab ", op.name(), " --incumbent baseline --challenger '", selection.variant,
             differs.empty() ? "" : StrCat("{", ConfigText(differs), "}"), "' --ship");
  for (const Axes& shape : proof.shapes) {
    const std::string least = AxesText(LeastAxes(op.spec(), shape));
    // Without --axes the op's defaults are compared.
    if (!least.empty() || proof.shapes.size() > 1) {
      StrAppend(&command, " --axes ", least.empty() ? AxesText(shape) : least);
    }
  }
  // Which a GPU would be chosen before.
  if (device_model == "host" || device_model == "null") {
    StrAppend(&command, " --device ", device_model);
  }
  return StrCat(command, options.empty() ? "" : " ", options);
}

}  // namespace

absl::StatusOr<SelectionContent> ForTheFleet(SelectionContent content, const Catalog& catalog,
                                             const ledger::Ledger* ledger, bool unshipped,
                                             std::string_view ab_options) {
  std::string refused, example;
  int count = 0;
  const auto refuse = [&](const std::string& name, const Axes& key,
                          const StoredSelection& selection, std::string_view why) {
    StrAppend(&refused, count++ == 0 ? "" : "; ", Place(name, key), ": ", Named(selection), ", ",
              why);
  };
  for (auto& [name, stored] : content.ops) {
    const absl::StatusOr<const Catalog::Op*> op = catalog.FindOp(name);
    const absl::StatusOr<KeyPolicy> policy =
        op.ok() ? KeyPolicy::Parse(stored.key_policy, (*op)->spec())
                : absl::StatusOr<KeyPolicy>(op.status());
    std::vector<Placed<ledger::Verdict>> verdicts;
    std::vector<Placed<ledger::Trial>> trials;
    if (ledger != nullptr) {
      KVR_ASSIGN_OR_RETURN(verdicts,
                           PlacedRecords<ledger::Verdict>(*ledger, name, content.device_model));
      KVR_ASSIGN_OR_RETURN(trials,
                           PlacedRecords<ledger::Trial>(*ledger, name, content.device_model));
    }
    for (auto& [key, selection] : stored.by_key) {
      if (!policy.ok()) {
        refuse(name, key, selection, What(policy.status()));
        continue;
      }
      const ShipProof proof = ProofFor(**op, *policy, key, selection, verdicts, trials);
      if (!proof.shipped) {
        refuse(name, key, selection, proof.missing);
        if (example.empty()) {
          example = AbCommand(**op, selection, proof, content.device_model, ab_options);
        }
      }
      selection.evidence = proof.evidence;
    }
  }
  if (count == 0 || unshipped) return content;
  return Error(absl::StatusCode::kFailedPrecondition,
               StrCat(count == 1 ? "a selection has" : StrCat(count, " selections have"),
                      " no ship verdict: ", refused),
               example.empty() ? "export them with --unshipped"
                               : StrCat("run `", example, "`, or export them with --unshipped"));
}

absl::StatusOr<TakenOver> TakeOver(const SelectionContent* local, const SelectionContent& incoming,
                                   std::string_view origin, const Catalog& catalog,
                                   const DeviceInfo& device) {
  KVR_ASSIGN_OR_RETURN(const LoadedSelections loaded,
                       ResolveSelections(incoming, origin, catalog, device));
  std::string refused;
  const auto refuse = [&](std::string_view what) {
    StrAppend(&refused, refused.empty() ? "" : "; ", what);
  };
  for (const DroppedSelection& dropped : loaded.dropped) {
    refuse(StrCat(Place(dropped.op, dropped.key), ": ", dropped.reason));
  }
  TakenOver taken;
  if (local == nullptr) {
    taken.content.device_model = incoming.device_model;
    taken.content.target = incoming.target;
  } else {
    taken.content = *local;
    if (local->device_model != incoming.device_model || local->target != incoming.target) {
      refuse(StrCat("the local file is of ", local->device_model, " (", local->target, ")"));
    }
  }
  for (const auto& [name, op] : incoming.ops) {
    const bool known = taken.content.ops.count(name) > 0;
    SelectionContent::Op& here = taken.content.ops[name];
    if (known && here.key_policy != op.key_policy) {
      refuse(StrCat(name, " is keyed by '", op.key_policy, "', the local file keys it by '",
                    here.key_policy, "'"));
      continue;
    }
    here.key_policy = op.key_policy;
    for (const auto& [key, selection] : op.by_key) {
      const auto [at, added] = here.by_key.emplace(key, selection);
      if (added) {
        ++taken.added;
        continue;
      }
      StoredSelection& old = at->second;
      const bool same = old.variant == selection.variant && old.version == selection.version &&
                        old.variant_fingerprint == selection.variant_fingerprint &&
                        old.config == selection.config && old.binary == selection.binary;
      ++(same ? taken.unchanged : taken.replaced);
      old = selection;
    }
  }
  if (!refused.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(origin, " does not fit here: ", refused),
                 "bring what it was tuned with (--plugins, the same KVR), name another "
                 "--selections, or tune here; nothing was taken over");
  }
  ++taken.content.number;
  return taken;
}

std::vector<Difference> Differences(const SelectionContent& a, const SelectionContent& b) {
  std::vector<Difference> differences;
  const auto compare = [&](const std::string& op, const Axes& key, std::string_view field,
                           const std::string& in_a, const std::string& in_b) {
    if (in_a != in_b) differences.push_back({op, key, std::string(field), in_a, in_b});
  };
  compare("", {}, "device_model", a.device_model, b.device_model);
  compare("", {}, "target", a.target, b.target);
  std::set<std::string> ops;
  for (const SelectionContent* content : {&a, &b}) {
    for (const auto& [name, op] : content->ops) ops.insert(name);
  }
  static const SelectionContent::Op kNone;
  for (const std::string& name : ops) {
    const auto in_a = a.ops.find(name), in_b = b.ops.find(name);
    const SelectionContent::Op& op_a = in_a == a.ops.end() ? kNone : in_a->second;
    const SelectionContent::Op& op_b = in_b == b.ops.end() ? kNone : in_b->second;
    if (in_a == a.ops.end() || in_b == b.ops.end()) {
      compare(name, {}, "operation", in_a == a.ops.end() ? "" : name,
              in_b == b.ops.end() ? "" : name);
    } else {
      compare(name, {}, "key_policy", op_a.key_policy, op_b.key_policy);
    }
    std::set<Axes> keys;
    for (const SelectionContent::Op* op : {&op_a, &op_b}) {
      for (const auto& [key, selection] : op->by_key) keys.insert(key);
    }
    for (const Axes& key : keys) {
      const auto at_a = op_a.by_key.find(key), at_b = op_b.by_key.find(key);
      if (at_a == op_a.by_key.end() || at_b == op_b.by_key.end()) {
        compare(name, key, "selection", at_a == op_a.by_key.end() ? "" : Named(at_a->second),
                at_b == op_b.by_key.end() ? "" : Named(at_b->second));
        continue;
      }
      const StoredSelection &x = at_a->second, &y = at_b->second;
      compare(name, key, "variant", x.variant, y.variant);
      compare(name, key, "version", x.version, y.version);
      compare(name, key, "variant_fingerprint", x.variant_fingerprint.Hex(),
              y.variant_fingerprint.Hex());
      compare(name, key, "config", ConfigText(x.config), ConfigText(y.config));
      compare(name, key, "binary", x.binary.Hex(), y.binary.Hex());
    }
  }
  return differences;
}

}  // namespace kvr
