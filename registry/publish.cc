// SPDX-License-Identifier: Apache-2.0
//
// The publishing half of the dispatcher: generations come, go back, and are let go.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/dispatcher_impl.h"

namespace kvr {
namespace {

constexpr size_t kLeastPrefix = 8;

// "1f2e3d4c (generation 3)", newest first.
std::string Listed(const std::vector<GenerationPtr>& generations) {
  std::vector<std::string> names;
  for (const GenerationPtr& generation : generations) {
    names.push_back(
        generation->number() == 0
            ? StrCat(generation->digest().Short(), " (the baseline)")
            : StrCat(generation->digest().Short(), " (generation ", generation->number(), ")"));
  }
  return StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<LoadReport> Dispatcher::Impl::Publish(GenerationPtr next, PublicationRecord* why) {
  const DeviceInfo& info = self.device_.info();
  const GenerationPtr before = Current()->generation;
  why->before = before->digest().Hex();
  why->after = next->digest().Hex();
  if (!why->only_over.empty() && why->only_over != why->before) {
    return Error(
        absl::StatusCode::kAborted,
        StrCat("generation ", before->digest().Short(), " was published meanwhile, and serves on"),
        "look at what published it, then try again");
  }
  if (next->device_model() != info.model || next->target() != info.target) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("generation ", next->number(), " is for ", next->device_model(), " (",
                        next->target(), "), this device is ", info.model, " (", info.target, ")"),
                 "publish a generation tuned on this device model");
  }
  why->changes = ChangesBetween(*before, *next);
  LoadReport report;
  if (next->digest() == before->digest()) {
    report.unchanged = true;
    const std::lock_guard<std::mutex> lock(state);
    report.workspace_bytes = pool.capacity();
    return report;
  }
  for (const auto& [name, op] : next->ops()) {
    KVR_RETURN_IF_ERROR(self.catalog_.FindOp(name).status());
  }

  // All operations compile together; shapes that are loaded meanwhile come with the next turn.
  std::vector<std::shared_ptr<OpTable>> fresh;
  std::vector<Loader::Part> parts;
  Loader::Builds builds;
  const std::unique_lock<FairLock> held = PrepareAll(
      [&] {
        fresh.clear();
        parts.clear();
        const std::shared_ptr<const Snapshot> now = Current();  // streams come meanwhile
        for (const std::shared_ptr<const OpTable>& old : now->ops) {
          const Generation::Op* selected = next->FindOp(old->op->name());
          fresh.push_back(std::make_shared<OpTable>(
              *old->op, selected != nullptr ? selected->policy : old->op->policy));
          if (old->shapes.empty() && old->baseline == nullptr) continue;  // it is not loaded
          parts.push_back({next, fresh.back(), {old->shapes.begin(), old->shapes.end()}});
        }
        return parts;
      },
      &builds);

  int64_t workspace_bytes = 0;
  std::vector<std::shared_ptr<const OpTable>> tables;
  auto loaded = parts.begin();
  for (const std::shared_ptr<OpTable>& table : fresh) {
    if (loaded != parts.end() && loaded->table == table) {
      LoadReport part;
      loader.Add(*next, loaded->shapes, table.get(), &part, &workspace_bytes, builds);
      ++loaded;
      for (LoadItem& item : part.items) {
        if (!item.status.ok()) {
          return WithContext(
              StrCat("generation ", next->number(), " (", next->digest().Short(),
                     ") is not published: ", table->op->name(), " {", AxesText(item.axes), "}"),
              item.status);
        }
        report.items.push_back(std::move(item));
      }
      if (report.fallback.ok()) report.fallback = std::move(part.fallback);
    }
    tables.push_back(table);
  }

