// SPDX-License-Identifier: Apache-2.0
//
// Turns shapes into table entries: choose, build (on several threads), load, plan. Keeps every
// Prepared it made until Sweep finds no table that has it, so a key met again, a swap back and a
// rollback load nothing twice.
//
//   Builds builds;
//   while (!Prepare(parts, &builds)) {  // with the lock
//     Build(&builds);                   // without it
//   }
//   Add(...)                            // with it, held since Prepare answered true
//
// Threading: externally serialised (the dispatcher's loading mutex), but for Build, which is called
// without: it compiles. Ownership: holds modules until it dies.
#pragma once

#include <map>
#include <memory>
#include <optional>
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

  struct Ready {
    absl::StatusOr<PreparedPtr> prepared;
    bool cache_hit = false;
    double milliseconds = 0;
    std::string unloadable = {};  // why what was measured does not serve; empty: it was not tried
  };
  struct Pending {  // one selection on its way into memory
    const OpSpec* op;
    Selection selection;
    std::optional<absl::StatusOr<Built>> built = {};  // none: to be built
    std::optional<Ready> ready = {};                  // none: not tried to load
    std::string unloadable = {};                      // as in Ready: it is to be built from source
  };
  using Builds = std::map<std::string, Pending>;  // by what they are for (IdentityOf)
  struct Part {                                   // of what is to be loaded: shapes of one op
    GenerationPtr generation;
    std::shared_ptr<const OpTable> table;
    std::vector<AxisVector> shapes;
  };

  // Loads what these parts need and `builds` has. False: `builds` has something to build first;
  // that may take long, so let go of the lock, Build, and come again with what is then wanted.
  bool Prepare(absl::Span<const Part> parts, Builds* builds);
  // Builds all that is to be built, at once. From any thread.
  void Build(Builds* builds) const;

  // Adds `shapes` to `table` as `generation` selects for them, and the op's baseline; items[i]
  // tells how shape i went. `*workspace_bytes` grows to what the plans need. Builds and loads
  // nothing: what is not in memory fails, for the reason that `builds` gives, if any.
  void Add(const Generation& generation, const std::vector<AxisVector>& shapes, OpTable* table,
           LoadReport* report, int64_t* workspace_bytes, const Builds& builds);

  // Gives up what is not among `needed`, and returns it.
  std::vector<PreparedPtr> Sweep(const absl::flat_hash_set<const Prepared*>& needed);

 private:
  using Wanted = std::map<std::string, Selection>;
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
  absl::StatusOr<Built> GetBinary(const Pending& pending) const;
  // False: what was measured does not load, and one is to be built anew.
  bool Load(const std::string& identity, Pending* pending);
  Ready Find(const Selection& selection, const Builds& builds) const;

  const Catalog& catalog_;
  Device& device_;
  Jit& jit_;
  const DispatcherOptions& options_;
  std::map<std::string, Ready> ready_;                    // successes, by IdentityOf
  std::map<Fingerprint, std::weak_ptr<Module>> modules_;  // by binary key
};

}  // namespace kvr
