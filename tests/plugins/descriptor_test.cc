// SPDX-License-Identifier: Apache-2.0
//
// What kvr_plugin_v1 may return.
#include <cstring>

#include "core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/module.h"

namespace kvr {
namespace {

using testing::HasSubstr;

struct Descriptor {
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;  // it points into itself

  kvr_operation operation = {sizeof(kvr_operation), "scale", nullptr, nullptr, nullptr};
  kvr_variant variant = {sizeof(kvr_variant), "scale", "fast", nullptr, nullptr, nullptr, nullptr};
  const kvr_operation* operations[2] = {&operation, &operation};
  const kvr_variant* variants[2] = {&variant, &variant};
  kvr_plugin plugin = {sizeof(kvr_plugin), KVR_ABI_MAJOR, 3, 1, 1, operations, variants};

  std::string Refusal() const {
    const absl::StatusOr<PluginCode> code = CheckPlugin(&plugin, 3);
    EXPECT_FALSE(code.ok());
    EXPECT_FALSE(Fix(code.status()).empty());
    return std::string(What(code.status()));
  }
};

TEST(Descriptor, WholeOneIsAccepted) {
  Descriptor d;
  const absl::StatusOr<PluginCode> code = CheckPlugin(&d.plugin, 3);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_STREQ(code->operations[0].name, "scale");
  EXPECT_STREQ(code->variants[0].name, "fast");
}

TEST(Descriptor, SizesTooSmallAreRefused) {
  for (uint32_t size : {0u, 4u, 39u}) {
    const std::string said = "size " + std::to_string(size) + " is too small, version 1.0 has ";
    Descriptor d;
    d.plugin.size = size;
    EXPECT_THAT(d.Refusal(), HasSubstr("kvr_plugin: " + said + "40"));
    Descriptor e;
    e.operation.size = size;
    EXPECT_THAT(e.Refusal(), HasSubstr("operation 0: " + said + "40"));
    Descriptor f;
    f.variant.size = size;
    EXPECT_THAT(f.Refusal(), HasSubstr("variant 0: " + said + "56"));
  }
}

TEST(Descriptor, LargerOnesMustBeZeroWhereTheyAreUnknown) {
  struct Newer {
    kvr_variant known;
    uint64_t more[4];
  } newer = {};
  Descriptor d;
  newer.known = d.variant;
  newer.known.size = sizeof newer;
  d.variants[0] = &newer.known;
  EXPECT_TRUE(CheckPlugin(&d.plugin, 3).ok());
  newer.more[2] = 1;
  EXPECT_THAT(d.Refusal(), HasSubstr("variant 0: it uses byte 80"));
  newer.known.size = sizeof(kvr_variant);
  EXPECT_TRUE(CheckPlugin(&d.plugin, 3).ok());
  newer.known.size = 1u << 30;
  EXPECT_THAT(d.Refusal(), HasSubstr("size 1073741824 is too large"));
}

TEST(Descriptor, NullsAreRefused) {
  EXPECT_THAT(std::string(CheckPlugin(nullptr, 3).status().message()), HasSubstr("it is null"));
  Descriptor c;
  c.operation.name = nullptr;
  EXPECT_THAT(c.Refusal(), HasSubstr("operation 0: its name is null"));
  Descriptor d;
  d.variant.op = nullptr;
  EXPECT_THAT(d.Refusal(), HasSubstr("variant 0: its op is null"));
  Descriptor e;
  e.variants[0] = nullptr;
  EXPECT_THAT(e.Refusal(), HasSubstr("variant 0: it is null"));
  Descriptor f;
  f.plugin.operations = nullptr;
  EXPECT_THAT(f.Refusal(), HasSubstr("their array is null"));
}

TEST(Descriptor, AbsurdCountsAndNamesAreRefused) {
  Descriptor d;
  d.plugin.variant_count = 1u << 31;
  EXPECT_THAT(d.Refusal(), HasSubstr("it has 2147483648 variants"));
  d.plugin.variant_count = 1;
  for (const char* name : {"", "a b", "\xff", "9x"}) {
    d.variant.name = name;
    EXPECT_THAT(d.Refusal(), HasSubstr("is no name"));
  }
  const std::string endless(100000, 'a');
  d.variant.name = endless.c_str();
  EXPECT_THAT(d.Refusal(), HasSubstr("is no name"));
}

// What lies behind a struct of version 1.0 is not of it, whatever it is.
TEST(Descriptor, StructsOfTheFirstVersionAreComplete) {
  Descriptor d;
  std::memset(reinterpret_cast<char*>(&d.operation) + 40, 0xff, sizeof(kvr_operation) - 40);
  std::memset(reinterpret_cast<char*>(&d.variant) + 56, 0xff, sizeof(kvr_variant) - 56);
  d.operation.size = 40;
  d.variant.size = 56;
  d.plugin.abi_minor = 0;
  const absl::StatusOr<PluginCode> code = CheckPlugin(&d.plugin, 0);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code->operations[0].quality_count, 0u);
  EXPECT_EQ(code->operations[0].quality, nullptr);
  EXPECT_EQ(code->variants[0].reference, nullptr);
}

int NoQuality(const int64_t*, uint32_t, const kvr_tensor*, uint32_t, const kvr_tensor*,
              const kvr_expected*, uint32_t, double*, char*, size_t) {
  return KVR_OK;
}

TEST(Descriptor, QualityIsStatedWhole) {
  const char* names[] = {"kept", "kept_2"};
  Descriptor d;
  d.operation.quality_count = 2;
  EXPECT_THAT(d.Refusal(), HasSubstr("it has 2 quality measures, and quality is null"));
  d.operation.quality = NoQuality;
  EXPECT_THAT(d.Refusal(), HasSubstr("it has 2 quality measures, and quality_names is null"));
  d.operation.quality_names = names;
  EXPECT_TRUE(CheckPlugin(&d.plugin, 3).ok());
  d.operation.quality_count = 17;
  EXPECT_THAT(d.Refusal(), HasSubstr("it has 17 quality measures"));
  d.operation.quality_count = 0;
  EXPECT_THAT(d.Refusal(), HasSubstr("it has a quality function and 0 measures"));
  d.operation.quality = nullptr;
  EXPECT_THAT(d.Refusal(), HasSubstr("it has quality_names and 0 measures"));
}

TEST(Descriptor, NamesOfMeasuresAreLowerSnakeCaseAndDiffer) {
  const char* names[] = {"kept", "kept"};
  Descriptor d;
  d.operation.quality_count = 2;
  d.operation.quality = NoQuality;
  d.operation.quality_names = names;
  EXPECT_THAT(d.Refusal(), HasSubstr("quality measure 'kept' is there already"));
  const std::string endless(100000, 'a');
  for (const char* name : {"", "Kept", "y.cosine", "2x", "\xff", endless.c_str()}) {
    names[1] = name;
    EXPECT_THAT(d.Refusal(), HasSubstr("quality measure 1 has the name"));
  }
  names[1] = nullptr;
  EXPECT_THAT(d.Refusal(), HasSubstr("quality measure 1 has the name ''"));
}

TEST(Descriptor, DuplicatesAreRefused) {
  Descriptor d;
  d.plugin.variant_count = 2;
  EXPECT_THAT(d.Refusal(), HasSubstr("'scale/fast' is there already"));
  d.plugin.variant_count = 1;
  d.plugin.operation_count = 2;
  EXPECT_THAT(d.Refusal(), HasSubstr("'scale' is there already"));
}

TEST(Descriptor, AbiVersionMustBeTheSections) {
  Descriptor d;
  d.plugin.abi_minor = 2;
  EXPECT_THAT(d.Refusal(), HasSubstr("it is of plugin ABI 1.2, and its section of 1.3"));
  d.plugin.abi_major = 7;
  EXPECT_THAT(d.Refusal(), HasSubstr("it is of plugin ABI 7.2"));
}

}  // namespace
}  // namespace kvr
