// SPDX-License-Identifier: Apache-2.0
#include "registry/loader.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"

namespace kvr {
namespace {

constexpr int kMaxBuildThreads = 16;

Selection BaselineSelection(const Catalog::Op& op) {
  return {.variant = op.baseline, .config = DefaultConfig(op.baseline->tunables)};
}

}  // namespace

std::string Loader::IdentityOf(const Selection& selection) {
  const Variant& variant = *selection.variant;
  return StrCat(variant.op, "/", variant.name, "@", variant.fingerprint.Hex(), " ",
                ConfigText(selection.config), " ", selection.binary.Hex());
}

absl::StatusOr<Built> Loader::GetBinary(const Pending& pending) const {
  const Selection& selection = pending.selection;
  const std::string& target = device_.info().target;
  // The very binary that was measured, where the cache has it: needs no compiler.
  if (selection.binary != Fingerprint{} && pending.unloadable.empty()) {
    BinaryPtr binary = jit_.Lookup(selection.binary);
    if (binary != nullptr && binary->target == target) return Built{std::move(binary), true, 0};
  }
  return jit_.Build(*pending.op, *selection.variant, selection.config, target);
}

void Loader::Build(Builds* builds) const {
  std::vector<Pending*> missing;
  for (auto& [identity, pending] : *builds) {
    if (!pending.built.has_value()) missing.push_back(&pending);
  }
  const int threads =
      std::min(static_cast<int>(std::thread::hardware_concurrency()), kMaxBuildThreads);
  InParallel(missing.size(), threads,
             [&](size_t i) { missing[i]->built = GetBinary(*missing[i]); });
}

bool Loader::Prepare(absl::Span<const Part> parts, Builds* builds) {
  std::vector<Builds::value_type*> loads;
  bool complete = true;
  for (const Part& part : parts) {
    Wanted wanted;
    ChooseAll(*part.generation, *part.table, part.shapes, &wanted);
    for (const auto& [identity, selection] : wanted) {
      if (ready_.count(identity) > 0) continue;
      const auto [slot, added] =
          builds->try_emplace(identity, Pending{&part.table->op->spec(), selection});
      complete = complete && slot->second.built.has_value();
      loads.push_back(&*slot);
    }
  }
  if (!complete) return false;
  for (Builds::value_type* load : loads) {
    if (ready_.count(load->first) == 0) complete = Load(load->first, &load->second) && complete;
  }
  return complete;
}

bool Loader::Load(const std::string& identity, Pending* pending) {
  const Selection& selection = pending->selection;
  const bool measured = pending->built->ok() && (**pending->built).binary->key == selection.binary;
  const bool anew = !pending->unloadable.empty();
  if (anew && measured) return true;  // the same key is the same binary, which has failed

  Ready& ready = pending->ready.emplace();
  ready.unloadable = pending->unloadable;
  if (!pending->built->ok()) {
    ready.prepared = pending->built->status();
  } else {
    const Built& built = **pending->built;
    ready.cache_hit = built.cache_hit;
    ready.milliseconds = built.milliseconds;
    std::weak_ptr<Module>& module = modules_[built.binary->key];
    ready.prepared = kvr::Prepare(device_, *pending->op, selection.variant, selection.config,
                                  built.binary, module.lock());
    if (ready.prepared.ok()) module = (*ready.prepared)->module();
  }
  if (ready.prepared.ok()) {
    ready_.insert_or_assign(identity, ready);
    return true;
  }
  if (anew) {
    ready.prepared = WithContext(StrCat("the binary that was measured does not load (",
                                        ready.unloadable, "), nor does one built anew"),
                                 ready.prepared.status());
    return true;
  }
  // A binary named by its key comes from elsewhere and may not load here (an object made for
  // another CPU). Where there is a compiler, its source does as well.
  if (!measured || !jit_.CanCompile(device_.info().target)) return true;
  pending->unloadable = std::string(What(ready.prepared.status()));
  pending->built.reset();
  return false;
}

Loader::Ready Loader::Find(const Selection& selection, const Builds& builds) const {
  const std::string identity = IdentityOf(selection);
  if (const auto it = ready_.find(identity); it != ready_.end()) return it->second;
  if (const auto it = builds.find(identity); it != builds.end() && it->second.ready.has_value()) {
    return *it->second.ready;
  }
  return {Error(absl::StatusCode::kFailedPrecondition,
                StrCat(selection.variant->name, " {", ConfigText(selection.config),
                       "} is not loaded: the shape was loaded after its generation had served"),
                "publish that generation again")};
}

std::vector<Loader::Work> Loader::ChooseAll(const Generation& generation, const OpTable& table,
                                            const std::vector<AxisVector>& shapes,
                                            Wanted* wanted) const {
  const Catalog::Op& op = *table.op;
  const Generation::Op* selections = generation.FindOp(op.name());
  std::vector<Work> work;
  for (const AxisVector& axes : shapes) {
    const BucketedKey key = table.policy.Bucket(axes);
    const Selection* selected = generation.Find(op.name(), key);
    Work item{axes, key, Choose(op, selected, options_.overrides, options_.approximate)};
    if (item.choice.ok()) {
      Choice& choice = *item.choice;
      const Overrides::ForOp* forced = options_.overrides.Find(op.name());
      const bool is_forced = forced != nullptr && !forced->variant.empty();
      const bool refused = !choice.refused.ok();
      item.missed = selections != nullptr && (selected == nullptr || refused) && !is_forced;
      const std::string named = StrCat("{", AxesText(table.policy.Named(key)), "}");
      if (item.missed && !refused) choice.why += StrCat(": no selection for ", named);
      if (item.missed && options_.miss_policy == MissPolicy::kError) {
        if (refused) {
          item.choice = WithContext(StrCat(op.name(), " ", named), choice.refused);
          work.push_back(std::move(item));
          continue;
        }
        item.choice = Error(
            absl::StatusCode::kNotFound,
            StrCat(op.name(), ": no selection for ", named, ", and the miss policy is 'error'"),
            "tune this key, or open with the miss policy 'baseline'");
      } else {
        wanted->emplace(IdentityOf(choice.selection), choice.selection);
      }
    }
    work.push_back(std::move(item));
  }
  if (op.baseline != nullptr) {
    const Selection baseline = BaselineSelection(op);
    wanted->emplace(IdentityOf(baseline), baseline);
  }
  return work;
}

void Loader::Add(const Generation& generation, const std::vector<AxisVector>& shapes,
                 OpTable* table, LoadReport* report, int64_t* workspace_bytes,
                 const Builds& builds) {
  const Catalog::Op& op = *table->op;

  // 1. What serves each shape's key.
  Wanted wanted;
  std::vector<Work> work = ChooseAll(generation, *table, shapes, &wanted);

  // 2. The baseline.
  if (op.baseline != nullptr) {
    const Ready ready = Find(BaselineSelection(op), builds);
    report->fallback = ready.prepared.status();
    if (ready.prepared.ok()) table->baseline = *ready.prepared;
  } else {
    report->fallback = catalog_.Baseline(op.name()).status();
  }

  // 3. Plans. A config that was selected for the bucket may not fit every shape in it.
  for (Work& item : work) {
    LoadItem& out = report->items.emplace_back();
    out.axes = NamedAxes(op.spec(), item.axes);
    out.key = table->policy.Named(item.key);
    out.status = item.choice.status();
    if (!out.status.ok()) continue;
    const Choice& choice = *item.choice;
    const Ready ready = Find(choice.selection, builds);
    out.variant = choice.selection.variant->name;
    out.config = choice.selection.config;
    out.why = choice.why;
    out.overridden = choice.selection.overridden;
    out.is_compiled = choice.selection.variant->is_compiled();
    out.cache_hit = ready.cache_hit;
    out.compile_ms = ready.milliseconds;
    out.status = ready.prepared.status();
    if (!out.status.ok()) continue;

    PreparedPtr prepared = *ready.prepared;
    out.binary = prepared->binary()->key;
    if (choice.selection.binary != Fingerprint{} && choice.selection.binary != out.binary) {
      out.why += ready.unloadable.empty()
                     ? "; built anew: compiler or headers differ from what was measured"
                     : StrCat("; built anew: what was measured does not load: ", ready.unloadable);
    }
    table->keys.insert_or_assign(item.key,
                                 ServedKey{prepared, item.missed, out.overridden, out.why});
    LaunchPlan plan;
    out.status = prepared->Plan(item.axes, &plan);
    if (absl::IsFailedPrecondition(out.status) && table->baseline != nullptr &&
        options_.miss_policy != MissPolicy::kError && !choice.selection.overridden) {
      if (table->baseline->Plan(item.axes, &plan).ok()) {
        out.why = StrCat("baseline: ", out.variant, " does not fit: ", What(out.status));
        out.status = absl::OkStatus();
        prepared = table->baseline;
        out.variant = prepared->variant().name;
        out.is_compiled = prepared->variant().is_compiled();
        out.config = prepared->config();
        out.binary = prepared->binary()->key;
      }
    }
    if (!out.status.ok()) {
      out.status = WithContext(StrCat(op.name(), "/", out.variant), out.status);
      continue;
    }
    // Other shapes of the bucket will come: size for its representative too.
    out.workspace_bytes = plan.workspace_bytes;
    if (LaunchPlan other; prepared->Plan(table->policy.Representative(item.axes), &other).ok()) {
      out.workspace_bytes = std::max(out.workspace_bytes, other.workspace_bytes);
    }
    // A miss in the same bucket is answered by the baseline: it must find room as well.
    if (LaunchPlan other;
        table->baseline != nullptr && table->baseline->Plan(item.axes, &other).ok()) {
      *workspace_bytes = std::max(*workspace_bytes, other.workspace_bytes);
    }
    *workspace_bytes = std::max(*workspace_bytes, out.workspace_bytes);
    table->shapes.insert(item.axes);
  }

  table->Index();

  // 4. What failed, for policy `jit`.
  const LoadItem* outcome = report->items.data() + (report->items.size() - work.size());
  for (const Work& item : work) {
    const absl::Status& status = (outcome++)->status;
    if (status.ok()) {
      table->failed.erase(item.key);
      continue;
    }
    table->failed.insert_or_assign(item.key, status);
    // A launch of it falls to the baseline, which must find room.
    if (LaunchPlan other;
        table->baseline != nullptr && table->baseline->Plan(item.axes, &other).ok()) {
      *workspace_bytes = std::max(*workspace_bytes, other.workspace_bytes);
    }
  }

  // Whoever asks again gets them from memory.
  for (const auto& [identity, selection] : wanted) {
    if (const auto it = ready_.find(identity); it != ready_.end()) {
      it->second.cache_hit = true;
      it->second.milliseconds = 0;
    }
  }
}

std::vector<PreparedPtr> Loader::Sweep(const absl::flat_hash_set<const Prepared*>& needed) {
  std::vector<PreparedPtr> given_up;
  for (auto it = ready_.begin(); it != ready_.end();) {
    if (needed.contains(it->second.prepared->get())) {
      ++it;
    } else {
      given_up.push_back(*std::move(it->second.prepared));
      it = ready_.erase(it);
    }
  }
  for (auto it = modules_.begin(); it != modules_.end();) {
    it = it->second.expired() ? modules_.erase(it) : std::next(it);
  }
  return given_up;
}

}  // namespace kvr
