// SPDX-License-Identifier: Apache-2.0
//
// Turns shapes into table entries: choose, build (on several threads), load, plan. Keeps every
// Prepared it made until Sweep finds no table that has it, so a key met again, a swap back and a
// rollback load nothing twice.
//
// Threading: externally serialised (the dispatcher's loading mutex), but for BuildAhead; a build
// runs on several threads inside. Ownership: holds modules until it dies.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "jit/jit.h"
#include "registry/dispatcher.h"
#include "registry/snapshot.h"

namespace kvr {

class Loader {
 public:
  Loader(const Catalog& catalog, Device& device, Jit& jit, const DispatcherOptions& options)
      : catalog_(catalog), device_(device), jit_(jit), options_(options) {}

  enum class From : uint8_t { kAnywhere, kMemory };  // kMemory: nothing is built or loaded

  // Binaries by what they are for: made before their turn, held until it comes.
  using Ahead = std::map<std::string, absl::StatusOr<Built>>;
  struct Part {  // of what is to be loaded: shapes of one op
    const OpTable* table;
    std::vector<AxisVector> shapes;
  };
  // Builds, all at once, what Add would for these parts under `generation`, and changes nothing.
  // From any thread: a compile need not hold up other loads.
  Ahead BuildAhead(const Generation& generation, absl::Span<const Part> parts) const;

  // Adds `shapes` to `table` as `generation` selects for them; items[i] tells how shape i went.
  // Also loads the op's baseline. `*workspace_bytes` grows to what the plans need.
  void Add(const Generation& generation, const std::vector<AxisVector>& shapes, OpTable* table,
           LoadReport* report, int64_t* workspace_bytes, From from = From::kAnywhere,
           const Ahead& ahead = {});

  // Gives up what is not among `needed`, and returns it.
  std::vector<PreparedPtr> Sweep(const absl::flat_hash_set<const Prepared*>& needed);

 private:
  struct Ready {
    absl::StatusOr<PreparedPtr> prepared = absl::UnknownError("not tried");
    bool cache_hit = false;
    double milliseconds = 0;
    std::string unloadable;  // why what was measured does not serve; empty: it was not tried
  };
  using Wanted = std::map<std::string, Selection>;
  struct Task {  // one selection to make ready
    const std::string* identity;
    const Selection* selection;
    absl::StatusOr<Built> built = absl::UnknownError("not tried");
    Ready ready = {};
  };

  struct Work {  // what serves one shape's key
    AxisVector axes;
    BucketedKey key;
    absl::StatusOr<Choice> choice;
    bool missed = false;
  };

  static std::string IdentityOf(const Selection& selection);
  // In the order of `shapes`; `wanted` gets every selection that any of them needs, and the op's
  // baseline.
  std::vector<Work> ChooseAll(const Generation& generation, const OpTable& table,
                              const std::vector<AxisVector>& shapes, Wanted* wanted) const;
  void PrepareAll(const OpSpec& op, const Wanted& wanted, From from, const Ahead& ahead);
  absl::StatusOr<Built> GetBinary(const OpSpec& op, const Selection& selection) const;
  void PrepareBuilt(const OpSpec& op, Task* task);

  const Catalog& catalog_;
  Device& device_;
  Jit& jit_;
  const DispatcherOptions& options_;
  mutable std::mutex ready_mutex_;       // to change ready_, and to read it in BuildAhead
  std::map<std::string, Ready> ready_;   // successes, by IdentityOf
  std::map<std::string, Ready> failed_;  // of the call at hand
  std::map<Fingerprint, std::weak_ptr<Module>> modules_;  // by binary key
};

}  // namespace kvr
