// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/status.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/info.h"

namespace kvr::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class FakeDriver : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"FAKE_CUDA_VERSION", "FAKE_CUDA_MISSING", "FAKE_CUDA_INIT"}) {
      unsetenv(name);
    }
  }
};

TEST_F(FakeDriver, WithEverythingLoads) {
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ(driver->api_version, 12000);
  EXPECT_NE(driver->LaunchKernelEx, nullptr);
  EXPECT_EQ(driver->FuncLoad, nullptr) << "newer than this driver, and optional";
  EXPECT_EQ(InitDriver(*driver), absl::OkStatus());
}

TEST_F(FakeDriver, OfALaterVersionHasOptionalEntries) {
  setenv("FAKE_CUDA_VERSION", "12040", 1);
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_NE(driver->FuncLoad, nullptr);
}

TEST_F(FakeDriver, TooOldSaysWhatItIsAndWhatIsNeeded) {
  setenv("FAKE_CUDA_VERSION", "11040", 1);
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  EXPECT_EQ(driver.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()),
              testing::AllOf(HasSubstr("CUDA 11.4"), HasSubstr("525.60.13")));
}

TEST_F(FakeDriver, WithoutARequiredEntryNamesIt) {
  setenv("FAKE_CUDA_MISSING", "cuLaunchKernelEx", 1);
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  EXPECT_EQ(driver.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()),
              HasSubstr("cuLaunchKernelEx as of CUDA 11.6"));
}

TEST_F(FakeDriver, StartFailuresSayWhatToDo) {
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.status();
  const struct {
    const char* result;
    StatusCode code;
    const char* text;
  } cases[] = {
      {"100", StatusCode::kUnavailable, "finds no GPU"},
      {"34", StatusCode::kFailedPrecondition, "stub"},
      {"803", StatusCode::kFailedPrecondition, "do not fit together"},
      {"46", StatusCode::kUnavailable, "cuInit: CUDA_ERROR_OF_SOME_KIND (46)"},
  };
  for (const auto& c : cases) {
    setenv("FAKE_CUDA_INIT", c.result, 1);
    const absl::Status status = InitDriver(*driver);
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
    EXPECT_FALSE(Fix(status).empty());
  }
}

TEST_F(FakeDriver, ErrorsCarryCallNameTextAndCode) {
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.status();
  const absl::Status status = ErrorFrom(*driver, kOutOfMemory, "cuMemAlloc", "12 bytes");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(What(status),
            "cuMemAlloc(12 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): as the driver puts it");
  const struct {
    Result result;
    StatusCode code;
  } cases[] = {
      {kInvalidValue, StatusCode::kInvalidArgument},
      {kNotFound, StatusCode::kNotFound},
      {kNoBinaryForGpu, StatusCode::kFailedPrecondition},
      {kStreamCaptureUnsupported, StatusCode::kFailedPrecondition},
      {901, StatusCode::kFailedPrecondition},  // the capture was invalidated
      {700, StatusCode::kInternal},            // illegal address
      {719, StatusCode::kInternal},            // launch failed
      {999, StatusCode::kInternal},
  };
  for (const auto& c : cases) {
    const absl::Status mapped = ErrorFrom(*driver, c.result, "cuCall");
    EXPECT_EQ(mapped.code(), c.code) << mapped;
    EXPECT_FALSE(Fix(mapped).empty()) << mapped;
  }
}

TEST(Driver, MissingLibraryIsUnavailable) {
  const auto driver = LoadDriver("libcuda-that-nobody-has.so.1");
  EXPECT_EQ(driver.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libcuda-that-nobody-has.so.1"));
}

TEST(Driver, OtherLibraryIsNoDriver) {
  const auto driver = LoadDriver("libm.so.6");
  EXPECT_EQ(driver.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libm.so.6"));
}

TEST(Driver, EnvironmentHidesCuda) {
  setenv("KVR_NO_CUDA", "1", 1);
  const auto count = CudaDeviceCount();
  EXPECT_EQ(count.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(count.status().message()), HasSubstr("KVR_NO_CUDA"));
  EXPECT_EQ(OpenCuda(0).status().code(), StatusCode::kUnavailable);
  unsetenv("KVR_NO_CUDA");
}

TEST(Driver, CountingNeverCrashes) {
  const auto count = CudaDeviceCount();
  if (count.ok()) {
    EXPECT_GE(*count, 1);
    EXPECT_EQ(OpenCuda(*count).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(OpenCuda(-1).status().code(), StatusCode::kNotFound);
  } else {
    EXPECT_FALSE(Fix(count.status()).empty()) << count.status();
    EXPECT_EQ(OpenCuda(0).status(), count.status());
  }
}

TEST(Info, TargetsNameTheExactArchitecture) {
  EXPECT_EQ(TargetOf(8, 0), "sm_80");
  EXPECT_EQ(TargetOf(8, 9), "sm_89");
  EXPECT_EQ(TargetOf(9, 0), "sm_90a");
  EXPECT_EQ(TargetOf(10, 0), "sm_100a");
  EXPECT_EQ(TargetOf(12, 0), "sm_120a");
}

TEST(Info, ModelsAreSlugs) {
  EXPECT_EQ(ModelSlug("NVIDIA H200"), "nvidia-h200");
  EXPECT_EQ(ModelSlug("NVIDIA RTX PRO 6000 Blackwell Server Edition"),
            "nvidia-rtx-pro-6000-blackwell-server-edition");
  EXPECT_EQ(ModelSlug(" NVIDIA (R) A100-SXM4-80GB "), "nvidia-r-a100-sxm4-80gb");
}

TEST(Info, UuidsReadAsNvidiaSmiPrintsThem) {
  Uuid uuid{};
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<unsigned char>(i * 17);
  EXPECT_EQ(UuidText(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Info, LargeClustersNeedADataCentreGpu) {
  EXPECT_EQ(MaxClusterSize(8, false), 1);
  EXPECT_EQ(MaxClusterSize(9, true), 16);
  EXPECT_EQ(MaxClusterSize(12, true), 8);
}

}  // namespace
}  // namespace kvr::cuda
