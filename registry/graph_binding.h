// SPDX-License-Identifier: Apache-2.0
//
// The launches of one captured graph, and how to bring its executables to another generation.
//
//   KVR_ASSIGN_OR_RETURN(Applied applied, binding.Apply(exec));  // at a step boundary
//   if (applied.outcome == Applied::kNeedsRecapture) Recapture(applied.reason);
//
// Apply is all or nothing: where it fails or needs a recapture, the executable runs what it ran.
// Allowed in place: other functions of other modules, other parameters and their number, grid,
// block, shared memory and cluster, fewer kernels (the rest do nothing), and as many more as the
// scope recorded spare nodes. Not: another kind of edge (programmatic or not), a cooperative launch
// for another, a launch function's work, nodes captured after Finish.
//
// Threading: externally synchronised with the launches of the executable; other executables may be
// applied concurrently. Stream order: a replay in flight finishes with what it had, the next one
// has the new. Capture safety: legal while other streams capture.
// Ownership: movable. Must not outlive its Dispatcher; may outlive graph and executables.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/fingerprint.h"
#include "core/graph.h"

namespace kvr {

class CapturedGraph;

struct Applied {
  enum Outcome { kUnchanged, kApplied, kNeedsRecapture };
  Outcome outcome = kUnchanged;
  std::string reason;        // of kNeedsRecapture: which launch, what changed
  Fingerprint digest;        // of the generation that the executable runs now
  int nodes = 0;             // set
  bool whole_graph = false;  // by whole-graph update, else node by node
  double microseconds = 0;
};

class GraphBinding {
 public:
  GraphBinding(GraphBinding&&) noexcept;
  GraphBinding& operator=(GraphBinding&&) noexcept;
  ~GraphBinding();

  // To the current generation. Unchanged: one comparison of version numbers.
  absl::StatusOr<Applied> Apply(GraphExec exec);
  // To the generation of this digest: the current one, generation 0 or one of
  // Dispatcher::history(). kNotFound: none of them. So ranks switch at the same step: the leader
  // names a digest.
  absl::StatusOr<Applied> Apply(GraphExec exec, const Fingerprint& digest);
  // What `exec` runs: as captured until it is applied.
  Fingerprint digest(GraphExec exec) const;
  // The application has destroyed `exec`: forget it.
  void Forget(GraphExec exec);
  int launches() const;

 private:
  friend class CaptureScope;
  explicit GraphBinding(std::shared_ptr<CapturedGraph> graph);
  std::shared_ptr<CapturedGraph> graph_;
};

}  // namespace kvr
