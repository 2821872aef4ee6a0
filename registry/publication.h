// SPDX-License-Identifier: Apache-2.0
//
// The journal of publications: who made which generation serve, why, and how that went; failures
// too. A process that links the ledger writes there; a serving process without it appends lines of
// JSON to a file, by default beside its selection file.
//
// Threading: Record may be called from any thread, one call at a time (the dispatcher's loading
// lock is held). It never fails the publication: an unwritable journal is said once, then counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvr {

struct PublicationRecord {
  std::string time;  // RFC 3339, UTC
  std::string
      trigger;      // "boot", "api", "selection-file", "bundle", "plugin", "rollback", "live-ab"
  std::string who;  // "pid 4711 uid 1000"; of a request over a socket: the peer's
  std::string before, after;  // generation digests, hex; `after` is empty where nothing was built
  std::vector<std::string> changes;  // "mla_sparse_decode {topk=512}: baseline {…} -> w8 {…}"
  std::string outcome;               // "published", "failed"
  std::string reason;                // of a failure; of a publication what it rests on
  double prepare_ms = 0;             // compile, load and plan
};

class PublicationSink {
 public:
  virtual ~PublicationSink() = default;
  virtual void Record(const PublicationRecord& record) = 0;
  virtual uint64_t lost() const = 0;  // records that could not be written
};

// Appends to `path`, one JSON object a line, each in one write.
absl::StatusOr<std::unique_ptr<PublicationSink>> OpenPublicationFile(const std::string& path);

}  // namespace kvr
