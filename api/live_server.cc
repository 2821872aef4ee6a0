// SPDX-License-Identifier: Apache-2.0
#include "api/live_server.h"

#include <exception>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"

namespace kvr {
namespace {

constexpr absl::Duration kIdle = absl::Minutes(1);
constexpr absl::Duration kSend = absl::Seconds(5);

}  // namespace

bool LiveTalk::Send(const LiveJson& event) {
  if (!gone_) gone_ = !connection_.Write(LiveLine(event), kSend, &stop_);
  return !gone_;
}

bool LiveTalk::Going(absl::Duration timeout) {
  if (gone_) return false;
  gone_ = !connection_.Idle(timeout, &stop_);
  return !gone_ && !stop_.is_set();
}

bool LiveTalk::Interrupted() {
  std::string line;
  const Connection::Read read =
      connection_.ReadLine(&line, kLongestRequest, absl::ZeroDuration(), &stop_);
  if (read == Connection::Read::kGone || read == Connection::Read::kTooLong) gone_ = true;
  return read != Connection::Read::kTimeout;
}

std::string LiveTalk::who() const {
  return StrCat("pid ", connection_.peer().pid, " uid ", connection_.peer().uid);
}

absl::StatusOr<std::unique_ptr<LiveServer>> LiveServer::Start(const std::string& path,
                                                              Handler handler) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open(path));
  std::unique_ptr<LiveServer> server(new LiveServer(std::move(listener), std::move(handler)));
  if (server->stop_.fd() < 0) {
    return Error(absl::StatusCode::kResourceExhausted, "no descriptor to serve the socket",
                 "raise the limit on open files (ulimit -n)");
  }
  KVR_ASSIGN_OR_RETURN(server->accepting_, StartThread([raw = server.get()] { raw->Accept(); }));
  return server;
}

LiveServer::LiveServer(std::unique_ptr<Listener> listener, Handler handler)
    : handler_(std::move(handler)), listener_(std::move(listener)) {}

LiveServer::~LiveServer() {
  stop_.Set();
  if (accepting_.joinable()) accepting_.join();
  for (Client& client : clients_) client.thread.join();
}

void LiveServer::Reap() {
  for (auto client = clients_.begin(); client != clients_.end();) {
    if (!client->done.load(std::memory_order_acquire)) {
      ++client;
      continue;
    }
    client->thread.join();
    client = clients_.erase(client);
  }
}

void LiveServer::Accept() {
  while (std::unique_ptr<Connection> connection = listener_->Accept(stop_)) {
    Reap();
    absl::Status refused;
    if (clients_.size() >= kMostClients) {
      refused = Error(absl::StatusCode::kResourceExhausted,
                      StrCat("the program has ", clients_.size(), " clients already"),
                      "end one of them, or try again");
    } else {
      Client& client = clients_.emplace_back();
      client.connection = std::move(connection);
      absl::StatusOr<std::thread> thread = StartThread([this, &client] {
        Serve(*client.connection);
        client.connection.reset();
        client.done.store(true, std::memory_order_release);
      });
      if (thread.ok()) {
        client.thread = *std::move(thread);
        continue;
      }
      connection = std::move(client.connection);
      clients_.pop_back();
      refused = WithContext("the program", thread.status());
    }
    connection->Write(LiveLine(LiveErrorJson(refused)), absl::ZeroDuration(), &stop_);
  }
}

void LiveServer::Serve(Connection& connection) {
  LiveTalk talk(connection, stop_);
  const auto answer = [&](const absl::Status& status) {
    if (!status.ok()) talk.Send(LiveErrorJson(status));
  };
  std::string line;
  while (!talk.gone_) {
    switch (connection.ReadLine(&line, kLongestRequest, kIdle, &stop_)) {
      case Connection::Read::kGone:
      case Connection::Read::kStopped:
        return;
      case Connection::Read::kTimeout:
        return answer(Error(absl::StatusCode::kDeadlineExceeded, "no request for a minute",
                            "connect again when there is one"));
      case Connection::Read::kTooLong:
        return answer(Error(absl::StatusCode::kInvalidArgument,
                            StrCat("the request is longer than ", kLongestRequest, " bytes"),
                            "send a shorter one"));
      case Connection::Read::kLine:
        break;
    }
    const absl::StatusOr<LiveRequest> request = ParseLiveRequest(line);
    if (!request.ok()) {
      answer(request.status());
      continue;
    }
    try {
      answer(handler_(*request, talk));
    } catch (const std::exception& exception) {
      answer(Error(absl::StatusCode::kInternal,
                   StrCat("the request failed: ", std::string_view(exception.what())),
                   "free memory, and try again"));
    }
  }
}

}  // namespace kvr
