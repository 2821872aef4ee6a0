// SPDX-License-Identifier: Apache-2.0
//
// The metrics endpoint: Boost.Beast on one thread. It takes one request a connection, bounded in
// size, time and number, and reads nothing of it but method and path.
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "api/metrics.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"

namespace kvr {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace ip = boost::asio::ip;
using boost::system::error_code;

constexpr uint32_t kHeaderBytes = 8 << 10;
constexpr int kConnections = 16;  // at a time; further ones wait in the kernel
constexpr std::chrono::seconds kTimeout{5};
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::string_view kExample = "give a loopback address and a port, as in 127.0.0.1:9464";

absl::StatusOr<ip::tcp::endpoint> ParseAddress(std::string_view text) {
  const auto refused = [&](std::string_view why) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("the metrics address ", Quoted(text), " ", why), kExample);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refused("has no port");
  std::string_view host = text.substr(0, colon);
  const absl::StatusOr<int64_t> port = ParseInteger(text.substr(colon + 1), /*negative=*/false);
  if (!port.ok() || *port > 65535) return refused("has no port between 0 and 65535");
  if (host == "localhost") host = "127.0.0.1";
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  error_code error;
  const ip::address address = ip::make_address(std::string(host), error);
  if (error || address.is_v6() != brackets) return refused("is no numeric address");
  if (!address.is_loopback()) return refused("can be reached from other machines");
  return ip::tcp::endpoint(address, static_cast<uint16_t>(*port));
}

std::string EndpointText(const ip::tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? StrCat("[", host, "]:", endpoint.port())
                                    : StrCat(host, ":", endpoint.port());
}

using Text = std::function<std::string()>;

http::response<http::string_body> Answer(const http::request_header<>& request, const Text& text) {
  http::response<http::string_body> response(http::status::ok, 11);
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  response.keep_alive(false);
  const beast::string_view path = request.target().substr(0, request.target().find('?'));
  if (path != "/metrics") {
    response.result(http::status::not_found);
    response.body() = "there is /metrics and nothing else\n";
  } else if (request.method() != http::verb::get) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET");
    response.body() = "GET alone is answered\n";
  } else {
    response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    response.body() = text();
  }
  response.prepare_payload();
  return response;
}

// One connection; keeps itself alive until it has answered, failed or run out of time. `slot` is
// given back with it.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(ip::tcp::socket socket, const Text& text, std::shared_ptr<void> slot)
      : stream_(std::move(socket)), text_(text), slot_(std::move(slot)) {
    parser_.header_limit(kHeaderBytes);
    parser_.body_limit(0);
  }

  void Run() {
    stream_.expires_after(kTimeout);
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              if (!error) self->Write();
                            });
  }

 private:
  void Write() {
    response_ = Answer(parser_.get(), text_);
    stream_.expires_after(kTimeout);
    http::async_write(stream_, response_, [self = shared_from_this()](error_code, size_t) {
      error_code ignored;
      self->stream_.socket().shutdown(ip::tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  const Text& text_;
  const std::shared_ptr<void> slot_;
  beast::flat_buffer buffer_{kHeaderBytes};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
};

}  // namespace

struct MetricsServer::Impl {
  explicit Impl(Text metrics) : text(std::move(metrics)) {}

  absl::Status Listen(const ip::tcp::endpoint& endpoint) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(ip::tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(ip::tcp::acceptor::max_listen_connections, error);
    if (!error) address = EndpointText(acceptor.local_endpoint(error));
    if (!error) return absl::OkStatus();
    return Error(
        absl::StatusCode::kUnavailable,
        StrCat("metrics cannot be served on ", EndpointText(endpoint), ": ", error.message()),
        "give another port; port 0 takes one that is free");
  }

  void Accept() {
    acceptor.async_accept([this](error_code error, ip::tcp::socket socket) {
      if (error == boost::asio::error::operation_aborted) return;
      if (error) {  // out of descriptors, say: not again at once
        timer.expires_after(kAcceptPause);
        timer.async_wait([this](error_code stopped) {
          if (!stopped) Accept();
        });
        return;
      }
      ++open;
      const std::shared_ptr<void> slot(nullptr, [this](void*) {
        if (open-- == kConnections && !stopping) Accept();
      });
      if (open < kConnections) Accept();
      std::make_shared<Session>(std::move(socket), text, slot)->Run();
    });
  }

  const Text text;
  std::string address;
  int open = 0;  // the loop's thread only
  bool stopping = false;
  boost::asio::io_context loop{1};
  ip::tcp::acceptor acceptor{loop};
  boost::asio::steady_timer timer{loop};
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    Text text) {
  KVR_ASSIGN_OR_RETURN(const ip::tcp::endpoint endpoint, ParseAddress(address));
  auto impl = std::make_unique<Impl>(std::move(text));
  KVR_RETURN_IF_ERROR(impl->Listen(endpoint));
  impl->Accept();
  KVR_ASSIGN_OR_RETURN(impl->thread, StartThread([&loop = impl->loop] { loop.run(); }));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() {
  impl_->loop.stop();
  impl_->thread.join();
  impl_->stopping = true;  // sessions that end with the loop take no new ones
}

const std::string& MetricsServer::address() const { return impl_->address; }

}  // namespace kvr
