// SPDX-License-Identifier: Apache-2.0
//
// What a running program and the `kvr` command say to each other over its socket: one JSON object a
// line, documented in docs/formats.md. The client asks one thing at a time; the server answers with
// any number of lines that tell how it goes, then one that ends it:
//
//   > {"command": "swap", "op": "mla_sparse_decode", "variant": "w8", "canary": true}
//   < {"event": "progress", "swap": {"id": 7, "state": "running", "step": "verify", ...}}
//   < {"event": "result", "swap": {"id": 7, "state": "published", ...}}
//   < {"event": "error", "code": "NOT_FOUND", "what": "...", "fix": "..."}
//
// Threading: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/axes.h"
#include "core/config.h"

namespace kvr {

struct SwapRequest;
struct SwapResult;
struct PublicationRecord;

using LiveJson = nlohmann::ordered_json;

inline constexpr int kLiveProtocol = 1;
inline constexpr size_t kLongestRequest = size_t{1} << 20;
inline constexpr size_t kLongestAnswer = size_t{64} << 20;

// One side of a live A/B, or what a swap brings; one of these:
struct LiveTarget {
  std::string digest;          // a prefix of at least 8 digits; "current", "baseline", "previous"
  std::string selection_file;  // absolute
  std::string op, variant;     // "w8{BLOCK_H=16}"
  std::string bundle;          // absolute; of a swap only
};
std::string LiveTargetText(const LiveTarget& target);

struct LiveAbRequest {
  LiveTarget a, b;
  int block = 32;      // steps
  int warmup = 2;      // first steps of each bucket in a block that do not count
  double seconds = 0;  // at most; 0: until the client ends it
  uint64_t seed = 0;   // of the order; 0: drawn anew
};
inline constexpr int kLongestBlock = 4096;

struct LiveRequest {
  enum class Command { kStatus, kSwap, kRollback, kAb, kStop, kForget };
  Command command = Command::kStatus;
  bool selections = false;  // of status: also what the generation selects, as a selection file

  LiveTarget target;  // of swap and rollback
  std::vector<Axes> keys;
  bool verify = true, canary = false;
  bool wait = true;  // for the outcome; else the answer is the request's number

  LiveAbRequest ab;
};

// Strict: unknown fields and wrong types are errors that name the field.
absl::StatusOr<LiveRequest> ParseLiveRequest(std::string_view line);
LiveJson LiveRequestJson(const LiveRequest& request);

// As the swapper takes it; `who` is the peer.
SwapRequest ToSwapRequest(const LiveRequest& request, std::string who);

LiveJson SwapJson(const SwapResult& result);
LiveJson PublicationJson(const PublicationRecord& record);
LiveJson LiveErrorJson(const absl::Status& status);  // an event
absl::Status LiveErrorOf(const LiveJson& event);     // back into a status

// A line: invalid UTF-8, as paths may have it, is replaced.
std::string LiveLine(const LiveJson& json);

}  // namespace kvr