  const std::lock_guard<std::mutex> lock(state);
  auto snapshot = std::make_shared<Snapshot>(*owner);  // streams may have come meanwhile
  KVR_ASSIGN_OR_RETURN(snapshot->streams, pool.Grow(workspace_bytes, nullptr));
  snapshot->generation = std::move(next);
  snapshot->ops = std::move(tables);
  // History: what served until now in front, what serves from now on out of it.
  const Fingerprint& digest = snapshot->generation->digest();
  std::erase_if(kept, [&](const Kept& k) { return k.snapshot->generation->digest() == digest; });
  auto before_this = std::make_shared<Snapshot>(*owner);
  before_this->version = NextVersion();
  before_this->streams = std::make_shared<const Streams>();  // keeps no workspace that is outgrown
  if (owner->generation->digest() == zero.snapshot->generation->digest()) {
    zero = {std::move(before_this), absl::OkStatus()};
  } else {
    kept.insert(kept.begin(), {std::move(before_this), absl::OkStatus()});
    if (kept.size() > kKeptGenerations) kept.pop_back();
  }
  Swap(std::move(snapshot));
  report.workspace_bytes = pool.capacity();
  return report;
}

void Dispatcher::Impl::LoadForKept(int op, const std::vector<AxisVector>& shapes,
                                   const Loader::Builds& builds, int64_t* workspace_bytes,
                                   Kept* zero_next, std::vector<Kept>* kept_next) {
  const auto load = [&](Kept& of) {
    auto next = std::make_shared<Snapshot>(*of.snapshot);
    auto table = std::make_shared<OpTable>(*next->ops[op]);
    LoadReport report;
    loader.Add(*next->generation, shapes, table.get(), &report, workspace_bytes, builds);
    absl::Status ready = of.ready;
    for (const LoadItem& item : report.items) {
      if (item.status.ok() || !ready.ok()) continue;
      ready =
          WithContext(StrCat("generation ", next->generation->digest().Short(), " cannot serve ",
                             table->op->name(), " {", AxesText(item.axes), "}"),
                      item.status);
    }
    next->ops[op] = std::move(table);
    next->version = NextVersion();
    of = {std::move(next), std::move(ready)};
  };
  if (!IsCurrent(*zero_next->snapshot)) load(*zero_next);
  for (Kept& generation : *kept_next) load(generation);
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Dispatcher::Impl::SnapshotOf(
    const Fingerprint& digest) {
  const std::lock_guard<std::mutex> lock(state);
  if (owner->generation->digest() == digest) return owner;
  const Kept* found = zero.snapshot->generation->digest() == digest ? &zero : nullptr;
  for (const Kept& generation : kept) {
    if (generation.snapshot->generation->digest() == digest) found = &generation;
  }
  if (found == nullptr) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat("no generation of digest ", digest.Short(), " is kept"),
                 "name the current one, generation 0 or one of history()");
  }
  KVR_RETURN_IF_ERROR(found->ready);
  return found->snapshot;
}

void Dispatcher::Impl::Sweep() {
  absl::flat_hash_set<const Prepared*> needed;
  const auto need = [&](const Snapshot& snapshot) {
    for (const std::shared_ptr<const OpTable>& table : snapshot.ops) {
      if (table->baseline != nullptr) needed.insert(table->baseline.get());
      for (const auto& [key, served] : table->keys) needed.insert(served.prepared.get());
    }
  };
  need(*Current());
  need(*zero.snapshot);
  for (const Kept& generation : kept) need(*generation.snapshot);
  std::vector<PreparedPtr> given_up = loader.Sweep(needed);
  const std::lock_guard<std::mutex> lock(state);
  std::move(given_up.begin(), given_up.end(), std::back_inserter(retired));
}

void Dispatcher::Impl::Drop() {
  {
    const std::lock_guard<std::mutex> lock(state);
    limbo.Collect();
  }
  self.device_.Collect();
  std::vector<PreparedPtr> dead;
  std::vector<BufferPtr> buffers;
  {
    const std::lock_guard<std::mutex> lock(state);
    // Nobody can come to hold it again: it is in no table, and limbo holds those that had it.
    const auto idle = std::partition(retired.begin(), retired.end(),
                                     [](const PreparedPtr& p) { return p.use_count() > 1; });
    std::move(idle, retired.end(), std::back_inserter(dead));
    retired.erase(idle, retired.end());
    buffers = pool.TakeIdle();
  }
  counters.retired.fetch_add(dead.size(), std::memory_order_relaxed);
}

absl::StatusOr<LoadReport> Dispatcher::Publish(GenerationPtr next, PublicationRecord why) {
  absl::StatusOr<LoadReport> report;
  {
    const std::lock_guard<FairLock> publishing(impl_->publishing);
    report = impl_->PublishAndTell(std::move(next), std::move(why));
  }
  impl_->Drop();
  return report;
}

absl::StatusOr<LoadReport> Dispatcher::Impl::PublishAndTell(GenerationPtr next,
                                                            PublicationRecord why) {
  FillPublication(&why);
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<LoadReport> report = Publish(std::move(next), &why);
  why.prepare_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const bool unchanged = report.ok() && report->unchanged;
  why.outcome = !report.ok() ? "failed" : unchanged ? "unchanged" : "published";
  if (!report.ok()) why.reason = std::string(What(report.status()));
  std::atomic<uint64_t>& counter = !report.ok() ? counters.failed
                                   : unchanged  ? counters.unchanged
                                                : counters.generations;
  counter.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard<FairLock> held(loading);
    Sweep();
  }
  if (!(why.quiet && report.ok())) Tell(why);
  return report;
}

absl::StatusOr<LoadReport> Dispatcher::Rollback(std::string_view digest, PublicationRecord why) {
  if (why.trigger.empty()) why.trigger = "rollback";
  absl::StatusOr<LoadReport> report;
  {
    const std::lock_guard<FairLock> publishing(impl_->publishing);
    absl::StatusOr<GenerationPtr> found = impl_->FindKept(digest);
    const bool quiet = why.quiet;
    if (found.ok()) {
      report = impl_->PublishAndTell(*std::move(found), std::move(why));
      if (report.ok() && !report->unchanged && !quiet) {
        impl_->counters.rollbacks.fetch_add(1, std::memory_order_relaxed);
      }
    } else {
      report = found.status();
      why.reason = std::string(What(report.status()));
      impl_->TellFailure(std::move(why));
    }
  }
  impl_->Drop();
  return report;
}

