// SPDX-License-Identifier: Apache-2.0
//
// Serves the clients of one socket, each on a thread of its own: whatever a client does, it keeps
// up nobody but itself. At most 16 at a time; a request of at most 1 MiB; a client that sends no
// request for a minute, or does not read for five seconds, is let go.
//
// Threading: the handler is called on the clients' threads, at once. The destructor tells the
// handlers to end (LiveTalk::Going) and waits for them.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/live_protocol.h"
#include "api/live_socket.h"

namespace kvr {

// One client, as a handler sees it.
class LiveTalk {
 public:
  LiveTalk(Connection& connection, const Wake& stop) : connection_(connection), stop_(stop) {}
  // False: the client is gone, or does not read.
  bool Send(const LiveJson& event);
  // Waits up to `timeout`. False: the client is gone, or the server ends.
  bool Going(absl::Duration timeout);
  // Whether the client has sent {"command": "stop"}, or anything else; never waits.
  bool Interrupted();
  bool stopping() const { return stop_.is_set(); }  // the server ends
  std::string who() const;                          // "pid 4711 uid 1000"

 private:
  friend class LiveServer;
  Connection& connection_;
  const Wake& stop_;
  bool gone_ = false;
};

class LiveServer {
 public:
  // Sends the events of one request; the last of them, an error that it returns included.
  using Handler = std::function<absl::Status(const LiveRequest& request, LiveTalk& talk)>;
  static absl::StatusOr<std::unique_ptr<LiveServer>> Start(const std::string& path,
                                                           Handler handler);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  static constexpr int kMostClients = 16;

 private:
  struct Client {
    std::unique_ptr<Connection> connection;
    std::atomic<bool> done{false};
    std::thread thread;
  };
  LiveServer(std::unique_ptr<Listener> listener, Handler handler);
  void Accept();
  void Serve(Connection& connection);
  void Reap();  // joins the clients that are done

  const Handler handler_;
  Wake stop_;
  std::unique_ptr<Listener> listener_;
  std::list<Client> clients_;  // of the accepting thread
  std::thread accepting_;
};

}  // namespace kvr
