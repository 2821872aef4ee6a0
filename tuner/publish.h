// SPDX-License-Identifier: Apache-2.0
//
// Winners into a selection file. Several processes may tune into one file: each publication takes
// a lock beside it (PATH.lock), reads what is there now, adds its keys and replaces the file, so
// nobody's key is lost. Where the file system has no locks the last writer's whole file stands.
//
// A file may hold selections that this process cannot carry over: of a variant it does not know
// (tuned with other --plugins) or that has changed since. Publishing would delete them, so it is
// refused, unless they are among the keys being tuned anew.
//
// All keys of an operation in a file have one key policy. To publish under another deletes what is
// selected under the old one, which is refused unless the publication says that it knows of it.
//
// Threading: any thread, any process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/device_info.h"
#include "core/key_policy.h"
#include "registry/catalog.h"
#include "registry/generation.h"
#include "registry/selection_file.h"
#include "tuner/space.h"

namespace kvr {

// What `path` selects; a null generation if there is no such file.
absl::StatusOr<LoadedSelections> ReadIncumbents(const std::string& path, const Catalog& catalog,
                                                const DeviceInfo& device);

struct Publication {
  std::string op;
  KeyPolicy policy;
  BucketedKey key;
  Selection selection;
  std::vector<BucketedKey> retuned;  // further keys of `op` whose old selections may go
  // What `selection` was compared with. Where the file selects yet another config by now, which
  // nobody compared with this one, nothing is published. Unset: whatever is there is replaced.
  std::optional<Candidate> incumbent;
  // The generation whose selections of `op`, keyed by another policy, may go; null: none may.
  GenerationPtr rekeyed;
};

// Of `dropped`, what publishing would delete: "mla_sparse_decode {topk=512}: w8, because ...";
// empty if nothing.
std::string LostBy(const Publication& publication, absl::Span<const DroppedSelection> dropped);

// All of them or none. Returns the generation written. Errors: kFailedPrecondition, selections
// would be lost; kAborted, another than the incumbent was selected meanwhile, or keyed by another
// policy; kUnavailable, another process holds the lock or the file cannot be written. In each case
// the file is as it was. `before` (may be null): the digest of the generation that was there;
// empty: none was.
absl::StatusOr<GenerationPtr> PublishSelections(const std::string& path, const Catalog& catalog,
                                                const DeviceInfo& device,
                                                std::vector<Publication> publications,
                                                double lock_timeout_s = 10,
                                                std::string* before = nullptr);
absl::StatusOr<GenerationPtr> PublishSelection(const std::string& path, const Catalog& catalog,
                                               const DeviceInfo& device, Publication publication,
                                               double lock_timeout_s = 10,
                                               std::string* before = nullptr);

}  // namespace kvr
