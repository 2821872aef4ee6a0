// SPDX-License-Identifier: Apache-2.0
#include "api/live_client.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr absl::Duration kSend = absl::Seconds(10);
constexpr absl::Duration kLastWord = absl::Seconds(10);  // after a stop

std::string_view EventOf(const LiveJson& line) {
  const auto event = line.find("event");
  if (event == line.end() || !event->is_string()) return {};
  return event->get_ref<const std::string&>();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LiveClient>> LiveClient::Connect(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Connection::Connect(path));
  return std::unique_ptr<LiveClient>(new LiveClient(std::move(connection), path));
}

absl::Status LiveClient::Gone() const {
  return Error(absl::StatusCode::kUnavailable,
               StrCat("the program on ", path_, " closed the connection"),
               "look at its own output, and whether it still runs");
}

absl::Status LiveClient::Send(const LiveRequest& request) {
  return connection_->Write(LiveLine(LiveRequestJson(request)), kSend) ? absl::OkStatus() : Gone();
}

absl::StatusOr<LiveJson> LiveClient::Call(const LiveRequest& request, const LiveCall& call) {
  // A server that is full says so unasked, and closes: what it said is more than that it is gone.
  const absl::Status sent = Send(request);
  bool enough = false;
  absl::Time deadline = absl::Now() + call.patience;
  std::string text;
  while (true) {
    if (!enough && call.cancel != nullptr && call.cancel->load()) {
      enough = true;
      deadline = absl::Now() + kLastWord;
      if (request.command != LiveRequest::Command::kAb) break;
      KVR_RETURN_IF_ERROR(Send({.command = LiveRequest::Command::kStop}));
    }
    const absl::Duration left = deadline - absl::Now();
    switch (connection_->ReadLine(&text, kLongestAnswer, std::min(left, kLook))) {
      case Connection::Read::kLine:
        break;
      case Connection::Read::kTimeout:
      case Connection::Read::kStopped:
        if (absl::Now() < deadline) continue;
        return Error(absl::StatusCode::kDeadlineExceeded,
                     StrCat("the program on ", path_, " does not answer"),
                     "see whether it hangs; it may also be stopped in a debugger");
      case Connection::Read::kGone:
        return sent.ok() ? Gone() : sent;
      case Connection::Read::kTooLong:
        return Error(absl::StatusCode::kInternal,
                     StrCat(path_, " sends lines of more than ", kLongestAnswer, " bytes"),
                     "name the socket of a program that serves through KVR");
    }
    LiveJson line = LiveJson::parse(text, nullptr, /*allow_exceptions=*/false);
    const std::string_view event = line.is_object() ? EventOf(line) : std::string_view();
    if (event.empty()) {
      return Error(absl::StatusCode::kInternal, StrCat(path_, " sends what is no event"),
                   "name the socket of a program that serves through KVR of this version");
    }
    if (event == "result") return line;
    if (event == "error") return LiveErrorOf(line);
    if (!enough) deadline = absl::Now() + call.patience;
    if (!enough && call.each != nullptr && !call.each(line)) {
      enough = true;
      deadline = absl::Now() + kLastWord;
      if (request.command != LiveRequest::Command::kAb) break;
      KVR_RETURN_IF_ERROR(Send({.command = LiveRequest::Command::kStop}));
    }
  }
  return Error(absl::StatusCode::kCancelled, "interrupted; the program goes on with the request",
               "see `kvr status` for how it went");
}

}  // namespace kvr
