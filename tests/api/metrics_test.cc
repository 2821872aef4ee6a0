// SPDX-License-Identifier: Apache-2.0
//
// What Prometheus reads, and an endpoint that answers it and nobody else.
#include "api/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "api/runtime.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection to the server at `address`.
class Client {
 public:
  explicit Client(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in peer{.sin_family = AF_INET};
    const size_t colon = address.rfind(':');
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr);
    peer.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&peer), sizeof peer) == 0;
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void Send(std::string_view bytes) const {
    send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string Receive() const {  // until the server closes
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = recv(socket_, buffer, sizeof buffer, 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  const int socket_;
  bool connected_ = false;
};

std::string Ask(const MetricsServer& server, std::string_view request) {
  const Client client(server.address());
  client.Send(request);
  return client.Receive();
}

std::unique_ptr<MetricsServer> Start(std::function<std::string()> text) {
  absl::StatusOr<std::unique_ptr<MetricsServer>> server =
      MetricsServer::Start("127.0.0.1:0", std::move(text));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(MetricsServer, AnswersGetMetricsWithTheTextOfNow) {
  std::atomic<int> asked{0};
  const auto server = Start([&] { return StrCat("kvr_asked ", ++asked, "\n"); });
  EXPECT_THAT(server->address(), Not(::testing::EndsWith(":0")));
  const std::string first = Ask(*server, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(first, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(first, ::testing::EndsWith("\r\n\r\nkvr_asked 1\n"));
  EXPECT_THAT(Ask(*server, "GET /metrics?name[]=x HTTP/1.0\r\n\r\n"), HasSubstr("kvr_asked 2\n"));
}

TEST(MetricsServer, AnswersNothingElse) {
  const auto server = Start([] { return std::string("secret\n"); });
  const std::pair<const char*, const char*> cases[] = {
      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 "},
      {"GET /metrics/../metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 "},
      {"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405 "},
      {"DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 "},
      {"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 "},
  };
  for (const auto& [request, status] : cases) {
    const std::string answer = Ask(*server, request);
    EXPECT_THAT(answer, StartsWith(status)) << request;
    EXPECT_THAT(answer, Not(HasSubstr("secret"))) << request;
  }
}

TEST(MetricsServer, DropsWhatIsNoRequestOrTooLargeAndServesOn) {
  const auto server = Start([] { return std::string("fine\n"); });
  const std::string large = "GET /metrics HTTP/1.1\r\nA: " + std::string(1 << 16, 'a');
  for (const std::string& request : {std::string("\x16\x03\x01 hello\r\n\r\n"), large}) {
    EXPECT_THAT(Ask(*server, request), Not(HasSubstr("fine")));
  }
  { const Client gone(server->address()); }  // hangs up without a word
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), HasSubstr("fine\n"));
}

TEST(MetricsServer, MoreClientsThanItTakesAtATimeAreAllAnswered) {
  const auto server = Start([] { return std::string("fine\n"); });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<Client>(server->address()));
    ASSERT_TRUE(clients.back()->connected());
  }
  // All at once: who says nothing for five seconds is dropped, and answers take their time.
  for (const auto& client : clients) client->Send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
  for (const auto& client : clients) EXPECT_THAT(client->Receive(), HasSubstr("fine\n"));
}

TEST(MetricsServer, EndsWithClientsThatSayNothing) {
  auto server = Start([] { return std::string("fine\n"); });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(std::make_unique<Client>(server->address()));
  server.reset();
  EXPECT_EQ(clients.front()->Receive(), "");
}

TEST(MetricsServer, RefusesAddressesThatOthersReach) {
  for (const char* address : {"0.0.0.0:9464", "192.168.1.7:9464", "[::]:9464", "[2001:db8::1]:1",
                              "[::ffff:127.0.0.1]:9464", "*:9464", ":9464", "127.0.0.1", "9464",
                              "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:0x10",
                              "::1:9464", "example.org:9464", ""}) {
    const absl::Status refused =
        MetricsServer::Start(address, [] { return std::string(); }).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(Fix(refused)), HasSubstr("127.0.0.1:9464")) << address;
  }
}

