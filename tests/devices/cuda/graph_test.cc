// SPDX-License-Identifier: Apache-2.0
//
// What a capture does when the driver refuses one of its calls; gpu_test.cc and the conformance
// suite do the rest, on a real one.
#include "devices/cuda/graph.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "core/status.h"

namespace kvr::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class CaptureOnFakeDriver : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = LoadDriver(KVR_FAKE_DRIVER);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    calls_ = reinterpret_cast<const char* (*)()>(
        dlsym(dlopen(KVR_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL), "fake_cuda_calls"));
    ASSERT_NE(calls_, nullptr);
    calls_();
  }
  void TearDown() override {
    unsetenv("FAKE_CUDA_FAILS");
    unsetenv("FAKE_CUDA_NODES");
  }

  absl::StatusOr<std::unique_ptr<Graph>> Capture(bool keep_graph = false) {
    KVR_RETURN_IF_ERROR(BeginCapture(driver_, nullptr, stream_, CaptureMode::kThreadLocal));
    return EndCapture(driver_, nullptr, stream_, keep_graph);
  }

  Driver driver_;
  const char* (*calls_)() = nullptr;
  int place_ = 0;
  const StreamHandle stream_ = reinterpret_cast<StreamHandle>(&place_);
};

TEST_F(CaptureOnFakeDriver, UploadsBeforeTheFirstLaunchAndLeavesNothingBehind) {
  {
    const auto graph = Capture();
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_STREQ(calls_(),
                 "StreamBeginCapture StreamEndCapture GraphGetNodes GraphInstantiateWithFlags "
                 "GraphUpload GraphDestroy");
    EXPECT_EQ((*graph)->Launch({}), absl::OkStatus());
    EXPECT_STREQ(calls_(), "GraphLaunch");
  }
  EXPECT_STREQ(calls_(), "GraphExecDestroy");
}

TEST_F(CaptureOnFakeDriver, EachCallThatFailsIsNamedAndWhatWasMadeIsDestroyed) {
  const struct {
    const char* fails;
    const char* calls;
  } cases[] = {
      {"cuStreamBeginCapture 1", "StreamBeginCapture"},
      {"cuStreamEndCapture 901", "StreamBeginCapture StreamEndCapture"},
      {"cuGraphGetNodes 1", "StreamBeginCapture StreamEndCapture GraphGetNodes GraphDestroy"},
      {"cuGraphInstantiateWithFlags 2",
       "StreamBeginCapture StreamEndCapture GraphGetNodes GraphInstantiateWithFlags GraphDestroy"},
      {"cuGraphUpload 2",
       "StreamBeginCapture StreamEndCapture GraphGetNodes GraphInstantiateWithFlags GraphUpload "
       "GraphExecDestroy GraphDestroy"},
  };
  for (const auto& c : cases) {
    setenv("FAKE_CUDA_FAILS", c.fails, 1);
    const absl::Status status = Capture().status();
    EXPECT_FALSE(status.ok()) << c.fails;
    const std::string call(c.fails, std::string_view(c.fails).find(' '));
    EXPECT_THAT(std::string(What(status)), HasSubstr(call));
    EXPECT_FALSE(Fix(status).empty()) << c.fails;
    EXPECT_STREQ(calls_(), c.calls) << c.fails;
    EXPECT_EQ(RefuseCapturing(driver_, "Launch", stream_), absl::OkStatus()) << c.fails;
  }
  unsetenv("FAKE_CUDA_FAILS");
  EXPECT_TRUE(Capture().ok());
}

TEST_F(CaptureOnFakeDriver, AGraphThatIsKeptIsDestroyedAfterItsExecutable) {
  {
    const auto graph = Capture(/*keep_graph=*/true);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_NE((*graph)->exec().handle, nullptr);
    EXPECT_STREQ(calls_(),
                 "StreamBeginCapture StreamEndCapture GraphGetNodes GraphInstantiateWithFlags "
                 "GraphUpload");
  }
  EXPECT_STREQ(calls_(), "GraphExecDestroy GraphDestroy");
}

TEST_F(CaptureOnFakeDriver, WhyACaptureCannotEndComesWithWhatToDo) {
  const struct {
    const char* fails;
    const char* fix;
  } cases[] = {
      {"cuStreamEndCapture 401", "begin the capture"},
      {"cuStreamEndCapture 900", "allocate, load and synchronize before"},
      {"cuStreamEndCapture 901", "allocate, load and synchronize before"},
      {"cuStreamEndCapture 903", "on the stream that began it"},
      {"cuStreamEndCapture 904", "wait for every stream that joined"},
      {"cuStreamEndCapture 908", "on the thread that began it"},
  };
  for (const auto& c : cases) {
    setenv("FAKE_CUDA_FAILS", c.fails, 1);
    const absl::Status status = Capture().status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << c.fails;
    EXPECT_THAT(std::string(Fix(status)), HasSubstr(c.fix)) << c.fails;
  }
}

TEST_F(CaptureOnFakeDriver, AnEmptyGraphIsRefused) {
  setenv("FAKE_CUDA_NODES", "0", 1);
  EXPECT_EQ(Capture().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_STREQ(calls_(), "StreamBeginCapture StreamEndCapture GraphGetNodes GraphDestroy");
}

TEST_F(CaptureOnFakeDriver, ALaunchThatFailsIsReported) {
  const auto graph = Capture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  setenv("FAKE_CUDA_FAILS", "cuGraphLaunch 719", 1);
  const absl::Status status = (*graph)->Launch({});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(What(status)), HasSubstr("cuGraphLaunch"));
}

TEST_F(CaptureOnFakeDriver, TheDefaultStreamAndOneThatCapturesAreRefusedUntouched) {
  EXPECT_EQ(BeginCapture(driver_, nullptr, nullptr, CaptureMode::kGlobal).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_STREQ(calls_(), "");
  ASSERT_EQ(BeginCapture(driver_, nullptr, stream_, CaptureMode::kGlobal), absl::OkStatus());
  calls_();
  EXPECT_EQ(BeginCapture(driver_, nullptr, stream_, CaptureMode::kGlobal).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_STREQ(calls_(), "");
  EXPECT_TRUE(EndCapture(driver_, nullptr, stream_, false).ok());
}

TEST_F(CaptureOnFakeDriver, WaitUsesAnEventOfItsOwn) {
  int place = 0;
  const auto other = reinterpret_cast<StreamHandle>(&place);
  EXPECT_EQ(Wait(driver_, nullptr, other, stream_), absl::OkStatus());
  EXPECT_STREQ(calls_(), "EventCreate EventRecord StreamWaitEvent EventDestroy");
  EXPECT_EQ(Wait(driver_, nullptr, other, other), absl::OkStatus());
  EXPECT_STREQ(calls_(), "");
  for (const char* fails : {"cuEventCreate 2", "cuEventRecord 400", "cuStreamWaitEvent 905"}) {
    setenv("FAKE_CUDA_FAILS", fails, 1);
    const absl::Status status = Wait(driver_, nullptr, other, stream_);
    EXPECT_THAT(std::string(What(status)), HasSubstr(std::string(fails, std::strchr(fails, ' '))));
    const std::string calls = calls_();
    EXPECT_EQ(calls.find("EventDestroy") != std::string::npos,
              std::string_view(fails) != "cuEventCreate 2")
        << calls;
  }
}

}  // namespace
}  // namespace kvr::cuda
