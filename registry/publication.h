// SPDX-License-Identifier: Apache-2.0
//
// The journal of publications: who made which generation serve, why, and how that went; failures
// too. A process that links the ledger writes there; a serving process without it appends lines of
// JSON to a file, by default beside its selection file.
//
// Threading: Record may be called from any thread, one call at a time; locks of the dispatcher are
// held, so it must not call that. It never fails the publication: an unwritable journal is said
// once on stderr, then counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "registry/generation.h"

namespace kvr {

struct PublicationRecord {
  std::string time;  // RFC 3339, UTC
  // "boot", "api", "selection-file", "bundle", "plugin", "rollback", "live-ab";
  // "apply": an executable could not be brought to a generation that is published
  std::string trigger;
  std::string who;            // "pid 4711 uid 1000"; of a request over a socket: the peer's
  std::string before, after;  // generation digests, hex; `after` is empty where nothing was built
  std::vector<std::string> changes;  // "mla_sparse_decode {topk=512}: baseline {} -> w8 {…}"
  std::string outcome;               // "published", "unchanged" (it served already), "failed"
  std::string reason;                // of a failure; of a publication what it rests on
  double prepare_ms = 0;             // compile, load and plan
  // The journal is not told, unless it fails: one of the many of a live A/B, whose start and end
  // are told.
  bool quiet = false;
  // The digest that must serve when this is published, else it fails with kAborted: nothing that
  // somebody else has published meanwhile is replaced. Empty: whatever serves.
  std::string only_over;
};

class PublicationSink {
 public:
  virtual ~PublicationSink() = default;
  virtual void Record(const PublicationRecord& record) = 0;
  virtual uint64_t lost() const = 0;  // records that could not be written
};

// Appends to `path`, which is made with mode 0644, one JSON object a line with the fields above,
// each in one write: several processes may share a file on a local disk. What was half written
// when a disk filled up is ended by a line break, so later lines stay whole.
absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationFile(const std::string& path);

// A line for each key for which the two select differently; a key that is not selected is named
// "baseline". Sorted by op and key.
std::vector<std::string> ChangesBetween(const Generation& before, const Generation& after);

// Time, trigger ("api") and who ("pid N uid M" of this process), where `record` leaves them out.
void FillPublication(PublicationRecord* record);

}  // namespace kvr
