// SPDX-License-Identifier: Apache-2.0
//
// A running program made visible and changeable from outside: `kvr status`, `kvr swap`, `kvr
// rollback` and `kvr ab --live` talk to it over a UNIX socket; the serving loop tells it where its
// steps begin and end.
//
//   KVR_ASSIGN_OR_RETURN(auto live, Live::Start(*runtime, swapper.get(), {.socket = "kvr.sock"}));
//   while (serving) {
//     KVR_RETURN_IF_ERROR(live->BeginStep(bucket));     // a live A/B may publish here
//     KVR_ASSIGN_OR_RETURN(Applied applied, binding.Apply(exec));
//     live->CountApplied(applied);                      // whether this step runs what serves
//     ... launch the graph, wait for it ...
//     live->EndStep(bucket, microseconds);
//   }
//
// The socket has mode 0600 and answers peers of the same user (or root) only. One JSON object a
// line each way (docs/formats.md). Requests never block a step, but that a live A/B changes the
// generation at a step boundary, every `block` steps; when it ends, or its client goes away, the
// generation that served before serves again. Swaps that are asked for meanwhile wait or, over the
// socket, are refused.
//
// Threading: BeginStep and EndStep from one thread, the serving loop's; the rest from any thread.
// Both are wait-free and allocate nothing, but while a live A/B runs or metrics are served: these
// take a lock that a scrape holds for moments.
// Ownership: runtime and swapper outlive it; the swapper may be null, then swaps are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/runtime.h"

namespace kvr {

class Swapper;

struct LiveOptions {
  std::string socket;   // path; a stale socket is replaced, a live one refused
  std::string metrics;  // "127.0.0.1:9464"; empty: no endpoint. Loopback addresses only
  std::string name;     // of the program, in `kvr status`
};

class Live {
 public:
  static absl::StatusOr<std::unique_ptr<Live>> Start(Runtime& runtime, Swapper* swapper,
                                                     LiveOptions options);
  ~Live();

  // `bucket`: what steps are comparable, a batch size say; at most 64 different ones are told
  // apart. kInvalidArgument: it is empty, or longer than 31 bytes.
  absl::Status BeginStep(std::string_view bucket);
  void EndStep(std::string_view bucket, double microseconds);
  // A step that went wrong; shown in status and metrics.
  void CountError();
  // What Apply said, for status, metrics and log.
  void CountApplied(const Applied& applied);
  // Where metrics are served, with the port that was given for 0; empty: nowhere.
  std::string metrics_address() const;

 private:
  class Impl;
  explicit Live(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr
