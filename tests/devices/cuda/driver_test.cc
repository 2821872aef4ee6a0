// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/driver.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "core/status.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/info.h"
#include "devices/cuda/module.h"

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
  EXPECT_NE(driver->StreamGetCaptureInfoV2, nullptr);
  EXPECT_EQ(driver->StreamGetCaptureInfo, nullptr) << "this driver knows the older form only";
  EXPECT_EQ(InitDriver(*driver), absl::OkStatus());
}

TEST_F(FakeDriver, OfALaterVersionHasOptionalEntries) {
  setenv("FAKE_CUDA_VERSION", "12040", 1);
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_NE(driver->FuncLoad, nullptr);
  EXPECT_NE(driver->StreamGetCaptureInfo, nullptr);
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

// An ELF file for a GPU with one section of `content` bytes, the section table last.
std::string Cubin(size_t content) {
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = EM_CUDA;
  header.e_shoff = sizeof header + content;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 1;
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = sizeof header;
  section.sh_size = content;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(content, 'x') +
         std::string(reinterpret_cast<const char*>(&section), sizeof section);
}

TEST_F(FakeDriver, GetsNoCubinThatWouldMakeItReadBeyondTheEnd) {
  const auto driver = LoadDriver(KVR_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.status();
  const DeviceInfo info;
  const auto load = [&](const std::string& bytes) {
    Binary binary;
    binary.target = "sm_90a";
    binary.bytes = bytes;
    return LoadModule(*driver, nullptr, info, binary).status();
  };
  const std::string whole = Cubin(40);
  EXPECT_EQ(load(whole), absl::OkStatus());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_EQ(load(whole.substr(0, size)).code(), StatusCode::kInvalidArgument) << size;
  }
  std::string other_machine = whole;
  other_machine[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  EXPECT_EQ(load(other_machine).code(), StatusCode::kInvalidArgument);
  std::string far_section = whole;
  far_section[far_section.size() - sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset) + 7] = -1;
  EXPECT_EQ(load(far_section).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(".version 7.0\n.target sm_80\n"), absl::OkStatus());
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
