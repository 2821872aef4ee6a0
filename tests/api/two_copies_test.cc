// SPDX-License-Identifier: Apache-2.0
//
// A program that links KVR and loads libkvr.so as well: two registries, and each works.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/kvr.h"
#include "api/runtime.h"
#include "core/install_layout.h"
#include "core/status.h"

namespace kvr {
namespace {

constexpr int64_t kElements = 300;

TEST(TwoCopies, EachHasARegistryOfItsOwnAndBothLaunchOnOneHostModule) {
  std::string cache = testing::TempDir() + "/kvr-two-copies-XXXXXX";
  ASSERT_NE(mkdtemp(cache.data()), nullptr);
  setenv("KVR_CACHE_DIR", cache.c_str(), 1);
  void* library = dlopen(InstallPath("lib/libkvr.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
#define KVR_OF_LIBRARY(name)                                                      \
  auto* const name##_ = reinterpret_cast<decltype(&name)>(dlsym(library, #name)); \
  ASSERT_NE(name##_, nullptr)
  KVR_OF_LIBRARY(kvr_open);
  KVR_OF_LIBRARY(kvr_load);
  KVR_OF_LIBRARY(kvr_launch);
  KVR_OF_LIBRARY(kvr_stream_synchronize);
  KVR_OF_LIBRARY(kvr_close);
  KVR_OF_LIBRARY(kvr_last_error);
#undef KVR_OF_LIBRARY

  // 1. Both open and load; what one selects the other does not see.
  const absl::StatusOr<std::unique_ptr<Runtime>> linked = Runtime::Open({.device = "host"});
  ASSERT_TRUE(linked.ok()) << linked.status();
  kvr_options options{};
  options.struct_size = sizeof options;
  options.device = "host";
  options.journal = "none";
  options.forced_op = "null";
  options.forced_variant = "planned";
  kvr_runtime* loaded = nullptr;
  ASSERT_EQ(kvr_open_(&options, &loaded), KVR_CODE_OK) << kvr_last_error_();
  ASSERT_EQ(kvr_load_(loaded, "null", "n=300", nullptr), KVR_CODE_OK) << kvr_last_error_();
  const absl::StatusOr<LoadReport> report = (*linked)->Load("null", {Axes{{"n", kElements}}});
  ASSERT_TRUE(report.ok() && report->ready()) << report.status();
  EXPECT_EQ(report->items.front().variant, "baseline");

  // 2. Both launch.
  std::vector<float> x(kElements), y(kElements), z(kElements);
  for (int64_t i = 0; i < kElements; ++i) x[i] = static_cast<float>(i);
  int64_t shape[] = {kElements};
  const kvr_dltensor from{x.data(), 1, 0, 1, 2, 32, 1, shape, nullptr, 0};
  const kvr_dltensor to{y.data(), 1, 0, 1, 2, 32, 1, shape, nullptr, 0};
  const kvr_dltensor* tensors[] = {&from, &to};
  EXPECT_EQ(kvr_launch_(loaded, "null", tensors, 2, nullptr), KVR_CODE_OK) << kvr_last_error_();
  EXPECT_EQ(kvr_stream_synchronize_(loaded, nullptr), KVR_CODE_OK) << kvr_last_error_();
  EXPECT_EQ(x, y);
  const TensorView views[] = {{x.data(), DType::kF32, 1, {kElements}},
                              {z.data(), DType::kF32, 1, {kElements}}};
  EXPECT_TRUE((*linked)->Launch("null", views, {}).ok());
  EXPECT_TRUE((*linked)->device().Synchronize({}).ok());
  EXPECT_EQ(x, z);

  // 3. The one goes, the other stays.
  EXPECT_EQ(kvr_close_(loaded), KVR_CODE_OK);
  EXPECT_TRUE((*linked)->Launch("null", views, {}).ok());
  EXPECT_TRUE((*linked)->device().Synchronize({}).ok());
  std::filesystem::remove_all(cache);
}

}  // namespace
}  // namespace kvr
