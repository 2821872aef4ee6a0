// SPDX-License-Identifier: Apache-2.0
//
// The swapper's thread: requests one after another, each ending in one record of the journal.
#include "tuner/swapper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"
#include "plugins/roots.h"
#include "registry/selection_file.h"
#include "tuner/rescan.h"
#include "tuner/swapper_impl.h"

namespace kvr {
namespace {

using State = SwapResult::State;

constexpr size_t kMostResults = 64;
constexpr size_t kMostOlder = 32;  // generations that a rollback finds
constexpr int kMostTries = 3;      // where somebody else publishes meanwhile

bool IsDone(const SwapResult& result) {
  return result.state != State::kWaiting && result.state != State::kRunning;
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

absl::Status ProgramEnds() {
  return Error(absl::StatusCode::kCancelled, "the program ends", "ask again when it runs");
}

absl::Status CheckRequest(const SwapRequest& request) {
  const bool variant = !request.op.empty() || !request.variant.empty();
  const int sources = static_cast<int>(!request.selection_file.empty()) +
                      static_cast<int>(variant) + static_cast<int>(!request.rollback.empty()) +
                      static_cast<int>(!request.bundle.empty());
  if (sources == 1 && variant == !(request.op.empty() || request.variant.empty())) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument,
               "a swap takes one of: a selection file, an operation and a variant, a digest to go "
               "back to, a bundle",
               "name one of them");
}

bool SameSource(const SwapRequest& a, const SwapRequest& b) {
  return a.selection_file == b.selection_file && a.bundle == b.bundle && a.op == b.op &&
         a.variant == b.variant && a.rollback == b.rollback;
}

}  // namespace

absl::Status Swapper::Impl::Start() {
  KVR_ASSIGN_OR_RETURN(thread, StartThread([this] { Loop(); }));
  return absl::OkStatus();
}

Swapper::Impl::~Impl() {
  {
    const std::lock_guard<std::mutex> lock(watching);
    watcher.reset();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
    cancel.store(true, std::memory_order_relaxed);
  }
  asked.notify_all();
  if (thread.joinable()) thread.join();
}

uint64_t Swapper::Impl::Add(SwapRequest request) {
  const std::lock_guard<std::mutex> lock(mutex);
  Entry& entry = entries.emplace_back();
  entry.request = std::move(request);
  entry.result.id = ++last_id;
  entry.result.step = "build";
  Forget();
  asked.notify_one();
  return last_id;
}

Swapper::Impl::Entry* Swapper::Impl::Find(uint64_t id) {
  for (Entry& entry : entries) {
    if (entry.result.id == id) return &entry;
  }
  return nullptr;
}

// The oldest results that are done; requests that wait are kept, however many they are.
void Swapper::Impl::Forget() {
  while (entries.size() > kMostResults && IsDone(entries.front().result)) entries.pop_front();
}

absl::StatusOr<SwapResult> Swapper::Impl::Wait(uint64_t id) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    const Entry* entry = Find(id);
    if (entry == nullptr) {
      return Error(absl::StatusCode::kNotFound, StrCat("no swap ", id, " is known"),
                   StrCat("the last ", kMostResults, " are"));
    }
    if (IsDone(entry->result)) return entry->result;
    done.wait(lock);
  }
}

std::vector<SwapResult> Swapper::Impl::Recent() {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<SwapResult> results;
  for (auto it = entries.rbegin(); it != entries.rend() && results.size() < kMostResults; ++it) {
    results.push_back(it->result);
  }
  return results;
}

absl::Status Swapper::Impl::Pause() {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Entry& entry : entries) {
    if (entry.result.state != State::kRunning) continue;
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("swap ", entry.result.id, " is at work"), "wait until it has ended");
  }
  paused = true;
  return absl::OkStatus();
}

void Swapper::Impl::Resume() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    paused = false;
  }
  asked.notify_all();
}

void Swapper::Impl::Loop() {
  for (;;) {
    Entry* next = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex);
      const auto waiting = [&] {
        next = nullptr;
        if (paused) return stopping;
        for (Entry& entry : entries) {
          if (entry.result.state != State::kWaiting) continue;
          next = &entry;
          break;
        }
        return next != nullptr || stopping;
      };
      asked.wait(lock, waiting);
      if (next == nullptr) return;
      next->result.state = State::kRunning;
    }
    Run(*next);  // nobody else forgets what runs
  }
}

