// SPDX-License-Identifier: Apache-2.0
//
// One contestant of a decode bench: a dispatcher on the stack's device with a selection of its own,
// and graphs captured from it, one for each (bucket, input set). Several live side by side on one
// stack and take turns; each has its own load of the modules, workspaces and graphs.
//
// What serves is said in parts, the later ones above the earlier, all of them above the
// environment's KVR_FORCE_<OP> and KVR_<OP>_<TUNABLE>:
//
//   h200.json                                a selection file, in place of another
//   mla_sparse_decode/w8                     this variant at every key
//   mla_sparse_decode/w8{TARGET_CTAS=512}    ... with these tunables
//   mla_sparse_decode/TARGET_CTAS=512        this tunable, whatever variant serves
//
// An approximate variant serves where it was opted in to, or where a part names it with all of its
// quality tunables.
//
// A list says each of these once: of two variants of an op, or two values of a tunable, neither
// would be what was asked for. A tunable that is said is one of what serves then. What changes
// another contestant may say otherwise than it: a variant takes the place of the other's with its
// values, and tunables that came without one stay where the new variant has them.
//
// Threading, stream order: as the stack. Ownership: platform and stack outlive it. Errors: a part
// that fits nothing; a shape that cannot be loaded; what a capture met.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "api/decode/stack.h"
#include "api/platform.h"
#include "registry/dispatcher.h"
#include "registry/opt_in.h"
#include "registry/selection_file.h"

namespace kvr {

struct DecodeContestant {
  std::string selection_file;        // empty: every key is served by the baseline
  std::vector<std::string> parts;    // the others: --variant, --set
  std::vector<std::string> changes;  // above the parts: --ab
  std::vector<ApproximateOptIn> approximate;
};
// A change of `contestant`. Errors: it is no file that can be read, and names no op of the stack.
absl::Status AddChange(std::string_view part, DecodeContestant* contestant);
bool NamesOp(std::string_view part);  // is it "OP/..." of an op of the stack?

// What serves an op at some of the buckets.
struct DecodeServed {
  std::string op, variant;
  Config config;
  std::string why;
  std::vector<int64_t> buckets;
};

// Nothing is said twice. Open says so too, but may come late.
absl::Status CheckParts(const DecodeContestant& contestant);

class DecodeSide {
 public:
  // Loads: what serves is decided and built.
  static absl::StatusOr<std::unique_ptr<DecodeSide>> Open(const Platform& platform,
                                                          DecodeStack& stack,
                                                          const DecodeContestant& contestant,
                                                          absl::Span<const int64_t> buckets);
  ~DecodeSide();
  absl::Status Capture();  // once the stack is filled; freezes

  // Enqueues a step; SetBatch of the stack says of how many rows.
  absl::Status Replay(int64_t bucket, int set) {
    return graphs_.at({bucket, set})->Launch(stack_.stream());
  }

  const std::vector<DecodeServed>& served() const { return served_; }
  std::string digest() const;  // of what was selected; empty: nothing
  const std::vector<DroppedSelection>& dropped() const { return dropped_; }

 private:
  DecodeSide(DecodeStack& stack, absl::Span<const int64_t> buckets)
      : stack_(stack), buckets_(buckets.begin(), buckets.end()) {}
  absl::Status Load();
  absl::Status Capture(int64_t bucket, int set);

  DecodeStack& stack_;
  const std::vector<int64_t> buckets_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<DroppedSelection> dropped_;
  std::vector<DecodeServed> served_;
  std::map<std::pair<int64_t, int>, std::unique_ptr<Graph>> graphs_;
};

}  // namespace kvr
