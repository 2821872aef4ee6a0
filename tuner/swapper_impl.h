// SPDX-License-Identifier: Apache-2.0
//
// The swapper's state and the steps of one request.
//
// Threads: whoever asks; `thread`, which runs the requests one after another and spawns the workers
// (PR_SET_PDEATHSIG: a worker dies with the thread that spawned it); the watcher's, which only
// asks. `mutex` guards the queue and the results; what is marked so belongs to `thread` alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jit/jit.h"
#include "registry/generation.h"
#include "tuner/rescan.h"
#include "tuner/space.h"
#include "tuner/swapper.h"
#include "tuner/tune.h"
#include "tuner/watch.h"

namespace kvr {

// Shapes of one key that the next generation serves otherwise than the current one.
struct SwapChange {
  const Catalog::Op* op = nullptr;
  Axes key;  // under the next generation's policy
  std::vector<Axes> shapes;
  Candidate before;          // without a variant: nothing could serve them
  Candidate after;           // as overrides and opt-ins make it
  Fingerprint measured;      // the binary that the selection names; all zero: none
  BinaryPtr binary;          // once it is built
  std::string Text() const;  // "mla_sparse_decode {topk=512}: w8{BLOCK_H=16}"
};

// A variant of a place that was scanned again.
struct Adopted {
  VariantPtr variant;
  std::string place;
};

// What a request comes to.
struct SwapPlan {
  GenerationPtr base;
  GenerationBuilder builder;  // `selected` are not in it yet
  struct Selected {
    std::string op;
    BucketedKey key;
    Selection selection;
  };
  std::vector<Selected> selected;
  // A shape that a tuned key's config does not fit is the baseline's, as at a start of the process.
  bool misfits_fall_back = false;
  // A generation that served once: what its process has no consent for falls back, as it did then.
  bool served_before = false;
  std::vector<std::pair<const Catalog::Op*, Axes>> shapes;  // with those that are loaded
  std::vector<Adopted> adopted;
  int64_t number = 1;  // of `next`
  GenerationPtr next;
  std::vector<SwapChange> changes;
  std::vector<std::string> notes;  // what the publication rests on

  explicit SwapPlan(GenerationPtr from) : base(std::move(from)), builder(*base) {}
  // What `builder` and `selected` make.
  absl::Status MakeNext();
};

class Swapper::Impl {
 public:
  Impl(Dispatcher& dispatcher_of, Jit& jit_of, SwapperOptions swapper_options)
      : dispatcher(dispatcher_of), jit(jit_of), options(std::move(swapper_options)) {}
  ~Impl();
  absl::Status Start();
  uint64_t Add(SwapRequest request);
  absl::StatusOr<SwapResult> Wait(uint64_t id);
  std::vector<SwapResult> Recent();
  absl::Status Pause();
  void Resume();
  absl::StatusOr<Watcher*> Watching();

 private:
  struct Entry {
    SwapRequest request;
    SwapResult result;
  };
  void Loop();
  void Run(Entry& entry);
  void Step(Entry& entry, std::string_view step);
  void Took(Entry& entry, double SwapResult::*what, double milliseconds);
  void Forget();             // `mutex` is held
  Entry* Find(uint64_t id);  // `mutex` is held

  // --- swapper.cc. Publishes; `told`: the journal has it.
  absl::Status Serve(Entry& entry, PublicationRecord& record, bool* told);
  absl::Status Publish(Entry& entry, SwapPlan& plan, PublicationRecord& record, bool* told);
  absl::Status RollBack(Entry& entry, PublicationRecord& record, bool* told);

  // --- swapper_plan.cc: what is to be selected. Nothing is compiled.
  absl::StatusOr<SwapPlan> PlanOf(const SwapRequest& request);
  absl::Status PlanVariant(const SwapRequest& request, SwapPlan& plan);
  absl::Status PlanSelectionFile(const std::string& path, SwapPlan& plan);
  absl::Status PlanBundle(const std::string& place, SwapPlan& plan);
  absl::Status PlanOlder(const std::string& digest, SwapPlan& plan);
  absl::Status FindChanges(SwapPlan& plan);
  // The newest variant of that name: adopted, else the catalog's.
  absl::StatusOr<VariantPtr> FindVariant(std::string_view op, std::string_view name);
  // The one that a selection file means: what was adopted, or what its place on disk holds now.
  absl::StatusOr<VariantPtr> FindMeasured(const std::string& op, const std::string& name,
                                          const Fingerprint& fingerprint, SwapPlan& plan);
  absl::StatusOr<Rescanned> Rescan(const std::string& place);

  // --- swapper_prove.cc: build, verify, canary.
  absl::Status Build(SwapPlan& plan);
  absl::Status Verify(SwapPlan& plan);
  absl::Status Canary(SwapPlan& plan);
  WorkerOptions Worker(const SwapPlan& plan) const;
  Workbench Bench(const SwapPlan& plan) const;

  Dispatcher& dispatcher;
  Jit& jit;
  const SwapperOptions options;

  std::mutex mutex;
  std::condition_variable asked, done;
  std::deque<Entry> entries;  // oldest first; addresses hold
  uint64_t last_id = 0;
  bool stopping = false, paused = false;
  std::atomic<bool> cancel{false};

  // Of `thread`.
  std::map<std::pair<std::string, std::string>, Adopted> adopted;  // by op and name
  std::set<Fingerprint> verified;   // of what passed: variant, config, binary, shape
  std::deque<GenerationPtr> older;  // that served, newest first, each once

  std::mutex watching;
  std::unique_ptr<Watcher> watcher;
  std::thread thread;
};

}  // namespace kvr
