// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/entrants.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/opt_in.h"
#include "registry/selection_file.h"
#include "tuner/stated.h"

namespace kvr::bench {
namespace {

absl::StatusOr<VariantPtr> FindExact(const Catalog& catalog, const std::string& op,
                                     const std::string& name) {
  KVR_ASSIGN_OR_RETURN(VariantPtr variant, catalog.Find(op, name));
  if (variant->semantics == Semantics::kExact) return variant;
  return Error(absl::StatusCode::kInvalidArgument, StrCat("'", name, "' is approximate"),
               StrCat("opt in with its quality: --approximate '", name, "{...}'"));
}

}  // namespace

absl::StatusOr<EntrantList> EntrantList::Create(const Catalog& catalog, const Catalog::Op& op,
                                                const DeviceInfo& device,
                                                const EntrantOptions& options) {
  EntrantList list(op);
  list.race_ = options.race;
  for (const std::string& name : options.variants) {
    KVR_ASSIGN_OR_RETURN(VariantPtr variant, FindExact(catalog, op.name(), name));
    list.named_.push_back({std::move(variant), {}});
  }
  if (options.variants.empty()) {
    for (const VariantPtr& variant : op.variants) {
      if (variant->semantics == Semantics::kExact) list.named_.push_back({variant, {}});
    }
  }
  for (const std::string& text : options.approximate) {
    KVR_ASSIGN_OR_RETURN(ApproximateOptIn opt_in, ParseOptIn(text, op.name()));
    KVR_RETURN_IF_ERROR(CheckOptIns(catalog, {&opt_in, 1}));
    KVR_ASSIGN_OR_RETURN(VariantPtr variant, catalog.Find(op.name(), opt_in.variant));
    list.named_.push_back({std::move(variant), std::move(opt_in.quality)});
  }
  for (const std::string& path : options.selection_files) {
    KVR_ASSIGN_OR_RETURN(SelectionContent content, ReadSelectionContent(path));
    if (content.device_model != device.model) {
      return Error(
          absl::StatusCode::kInvalidArgument,
          StrCat(path, " is of ", content.device_model, ", the device is a ", device.model),
          "give a file that was tuned on such a device");
    }
    if (const auto found = content.ops.find(op.name()); found != content.ops.end()) {
      list.selections_.push_back(std::move(found->second));
    }
  }
  return list;
}

absl::Status EntrantList::CheckStated(const std::vector<AxisVector>& shapes) const {
  for (const Named& named : named_) {
    KVR_RETURN_IF_ERROR(kvr::CheckStated(op_->spec(), *named.variant, named.fixed, shapes));
  }
  return absl::OkStatus();
}

absl::StatusOr<EntrantList::AtShape> EntrantList::At(const Axes& axes) const {
  Axes given = axes;
  for (const AxisSpec& axis : op_->spec().axes) {
    if (axis.is_const) given.erase(axis.name);
  }
  KVR_ASSIGN_OR_RETURN(const AxisVector shape, ResolveAxes(op_->spec(), given));
  std::vector<const StoredSelection*> here;
  for (const SelectionContent::Op& selections : selections_) {
    KVR_ASSIGN_OR_RETURN(const KeyPolicy policy,
                         KeyPolicy::Parse(selections.key_policy, op_->spec()));
    const auto found = selections.by_key.find(policy.Named(policy.Bucket(shape)));
    if (found != selections.by_key.end()) here.push_back(&found->second);
  }
  AtShape at;
  for (const Named& named : named_) {
    const Variant& variant = *named.variant;
    Entrant entrant;
    if (race_) {
      entrant.config_from = "tune";
      for (Config& config : Enumerate(variant.tunables, named.fixed)) {
        entrant.configs.push_back({named.variant, std::move(config)});
      }
    } else {
      entrant.config_from = "default";
      Config config = DefaultConfig(variant.tunables);
      const auto stored = std::find_if(here.begin(), here.end(), [&](const StoredSelection* s) {
        return s->variant == variant.name && s->variant_fingerprint == variant.fingerprint;
      });
      if (stored != here.end()) {
        entrant.config_from = "selection";
        config = (*stored)->config;
        if (stored == here.begin()) at.selected = static_cast<int>(at.entrants.size());
      }
      for (const auto& [name, value] : named.fixed) config[name] = value;
      entrant.configs.push_back({named.variant, std::move(config)});
    }
    at.entrants.push_back(std::move(entrant));
  }
  return at;
}

}  // namespace kvr::bench
