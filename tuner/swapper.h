// SPDX-License-Identifier: Apache-2.0
//
// Hot swap: changes what a running registry selects, on a thread of its own. Each request goes
// through the same steps, and a failure at any of them leaves the old generation serving:
//
//   build    compile what the new generation needs for every loaded key, from the cache where it
//            can; does each config fit the shapes that are loaded?
//   verify   in a worker process, at every loaded shape; what passed before, as the same binary of
//            the same variant with the same config, is not run again
//   canary   if asked for: a quick verdict against what serves now, measured in a worker beside the
//            serving process; a LOSS refuses the swap
//   publish  one generation, at once
//
// Each request ends in one record of the dispatcher's journal, failures with their step and reason.
//
//   KVR_ASSIGN_OR_RETURN(auto swapper, Swapper::Create(dispatcher, jit, {}));
//   const uint64_t id = swapper->Request({.op = "mla_sparse_decode", .variant = "w8"});
//   KVR_ASSIGN_OR_RETURN(SwapResult result, swapper->Wait(id));
//
// An approximate variant needs the opt-in that the dispatcher was opened with, with the very values
// of its quality tunables; without it nothing is published. Verified, it is held to its own
// reference. Only a generation that served before is had back as it served, with the baseline where
// consent is missing. A generation that was silent
// about an op, whose baseline served, names that for the loaded keys which a swap leaves alone.
// Should somebody else publish meanwhile, the swap is made anew of what serves then.
//
// Threading: every function from any thread; requests run one after another in the order they came.
// Ownership: dispatcher, catalog, jit and device outlive it; its destructor ends the worker at
// hand, waits for the compile at hand, and fails what is left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/axes.h"
#include "jit/jit.h"
#include "registry/dispatcher.h"

namespace kvr {

struct SwapRequest {
  // One of these:
  std::string selection_file;  // what the file selects, in place of everything; where a config
                               // does not fit a loaded shape, the baseline, as at a start. A
                               // variant that was edited and tuned since is taken from its place
  std::string op, variant;     // "w8" or "w8{BLOCK_H=16}": for `keys`, else all loaded ones of `op`
  std::string rollback;        // a digest as Dispatcher::Rollback takes it, or "previous"; one that
                               // is no longer kept is built again, if it came through here
  std::string bundle;          // a bundle's directory or a plugin: what it brings replaces the
                               // variants of its names wherever these are selected, and is what
                               // these names mean from then on. What runs here and extends one
                               // of these is read again with it (tuner/rescan.h)

  std::vector<Axes> keys;  // axes left out take the op's defaults
  bool verify = true;
  bool canary = false;
  std::string trigger = "api";
  std::string who;  // empty: this process
};

struct SwapResult {
  uint64_t id = 0;
  // kUnchanged: it is what served already.
  enum class State { kWaiting, kRunning, kPublished, kUnchanged, kFailed } state = State::kWaiting;
  absl::Status status;  // of kFailed
  std::string step;     // "build", "verify", "canary", "publish": where it is, or where it failed
  std::string before, after;         // digests, hex
  std::vector<std::string> changes;  // a line a key, as in PublicationRecord
  double build_ms = 0, verify_ms = 0, publish_ms = 0;
};

struct SwapperOptions {
  std::vector<std::string> plugin_roots;              // for the worker, as the runtime has them
  std::string device = "auto";                        // for the worker, as the runtime's
  std::string worker;                                 // empty: FindWorker()
  int64_t memory_bytes = 0;                           // most device memory of a verification
  absl::Duration debounce = absl::Milliseconds(300);  // a watched file must rest so long
};

class Swapper {
 public:
  static absl::StatusOr<std::unique_ptr<Swapper>> Create(Dispatcher& dispatcher, Jit& jit,
                                                         SwapperOptions options);
  ~Swapper();

  uint64_t Request(SwapRequest request);
  // Waits until it is done. kNotFound: no such request among the last 64.
  absl::StatusOr<SwapResult> Wait(uint64_t id);
  std::vector<SwapResult> recent() const;  // newest first, at most 64
  // Requests wait until Resume: a live comparison has generations serve in turn, and what would be
  // planned on one of them would keep it. kFailedPrecondition: a swap is at work.
  absl::Status Pause();
  void Resume();

  // Requests a swap whenever a bundle or a plugin library in `directory`, or the selection file,
  // has changed and rests (tuner/watch.h). Half-written and temporary files are passed over.
  // Refused: a directory that plugins may not come from (plugins/files.h).
  absl::Status WatchBundles(const std::string& directory);
  absl::Status WatchSelectionFile(const std::string& path);

 private:
  class Impl;
  explicit Swapper(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
