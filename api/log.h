// SPDX-License-Identifier: Apache-2.0
//
// Structured logs: one JSON object a line for what happens to a running registry. Off unless
// KVR_LOG asks for it; KVR_LOG_FILE names a file to append to, else they go to standard error.
//
//   {"time": "2026-03-01T12:00:00.123Z", "level": "info", "event": "publish", "trigger": "bundle",
//    "before": "…", "after": "…", "outcome": "published", "prepare_ms": 41.2}
//
//   info   boot, load, publish (swaps, rollbacks and their failures), recapture, miss
//   debug  apply: every executable that was brought to another generation
//
// A Runtime opens one and tells it; an application has nothing to do.
//
// Misses are looked for once a second by a thread of the log's own, and told once a key: a launch
// never logs. An event that cannot be written is lost; the program is not disturbed.
//
// Threading: every function from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvr {

struct Applied;
struct LoadReport;
struct Miss;
struct PublicationRecord;

class Log {
 public:
  // By the environment; null: off. Errors: an unknown level, a file that cannot be opened.
  static absl::StatusOr<std::unique_ptr<Log>> FromEnvironment();
  // `level`: "info" or "debug". `file`: empty is standard error.
  static absl::StatusOr<std::unique_ptr<Log>> Open(std::string_view level, const std::string& file);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void Boot(std::string_view device, std::string_view selection_file, std::string_view digest);
  void Load(std::string_view op, const LoadReport& report, double milliseconds);
  void Publish(const PublicationRecord& record);
  void Apply(const Applied& applied);

  // Tells of the keys in `misses` that are new, once a second; StopWatching looks once more.
  absl::Status WatchMisses(std::function<std::vector<Miss>()> misses);
  void StopWatching();

 private:
  struct Impl;
  explicit Log(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
