// SPDX-License-Identifier: Apache-2.0
//
// Hot swap: changes what a running registry selects, on a thread of its own. Each request goes
// through the same steps, and a failure at any of them leaves the old generation serving:
//
//   build    compile what the new generation needs for every loaded key, from the cache where it
//   can verify   in a worker process, at every loaded key's shape; what passed before under the
//   same
//            fingerprint on the same device is not run again
//   canary   if asked for: a quick verdict against what serves now; a LOSS refuses the swap
//   publish  one generation, at once; the journal is told, of failures too
//
//   KVR_ASSIGN_OR_RETURN(auto swapper, Swapper::Create(dispatcher, bench, {}));
//   const uint64_t id = swapper->Request({.op = "mla_sparse_decode", .variant = "w8"});
//   KVR_ASSIGN_OR_RETURN(SwapResult result, swapper->Wait(id));
//
// An approximate variant needs the opt-in that the dispatcher was opened with; a swap never
// replaces its values. Requests run one after another in the order they came.
//
// Threading: every function from any thread. Ownership: dispatcher, catalog, jit and device outlive
// it; its destructor stops the work at hand and waits for it.
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
  std::string selection_file;  // what the file selects, in place of everything
  std::string op, variant;     // "w8" or "w8{BLOCK_H=16}": for `keys`, else all loaded ones of `op`
  std::string rollback;        // a digest as Dispatcher::Rollback takes it, or "previous"
  std::string bundle;          // a bundle's directory or a plugin: what it brings replaces the
                               // variants of its names wherever these are selected

  std::vector<Axes> keys;
  bool verify = true;
  bool canary = false;
  std::string trigger = "api";
  std::string who;  // empty: this process
};

struct SwapResult {
  uint64_t id = 0;
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

  // Requests a swap whenever a bundle or a plugin library in `directory`, or the selection file,
  // has changed and rests. Half-written and temporary files are passed over. Refused: a directory
  // that plugins may not come from (plugins/files.h).
  absl::Status WatchBundles(const std::string& directory);
  absl::Status WatchSelectionFile(const std::string& path);

 private:
  class Impl;
  explicit Swapper(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
