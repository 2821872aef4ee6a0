// SPDX-License-Identifier: Apache-2.0
//
// What a running program counts, as Prometheus text (exposition format 0.0.4), and the endpoint
// that serves it. Off unless LiveOptions::metrics names an address.
//
//   runtime.metrics().CountStep("48", microseconds);
//   KVR_ASSIGN_OR_RETURN(auto server, MetricsServer::Start("127.0.0.1:9464", [&runtime] {
//     return MetricsText(runtime);
//   }));
//
// Names begin with kvr_, times are in seconds, counters end in _total; docs/serving.md lists them.
// They count from the start of the process, as Prometheus expects.
//
// Threading: every function from any thread. Capture safety: nothing here touches a device, and no
// launch comes by here: what launches count lies in the registry and is read when asked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace kvr {

class Runtime;
struct Applied;
struct PublicationRecord;

// What the registry does not count itself. A Runtime has one, and feeds loads and publications.
class Metrics {
 public:
  void CountLoad(double seconds, bool ready);
  // Swaps, rollbacks and failures, as the journal is told of them.
  void CountPublication(const PublicationRecord& record);
  void CountApplied(const Applied& applied);
  // `bucket`: at most 64 different ones; further ones are counted together as "other".
  void CountStep(std::string_view bucket, double microseconds);
  void CountStepError();

 private:
  friend std::string MetricsText(const Runtime& runtime);
  struct Histogram {
    void Add(double seconds);
    std::vector<uint64_t> counts;  // by boundary, not cumulative; the last: above all
    double sum = 0;
  };
  void Append(std::string* text) const;

  mutable std::mutex mutex_;
  Histogram load_, publish_;
  std::map<std::string, Histogram> patch_, steps_;                        // by way; by bucket
  std::map<std::pair<std::string, std::string>, uint64_t> publications_;  // trigger, outcome
  uint64_t loads_not_ready_ = 0, patched_nodes_ = 0, step_errors_ = 0;
};

// Everything: the above, and what registry, compiler and cache of `runtime` have counted.
std::string MetricsText(const Runtime& runtime);

// Answers GET /metrics on a loopback address, from a thread of its own, and nothing else.
class MetricsServer {
 public:
  // `address`: "127.0.0.1:9464", "[::1]:9464" or "localhost:9464"; port 0: one that is free.
  // kInvalidArgument: no such address, or one that others could reach; kUnavailable: in use.
  // `text` is called on the server's thread until this object is gone.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              std::function<std::string()> text);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  const std::string& address() const;  // with the port that it listens on

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