TEST(MetricsServer, AnAddressInUseIsSaid) {
  const auto server = Start([] { return std::string(); });
  const absl::Status refused =
      MetricsServer::Start(server->address(), [] { return std::string(); }).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(What(refused)), HasSubstr(server->address()));
}

// --- the text

struct Parsed {
  std::map<std::string, std::string> types;  // by metric
  std::map<std::string, double> samples;     // by "name{labels}"
};

// Holds the text to the format: HELP, TYPE, then the metric's samples, nothing twice.
Parsed Parse(const std::string& text) {
  static const std::regex kHelp("# HELP (kvr_[a-z_]+) \\S.*");
  static const std::regex kType("# TYPE (kvr_[a-z_]+) (counter|gauge|histogram)");
  static const std::regex kSample(
      "(kvr_[a-z_]+)(\\{[a-z]+=\"(?:[^\"\\\\]|\\\\.)*\"(?:,[a-z]+=\"(?:[^\"\\\\]|\\\\.)*\")*\\})? "
      "([0-9.e+-]+)");
  Parsed parsed;
  std::istringstream lines(text);
  std::string metric;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kHelp)) {
      metric = match[1];
      EXPECT_EQ(parsed.types.count(metric), 0u) << line;
    } else if (std::regex_match(line, match, kType)) {
      EXPECT_EQ(match[1], metric) << line;
      parsed.types[metric] = match[2];
    } else if (std::regex_match(line, match, kSample)) {
      EXPECT_THAT(match[1].str(), StartsWith(metric)) << line;
      EXPECT_TRUE(
          parsed.samples.emplace(match[1].str() + match[2].str(), std::stod(match[3])).second)
          << line;
    } else {
      ADD_FAILURE() << "no line of the format: " << line;
    }
  }
  EXPECT_THAT(text, ::testing::EndsWith("\n"));
  return parsed;
}

class MetricsTextTest : public ::testing::Test {
 protected:
  MetricsTextTest() : runtime_(Runtime::Open({.device = "null", .compilers = false}).value()) {}
  Parsed Text() const { return Parse(MetricsText(*runtime_)); }

  const std::unique_ptr<Runtime> runtime_;
};

TEST_F(MetricsTextTest, CountersEndInTotalAndTimesInSeconds) {
  for (const auto& [metric, type] : Text().types) {
    const bool total = metric.size() > 6 && metric.substr(metric.size() - 6) == "_total";
    EXPECT_EQ(total, type == "counter") << metric;
    if (type == "histogram") {
      EXPECT_THAT(metric, ::testing::EndsWith("_seconds"));
    }
  }
}

TEST_F(MetricsTextTest, NamesThatDashboardsUseStay) {
  const Parsed text = Text();
  for (const char* metric : {"kvr_device_info",
                             "kvr_generation_info",
                             "kvr_launches_total",
                             "kvr_captured_launches_total",
                             "kvr_misses_total",
                             "kvr_miss_answers_total",
                             "kvr_builds_total",
                             "kvr_compiles_total",
                             "kvr_compile_failures_total",
                             "kvr_cache_hits_total",
                             "kvr_cache_misses_total",
                             "kvr_publications_total",
                             "kvr_rollbacks_total",
                             "kvr_applies_total",
                             "kvr_recaptures_total",
                             "kvr_retired_total",
                             "kvr_patch_seconds",
                             "kvr_patched_nodes_total",
                             "kvr_load_seconds",
                             "kvr_publish_seconds",
                             "kvr_step_seconds",
                             "kvr_step_errors_total"}) {
    EXPECT_EQ(text.types.count(metric), 1u) << metric;
  }
}