void Swapper::Impl::Step(Entry& entry, std::string_view step) {
  const std::lock_guard<std::mutex> lock(mutex);
  entry.result.step = std::string(step);
}

void Swapper::Impl::Took(Entry& entry, double SwapResult::*what, double milliseconds) {
  const std::lock_guard<std::mutex> lock(mutex);
  entry.result.*what = milliseconds;
}

void Swapper::Impl::Run(Entry& entry) {
  const SwapRequest& request = entry.request;
  PublicationRecord record{.trigger = request.trigger, .who = request.who};
  record.before = dispatcher.generation()->digest().Hex();
  const auto start = std::chrono::steady_clock::now();
  bool told = false;
  absl::Status status = CheckRequest(request);
  if (status.ok() && cancel.load(std::memory_order_relaxed)) status = ProgramEnds();
  if (status.ok()) status = Serve(entry, record, &told);
  if (absl::IsCancelled(status)) status = ProgramEnds();  // nobody else cancels
  if (!status.ok() && !told) {
    PublicationRecord failure = record;
    failure.reason = StrCat(entry.result.step, ": ", What(status));
    failure.prepare_ms = Since(start);
    dispatcher.RecordFailure(std::move(failure));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  SwapResult& result = entry.result;
  result.before = record.before;
  result.after = record.after;
  result.changes = record.changes;
  result.status = status;
  if (!status.ok()) result.state = State::kFailed;
  if (status.ok() && result.state == State::kRunning) result.state = State::kPublished;
  Forget();
  done.notify_all();
}

absl::Status Swapper::Impl::Serve(Entry& entry, PublicationRecord& record, bool* told) {
  const SwapRequest& request = entry.request;
  if (!request.rollback.empty()) {
    const std::string& digest = request.rollback;
    const bool known_older =
        digest.size() >= 8 && std::any_of(older.begin(), older.end(), [&](const auto& generation) {
          return generation->digest().Hex().starts_with(digest);
        });
    const std::vector<GenerationPtr> history = dispatcher.history();
    const bool at_once = std::any_of(history.begin(), history.end(), [&](const auto& generation) {
      return generation->digest().Hex().starts_with(digest);
    });
    if (at_once || !known_older) return RollBack(entry, record, told);
  }
  // Whoever publishes in between is not overwritten: the swap is made anew of what serves then.
  for (int tries = 1;; ++tries) {
    Step(entry, "build");
    const auto start = std::chrono::steady_clock::now();
    KVR_ASSIGN_OR_RETURN(SwapPlan plan, PlanOf(request));
    record.before = plan.base->digest().Hex();
    record.changes = ChangesBetween(*plan.base, *plan.next);
    KVR_RETURN_IF_ERROR(Build(plan));
    record.after = plan.next->digest().Hex();
    record.changes = ChangesBetween(*plan.base, *plan.next);
    const auto built = std::chrono::steady_clock::now();
    Took(entry, &SwapResult::build_ms, Since(start));
    if (request.verify) {
      Step(entry, "verify");
      KVR_RETURN_IF_ERROR(Verify(plan));
    } else if (!plan.changes.empty()) {
      plan.notes.push_back("not verified, as asked for");
    }
    Took(entry, &SwapResult::verify_ms, Since(built));
    if (request.canary) {
      Step(entry, "canary");
      KVR_RETURN_IF_ERROR(Canary(plan));
    }
    Step(entry, "publish");
    if (cancel.load(std::memory_order_relaxed)) return ProgramEnds();
    if (dispatcher.generation()->digest() == plan.base->digest()) {
      const absl::Status published = Publish(entry, plan, record, told);
      if (!absl::IsAborted(published)) return published;
      *told = false;  // of this try alone
    }
    if (tries == kMostTries) {
      return Error(absl::StatusCode::kAborted, "somebody else keeps publishing meanwhile",
                   "ask again when nobody does");
    }
  }
}

absl::Status Swapper::Impl::Publish(Entry& entry, SwapPlan& plan, PublicationRecord& record,
                                    bool* told) {
  const auto start = std::chrono::steady_clock::now();
  record.reason = StrJoin(plan.notes, "; ");
  PublicationRecord why = record;
  why.only_over = plan.base->digest().Hex();
  *told = true;
  const absl::StatusOr<LoadReport> report = dispatcher.Publish(plan.next, std::move(why));
  Took(entry, &SwapResult::publish_ms, Since(start));
  KVR_RETURN_IF_ERROR(report.status());
  for (Adopted& adopting : plan.adopted) {
    auto name = std::make_pair(adopting.variant->op, adopting.variant->name);
    adopted.insert_or_assign(std::move(name), std::move(adopting));
  }
  for (const GenerationPtr& generation : {plan.base, plan.next}) {
    std::erase_if(
        older, [&](const GenerationPtr& other) { return other->digest() == generation->digest(); });
    older.push_front(generation);
  }
  while (older.size() > kMostOlder) older.pop_back();
  if (report->unchanged) {
    const std::lock_guard<std::mutex> lock(mutex);
    entry.result.state = State::kUnchanged;
  }
  return absl::OkStatus();
}

absl::Status Swapper::Impl::RollBack(Entry& entry, PublicationRecord& record, bool* told) {
  Step(entry, "publish");
  const auto start = std::chrono::steady_clock::now();
  const GenerationPtr before = dispatcher.generation();
  const std::string& digest = entry.request.rollback;
  PublicationRecord why = record;
  // Who asked through a general trigger asked for a rollback all the same.
  if (why.trigger == "api") why.trigger = "rollback";
  *told = true;
  const absl::StatusOr<LoadReport> report =
      dispatcher.Rollback(digest == "previous" ? "" : digest, std::move(why));
  Took(entry, &SwapResult::publish_ms, Since(start));
  KVR_RETURN_IF_ERROR(report.status());
  const GenerationPtr after = dispatcher.generation();
  record.before = before->digest().Hex();
  record.after = after->digest().Hex();
  record.changes = ChangesBetween(*before, *after);
  if (report->unchanged) {
    const std::lock_guard<std::mutex> lock(mutex);
    entry.result.state = State::kUnchanged;
  }
  return absl::OkStatus();
}

absl::StatusOr<Watcher*> Swapper::Impl::Watching() {
  const std::lock_guard<std::mutex> lock(watching);
  if (watcher != nullptr) return watcher.get();
  const auto changed = [this](const Watcher::Place& place) {
    SwapRequest request;
    if (place.kind == Watcher::Place::Kind::kFile) {
      request.selection_file = place.path;
      request.trigger = "selection-file";
    } else {
      request.bundle = place.path;
      request.trigger = place.kind == Watcher::Place::Kind::kBundle ? "bundle" : "plugin";
    }
    {
      // One that has not begun yet will see this change as well.
      const std::lock_guard<std::mutex> lock_entries(mutex);
      for (const Entry& entry : entries) {
        if (entry.result.state == State::kWaiting && SameSource(entry.request, request)) return;
      }
    }
    Add(std::move(request));
  };
  const auto parses = [this](const Watcher::Place& place) {
    if (place.kind == Watcher::Place::Kind::kFile) return ReadSelectionContent(place.path).ok();
    return RescanPlace(place.path, dispatcher.catalog(),
                       {.roots = PluginRoots(options.plugin_roots)})
        .ok();
  };
  KVR_ASSIGN_OR_RETURN(watcher, Watcher::Create(options.debounce, changed, parses));
  return watcher.get();
}

Swapper::Swapper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Swapper::~Swapper() = default;

absl::StatusOr<std::unique_ptr<Swapper>> Swapper::Create(Dispatcher& dispatcher, Jit& jit,
                                                         SwapperOptions options) {
  auto impl = std::make_unique<Impl>(dispatcher, jit, std::move(options));
  KVR_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Swapper>(new Swapper(std::move(impl)));
}

uint64_t Swapper::Request(SwapRequest request) { return impl_->Add(std::move(request)); }
absl::StatusOr<SwapResult> Swapper::Wait(uint64_t id) { return impl_->Wait(id); }
std::vector<SwapResult> Swapper::recent() const { return impl_->Recent(); }
absl::Status Swapper::Pause() { return impl_->Pause(); }
void Swapper::Resume() { impl_->Resume(); }

absl::Status Swapper::WatchBundles(const std::string& directory) {
  KVR_ASSIGN_OR_RETURN(Watcher* const watcher, impl_->Watching());
  return watcher->AddDirectory(directory);
}

absl::Status Swapper::WatchSelectionFile(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(Watcher* const watcher, impl_->Watching());
  return watcher->AddFile(path);
}

}  // namespace kvr
