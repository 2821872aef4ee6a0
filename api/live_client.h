// SPDX-License-Identifier: Apache-2.0
//
// The client's end of a running program's socket: what the `kvr` command asks through, and whoever
// else wants to.
//
//   KVR_ASSIGN_OR_RETURN(auto client, LiveClient::Connect("kvr.sock"));
//   KVR_ASSIGN_OR_RETURN(LiveJson status, client->Call({.command =
//   LiveRequest::Command::kStatus}));
//
// Threading: one thread. Errors: nobody listens, the program ended or does not answer, and what the
// program itself answers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/live_protocol.h"
#include "api/live_socket.h"

namespace kvr {

struct LiveCall {
  // Told of every event before the last. False: enough; a live A/B is asked to end.
  std::function<bool(const LiveJson& event)> each;
  // Looked at ten times a second; set: as if `each` had said enough.
  const std::atomic<bool>* cancel = nullptr;
  // Without a word from the program for so long. A swap may build for minutes before its next step.
  absl::Duration patience = absl::Seconds(10);
};

class LiveClient {
 public:
  static absl::StatusOr<std::unique_ptr<LiveClient>> Connect(const std::string& path);

  // The event that ends the request. kCancelled: enough was said of a request that goes on without
  // its client.
  absl::StatusOr<LiveJson> Call(const LiveRequest& request, const LiveCall& call = {});

  // The program's process.
  const PeerCredentials& peer() const { return connection_->peer(); }

 private:
  explicit LiveClient(std::unique_ptr<Connection> connection, std::string path)
      : connection_(std::move(connection)), path_(std::move(path)) {}
  absl::Status Send(const LiveRequest& request);
  absl::Status Gone() const;

  std::unique_ptr<Connection> connection_;
  const std::string path_;
};

}  // namespace kvr
