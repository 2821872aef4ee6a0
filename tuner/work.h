// SPDX-License-Identifier: Apache-2.0
//
// What compile, verify and tune share: from a request to ops, shapes and candidates, and from
// candidates to binaries.
//
// Threading: Resolve is pure but for the environment; BuildAll runs its own threads and joins them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/op.h"
#include "jit/jit.h"
#include "registry/catalog.h"
#include "tuner/ledger/records.h"
#include "tuner/space.h"
#include "tuner/tune.h"

namespace kvr {

struct Work {
  const Catalog::Op* op = nullptr;
  std::vector<AxisVector> shapes;  // distinct
  Space space;
  std::vector<Skipped> skipped;
  bool overridden = false;  // --set or the environment pins a tunable
};

// Of approximate variants that the request does not opt in to.
enum class Unasked : uint8_t {
  kTakePart,  // nothing is selected by it: with the values of --set, or the defaults
  kSkipped,   // with what to say; an error where no variant that the request names is left
};

// Variants that do not run on `target` (empty: any) are skipped with the reason. Errors also: an
// opt-in that does not say what it has to.
absl::StatusOr<Work> Resolve(const Catalog& catalog, const WorkRequest& request,
                             const std::string& target, Unasked unasked);

// One for each candidate; equal compile-scope configs of a variant are built once, begun in order.
// The bench's journal is told of each. A cancelled build is kCancelled; one that had not begun when
// `keep_building` (may be null; called from any thread) said no, kDeadlineExceeded.
std::vector<absl::StatusOr<Built>> BuildAll(const Workbench& bench, const OpSpec& op,
                                            absl::Span<const Candidate> candidates,
                                            const std::string& target, PhaseProgress& progress,
                                            const std::function<bool()>& keep_building = nullptr);
// The first candidate of each distinct build: as many as the steps of that progress.
std::vector<Candidate> DistinctBuilds(absl::Span<const Candidate> candidates);

bool Cancelled(const Workbench& bench);
// The seeds of `count` input sets; `seed` 0 is drawn anew and stored back.
std::vector<uint64_t> Seeds(uint64_t* seed, int count);
WorkItem ItemOf(const Candidate& candidate, std::string binary_path);
// What the ledger keeps of a trial before anything came of it: who, where, how.
ledger::Trial TrialOf(const Candidate& candidate, const absl::StatusOr<Built>& built,
                      const Axes& axes, MeasureMode mode, std::string_view stage);

}  // namespace kvr