absl::StatusOr<GenerationPtr> Dispatcher::Impl::FindKept(std::string_view digest) {
  const std::vector<GenerationPtr> before = self.history();
  const GenerationPtr now = self.generation();
  if (digest == "baseline") return before.back();
  if (digest.empty()) {
    if (before.front()->digest() != now->digest()) return before.front();
    return Error(absl::StatusCode::kNotFound, "nothing served before the current generation",
                 "publish one first");
  }
  std::string prefix(digest);
  for (char& c : prefix) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool is_hex = prefix.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hex || prefix.size() < kLeastPrefix) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(Quoted(digest), " is no digest, nor 8 of its first digits or more"),
                 "give 8 hexadecimal digits or more, 'baseline', or nothing for the one before");
  }
  std::vector<GenerationPtr> candidates = before;
  candidates.insert(candidates.begin(), now);
  std::vector<GenerationPtr> matches;
  for (const GenerationPtr& generation : candidates) {
    const std::string hex = generation->digest().Hex();
    const bool again = !matches.empty() && matches.front()->digest() == generation->digest();
    if (hex.compare(0, prefix.size(), prefix) == 0 && !again) matches.push_back(generation);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty()) {
    return Error(absl::StatusCode::kNotFound,
                 StrCat("no generation of digest ", prefix, " is kept"),
                 StrCat("there are ", Listed(before),
                        "; an older one is published from its selection file"));
  }
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat("more than one generation has a digest that begins with ", prefix),
               "give more digits");
}

GenerationPtr Dispatcher::generation() const { return impl_->Current()->generation; }

std::vector<GenerationPtr> Dispatcher::history() const {
  const std::lock_guard<std::mutex> lock(impl_->state);
  std::vector<GenerationPtr> generations;
  for (const Impl::Kept& kept : impl_->kept) generations.push_back(kept.snapshot->generation);
  generations.push_back(impl_->zero.snapshot->generation);
  return generations;
}

void Dispatcher::OrderHistory(const std::vector<Fingerprint>& order) {
  const std::lock_guard<FairLock> loading(impl_->loading);
  const std::lock_guard<std::mutex> lock(impl_->state);
  auto place = impl_->kept.begin();
  for (const Fingerprint& digest : order) {
    const auto found = std::find_if(place, impl_->kept.end(), [&](const Impl::Kept& kept) {
      return kept.snapshot->generation->digest() == digest;
    });
    if (found != impl_->kept.end()) std::rotate(place++, found, found + 1);
  }
}

void Dispatcher::SetJournal(std::shared_ptr<PublicationSink> journal) {
  const std::lock_guard<std::mutex> telling(impl_->telling);
  impl_->journal = std::move(journal);
}

void Dispatcher::RecordFailure(PublicationRecord why) { impl_->TellFailure(std::move(why)); }

void Dispatcher::Impl::TellFailure(PublicationRecord why) {
  FillPublication(&why);
  if (why.before.empty()) why.before = Current()->generation->digest().Hex();
  why.outcome = "failed";
  counters.failed.fetch_add(1, std::memory_order_relaxed);
  Tell(why);
}

void Dispatcher::Impl::Tell(const PublicationRecord& why) {
  const std::lock_guard<std::mutex> lock(telling);
  if (journal != nullptr) journal->Record(why);
}

const DispatcherOptions& Dispatcher::options() const { return impl_->options; }

void Dispatcher::Collect() {
  // Whoever loads or publishes at the moment keeps what it needs, or sweeps itself.
  if (const std::unique_lock<FairLock> loading(impl_->loading, std::try_to_lock); loading) {
    impl_->Sweep();
  }
  impl_->Drop();
}

std::vector<ServedInfo> Dispatcher::served() const {
  const std::shared_ptr<const Snapshot> snapshot = impl_->Current();
  std::vector<ServedInfo> infos;
  for (const std::shared_ptr<const OpTable>& table : snapshot->ops) {
    std::vector<std::pair<BucketedKey, const ServedKey*>> keys;
    for (const auto& [key, served] : table->keys) keys.emplace_back(key, &served);
    std::sort(keys.begin(), keys.end(),
              [](const auto& a, const auto& b) { return a.first.values < b.first.values; });
    absl::flat_hash_map<BucketedKey, std::vector<Axes>> shapes;
    for (const AxisVector& shape : table->shapes) {
      shapes[table->policy.Bucket(shape)].push_back(NamedAxes(table->op->spec(), shape));
    }
    for (const auto& [key, served] : keys) {
      const Prepared& prepared = *served->prepared;
      infos.push_back({.op = table->op->name(),
                       .key = table->policy.Named(key),
                       .shapes = std::move(shapes[key]),
                       .variant = prepared.variant().name,
                       .version = prepared.variant().version,
                       .fingerprint = prepared.variant().fingerprint,
                       .config = prepared.config(),
                       .binary = prepared.binary()->key,
                       .missed = served->missed,
                       .overridden = served->overridden,
                       .why = served->why});
    }
  }
  return infos;
}

}  // namespace kvr
