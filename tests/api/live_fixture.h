// SPDX-License-Identifier: Apache-2.0
//
// A program on the null device that talks over a socket in a directory of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "api/live.h"
#include "api/live_client.h"
#include "api/runtime.h"

namespace kvr {

constexpr absl::Duration kPatience = absl::Minutes(30);  // of what hangs, and of nothing else

class LiveTest : public ::testing::Test {
 protected:
  LiveTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "kvr-live-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    setenv("KVR_CACHE_DIR", (directory_ / "cache").c_str(), 1);
    socket_ = directory_ / "kvr.sock";
  }
  ~LiveTest() override {
    live_.reset();
    runtime_.reset();
    unsetenv("KVR_CACHE_DIR");
    std::filesystem::remove_all(directory_);
  }

  // Starts a program that serves nothing yet.
  void Start() {
    absl::StatusOr<std::unique_ptr<Runtime>> runtime =
        Runtime::Open({.device = "null", .compilers = false});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    absl::StatusOr<std::unique_ptr<Live>> live =
        Live::Start(*runtime_, nullptr, {.socket = socket_, .name = "program"});
    ASSERT_TRUE(live.ok()) << live.status();
    live_ = *std::move(live);
  }
  std::unique_ptr<LiveClient> Client() {
    absl::StatusOr<std::unique_ptr<LiveClient>> client = LiveClient::Connect(socket_);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  absl::StatusOr<LiveJson> Ask(const LiveRequest& request) {
    return Client()->Call(request, {.patience = kPatience});
  }
  LiveJson Status() {
    absl::StatusOr<LiveJson> status = Ask({});
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? *status : LiveJson();
  }
  std::unique_ptr<Connection> Raw() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connection::Connect(socket_);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *std::move(connection) : nullptr;
  }
  // Publishes a generation of no selections for an operation: a digest of its own.
  void Publish(const char* policy, int64_t number) {
    const DeviceInfo& info = runtime_->device().info();
    GenerationBuilder builder(info.model, info.target);
    builder.SetPolicy(
        "mla_sparse_decode",
        *KeyPolicy::Parse(policy, (*runtime_->catalog().FindOp("mla_sparse_decode"))->spec()));
    ASSERT_TRUE(runtime_->Publish(builder.Build(number)).ok());
  }

  std::filesystem::path directory_;
  std::string socket_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Live> live_;
};

}  // namespace kvr
