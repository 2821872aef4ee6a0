// SPDX-License-Identifier: Apache-2.0
#include "registry/loader.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr unsigned kMaxBuildThreads = 16;

Selection BaselineSelection(const Catalog::Op& op) {
  return {.variant = op.baseline, .config = DefaultConfig(op.baseline->tunables)};
}

}  // namespace

std::string Loader::IdentityOf(const Selection& selection) {
  const Variant& variant = *selection.variant;
  return StrCat(variant.op, "/", variant.name, "@", variant.fingerprint.Hex(), " ",
                ConfigText(selection.config), " ", selection.binary.Hex());
}

absl::StatusOr<Built> Loader::GetBinary(const OpSpec& op, const Selection& selection) {
  const std::string& target = device_.info().target;
  // The very binary that was measured, where the cache has it: needs no compiler.
  if (selection.binary != Fingerprint{}) {
    BinaryPtr binary = jit_.Lookup(selection.binary);
    if (binary != nullptr && binary->target == target) return Built{std::move(binary), true, 0};
  }
  return jit_.Build(op, *selection.variant, selection.config, target);
}

void Loader::PrepareAll(const OpSpec& op, const Wanted& wanted) {
  std::vector<const Selection*> todo;
  std::vector<std::string> names;
  for (const auto& [identity, selection] : wanted) {
    if (ready_.count(identity) > 0) continue;
    names.push_back(identity);
    todo.push_back(&selection);
  }
  if (todo.empty()) return;

  std::vector<absl::StatusOr<Built>> built(todo.size(), absl::UnknownError("not tried"));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < todo.size(); i = next++) built[i] = GetBinary(op, *todo[i]);
  };
  const size_t threads =
      std::min({todo.size(), static_cast<size_t>(std::max(1u, std::thread::hardware_concurrency())),
                static_cast<size_t>(kMaxBuildThreads)});
  std::vector<std::thread> helpers;
  try {
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads to be had: those that run, and this one, do it all.
  }
  work();
  for (std::thread& helper : helpers) helper.join();

  for (size_t i = 0; i < todo.size(); ++i) {
    Ready ready;
    if (built[i].ok()) {
      ready.cache_hit = built[i]->cache_hit;
      ready.milliseconds = built[i]->milliseconds;
      std::weak_ptr<Module>& module = modules_[built[i]->binary->key];
      ready.prepared =
          Prepare(device_, op, todo[i]->variant, todo[i]->config, built[i]->binary, module.lock());
      if (ready.prepared.ok()) module = (*ready.prepared)->module();
    } else {
      ready.prepared = built[i].status();
    }
    (ready.prepared.ok() ? ready_ : failed_).insert_or_assign(names[i], std::move(ready));
  }
}

void Loader::Add(const Generation& generation, const std::vector<AxisVector>& shapes,
                 OpTable* table, LoadReport* report, int64_t* workspace_bytes) {
  const Catalog::Op& op = *table->op;
  const Generation::Op* selections = generation.FindOp(op.name());
  failed_.clear();

  // 1. What serves each shape's key.
  struct Work {
    AxisVector axes;
    BucketedKey key;
    absl::StatusOr<Choice> choice;
    bool missed = false;
  };
  std::vector<Work> work;
  Wanted wanted;
  for (const AxisVector& axes : shapes) {
    const BucketedKey key = table->policy.Bucket(axes);
    const Selection* selected = generation.Find(op.name(), key);
    Work item{axes, key, Choose(op, selected, options_.overrides, options_.approximate)};
    if (item.choice.ok()) {
      Choice& choice = *item.choice;
      const Overrides::ForOp* forced = options_.overrides.Find(op.name());
      const bool is_forced = forced != nullptr && !forced->variant.empty();
      item.missed = selections != nullptr && selected == nullptr && !is_forced;
      const std::string named = StrCat("{", AxesText(table->policy.Named(key)), "}");
      if (item.missed) choice.why += StrCat(": no selection for ", named);
      if (item.missed && options_.miss_policy == MissPolicy::kError) {
        item.choice = Error(
            absl::StatusCode::kNotFound,
            StrCat(op.name(), ": no selection for ", named, ", and the miss policy is 'error'"),
            "tune this key, or open with the miss policy 'baseline'");
      } else {
        wanted.emplace(IdentityOf(choice.selection), choice.selection);
      }
    }
    work.push_back(std::move(item));
  }
  const bool has_baseline = op.baseline != nullptr;
  const Selection baseline = has_baseline ? BaselineSelection(op) : Selection{};
  if (has_baseline) wanted.emplace(IdentityOf(baseline), baseline);

  // 2. Binaries and modules, each once.
  PrepareAll(op.spec(), wanted);
  const auto find = [&](const Selection& selection) -> const Ready& {
    const std::string identity = IdentityOf(selection);
    const auto it = ready_.find(identity);
    return it != ready_.end() ? it->second : failed_.at(identity);
  };
  if (has_baseline) {
    const Ready& ready = find(baseline);
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
    const Ready& ready = find(choice.selection);
    out.variant = choice.selection.variant->name;
    out.config = choice.selection.config;
    out.why = choice.why;
    out.overridden = choice.selection.overridden;
    out.cache_hit = ready.cache_hit;
    out.compile_ms = ready.milliseconds;
    out.status = ready.prepared.status();
    if (!out.status.ok()) continue;

    PreparedPtr prepared = *ready.prepared;
    bool missed = item.missed;
    out.binary = prepared->binary()->key;
    if (choice.selection.binary != Fingerprint{} && choice.selection.binary != out.binary) {
      out.why += "; built anew: compiler or headers differ from what was measured";
    }
    table->keys.insert_or_assign(item.key, ServedKey{prepared, missed});
    LaunchPlan plan;
    out.status = prepared->Plan(item.axes, &plan);
    if (absl::IsFailedPrecondition(out.status) && table->baseline != nullptr &&
        options_.miss_policy != MissPolicy::kError && !choice.selection.overridden) {
      if (table->baseline->Plan(item.axes, &plan).ok()) {
        out.why = StrCat("baseline: ", out.variant, " does not fit: ", What(out.status));
        out.status = absl::OkStatus();
        prepared = table->baseline;
        missed = true;
        out.variant = prepared->variant().name;
        out.config = prepared->config();
        out.binary = prepared->binary()->key;
      }
    }
    if (!out.status.ok()) continue;
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
    table->shapes.erase(item.axes);
    table->shapes.insert(
        std::make_shared<const ServedShape>(item.axes, std::move(prepared), plan, missed));
  }

  // Whoever asks again gets them from memory.
  for (const auto& [identity, selection] : wanted) {
    if (const auto it = ready_.find(identity); it != ready_.end()) {
      it->second.cache_hit = true;
      it->second.milliseconds = 0;
    }
  }
}

}  // namespace kvr