TEST_F(MetricsTextTest, AHistogramCountsEachValueAtEveryBoundaryAbove) {
  Metrics& metrics = runtime_->metrics();
  metrics.CountStep("48", 20);  // on a boundary: within it
  metrics.CountStep("48", 20.001);
  metrics.CountStep("48", 1e9);  // above all
  const Parsed text = Text();
  const auto bucket = [&](const char* le) {
    return text.samples.at(StrCat("kvr_step_seconds_bucket{bucket=\"48\",le=\"", le, "\"}"));
  };
  EXPECT_EQ(bucket("1e-05"), 0);
  EXPECT_EQ(bucket("2e-05"), 1);
  EXPECT_EQ(bucket("5e-05"), 2);
  EXPECT_EQ(bucket("50"), 2);
  EXPECT_EQ(bucket("+Inf"), 3);
  EXPECT_EQ(text.samples.at("kvr_step_seconds_count{bucket=\"48\"}"), 3);
  EXPECT_NEAR(text.samples.at("kvr_step_seconds_sum{bucket=\"48\"}"), 1000, 0.01);
}

TEST_F(MetricsTextTest, BoundariesAreTheSameWithAndWithoutValues) {
  const auto boundaries = [](const Parsed& text) {
    std::set<std::string> found;
    for (const auto& [name, value] : text.samples) {
      if (name.rfind("kvr_load_seconds_bucket", 0) == 0) found.insert(name);
    }
    return found;
  };
  const auto before = boundaries(Text());
  runtime_->metrics().CountLoad(0.5, /*ready=*/true);
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(boundaries(Text()), before);
}

TEST_F(MetricsTextTest, LabelsAreEscaped) {
  runtime_->metrics().CountStep("a\"b\\c\nd", 1);
  EXPECT_EQ(Text().samples.count("kvr_step_seconds_count{bucket=\"a\\\"b\\\\c\\nd\"}"), 1u);
}

TEST_F(MetricsTextTest, BucketsBeyondTheLimitAreCountedTogether) {
  for (int i = 0; i < 1000; ++i) runtime_->metrics().CountStep(StrCat("b", i), 1);
  const Parsed text = Text();
  EXPECT_EQ(text.samples.at("kvr_step_seconds_count{bucket=\"other\"}"), 1000 - 64);
  EXPECT_EQ(text.samples.at("kvr_step_seconds_count{bucket=\"b0\"}"), 1);
}

TEST_F(MetricsTextTest, PatchesAreCountedByWay) {
  runtime_->metrics().CountApplied({.outcome = Applied::kApplied, .nodes = 8, .microseconds = 6});
  runtime_->metrics().CountApplied(
      {.outcome = Applied::kApplied, .nodes = 8, .whole_graph = true, .microseconds = 20});
  runtime_->metrics().CountApplied({.outcome = Applied::kUnchanged});
  runtime_->metrics().CountApplied({.outcome = Applied::kNeedsRecapture});
  const Parsed text = Text();
  EXPECT_EQ(text.samples.at("kvr_patch_seconds_count{way=\"node\"}"), 1);
  EXPECT_EQ(text.samples.at("kvr_patch_seconds_count{way=\"graph\"}"), 1);
  EXPECT_EQ(text.samples.at("kvr_patched_nodes_total"), 16);
}

TEST_F(MetricsTextTest, PublicationsAreCountedByTriggerAndOutcomeWithoutAJournalToo) {
  const GenerationPtr next =
      GenerationBuilder(runtime_->device().info().model, runtime_->device().info().target).Build(1);
  ASSERT_TRUE(runtime_->Publish(next, {.trigger = "bundle"}).ok());
  runtime_->dispatcher().RecordFailure({.trigger = "bundle", .outcome = "failed"});
  const Parsed text = Text();
  double publications = 0;
  for (const auto& [name, value] : text.samples) {
    if (name.rfind("kvr_publications_total{trigger=\"bundle\"", 0) == 0) publications += value;
  }
  EXPECT_EQ(publications, 2);
  EXPECT_EQ(text.samples.at("kvr_publications_total{trigger=\"bundle\",outcome=\"failed\"}"), 1);
}

}  // namespace
}  // namespace kvr
