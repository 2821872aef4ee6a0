// SPDX-License-Identifier: Apache-2.0
#include "core/definition.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "core/expr.h"
#include "core/strings.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Sample() {
  return ReadFile(std::filesystem::path(KVR_SOURCE_DIR) / "tests/core/sample_definition.json");
}

// The sample with the first `from` replaced, parsed.
absl::Status Changed(const std::string& from, const std::string& to) {
  std::string text = Sample();
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return ParseDefinition(text, "sample.json").status();
}

TEST(Definition, ReadsEveryFieldInOrder) {
  absl::StatusOr<OpSpec> parsed = ParseDefinition(Sample());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const OpSpec& op = *parsed;
  EXPECT_EQ(op.name, "sample_paged_gather");
  EXPECT_EQ(op.op_type, "page_gather");
  EXPECT_EQ(op.description, "Scales and gathers the pages of a ragged batch.");
  EXPECT_THAT(op.tags, testing::ElementsAre("status:sample", "kind:test"));
  std::vector<std::string> axes, tensors;
  for (const AxisSpec& axis : op.axes) axes.push_back(axis.name);
  for (int i = 0; i < op.tensor_count(); ++i) tensors.push_back(op.tensor(i).name);
  EXPECT_THAT(axes,
              testing::ElementsAre("num_tokens", "width", "page_size", "num_pages", "len_indptr"));
  EXPECT_THAT(tensors, testing::ElementsAre("pages", "indptr", "bias", "scale", "verbose", "cache",
                                            "out", "cache"));
  EXPECT_TRUE(op.axes[1].is_const);
  EXPECT_EQ(op.axes[1].value, 128);
  EXPECT_FALSE(op.axes[2].is_const) << "const without a value: the caller's";
  EXPECT_EQ(op.axes[0].default_value, 64);
  EXPECT_EQ(op.axes[2].default_value, 16);
  EXPECT_EQ(op.axes[3].default_value, 1);
  EXPECT_THAT(op.inputs[0].axes, testing::ElementsAre(3, 2, 1));
  EXPECT_EQ(op.inputs[0].dtype, DType::kBF16);
  EXPECT_EQ(op.inputs[0].description, "The pool.");
  EXPECT_TRUE(op.inputs[2].optional);
  EXPECT_TRUE(op.inputs[3].is_scalar);
  EXPECT_DOUBLE_EQ(op.inputs[3].scalar_default, 0.5);
  EXPECT_TRUE(op.inputs[5].any_dtype);
  EXPECT_FALSE(op.outputs[1].any_dtype);
  EXPECT_THAT(op.constraints, testing::ElementsAre("len_indptr == num_tokens + 1"));
  EXPECT_THAT(op.data_constraints, testing::ElementsAre("num_pages == indptr[-1].item()"));
  EXPECT_EQ(op.key_policy, "num_tokens:pow2");
  EXPECT_TRUE(ResolveAxes(op, {{"len_indptr", 65}}).ok());
}

TEST(Definition, UnknownKeysAndNamesAreRefusedWithTheNearest) {
  EXPECT_THAT(Changed("\"op_type\"", "\"optype\""),
              IsError(kInvalid, "sample.json: unknown key 'optype'", "did you mean 'op_type'"));
  EXPECT_THAT(Changed("\"optional\"", "\"optinal\""),
              IsError(kInvalid, "inputs.bias: unknown key", "did you mean 'optional'"));
  EXPECT_THAT(Changed("\"type\": \"const\"", "\"type\": \"constant\""),
              IsError(kInvalid, "axes.width.type: unknown axis type", "const"));
  EXPECT_THAT(Changed("\"dtype\": \"bfloat16\"", "\"dtype\": \"bf16\""),
              IsError(kInvalid, "inputs.pages.dtype: unknown dtype 'bf16'", "bfloat16"));
  EXPECT_THAT(Changed("[\"num_pages\", \"page_size\"", "[\"num_pagez\", \"page_size\""),
              IsError(kInvalid, "inputs.pages.shape: unknown axis", "did you mean 'num_pages'"));
  EXPECT_THAT(Changed("\"axis_defaults\"", "\"axis_default\""),
              IsError(kInvalid, "kvr: unknown key", "did you mean 'axis_defaults'"));
  EXPECT_THAT(Changed("{\"num_tokens\": 64", "{\"width\": 64"),
              IsError(kInvalid, "kvr.axis_defaults: unknown key 'width'", "num_tokens"));
  EXPECT_THAT(Changed("{\"scale\": 0.5}", "{\"pages\": 0.5}"),
              IsError(kInvalid, "kvr.scalar_defaults: unknown key 'pages'", "scale, verbose"));
}

TEST(Definition, WrongTypesAndValuesAreRefused) {
  EXPECT_THAT(Changed("\"value\": 128", "\"value\": 0"),
              IsError(kInvalid, "axes.width.value: is '0'", "at least 1"));
  EXPECT_THAT(Changed("\"value\": 128", "\"value\": 1.5"), IsError(kInvalid, "'1.5'", "integer"));
  EXPECT_THAT(Changed("\"value\": 128", "\"value\": 18446744073709551615"),
              IsError(kInvalid, "axes.width.value", "integer"));
  EXPECT_THAT(Changed("{\"type\": \"var\"}", "{\"type\": \"var\", \"value\": 3}"),
              IsError(kInvalid, "stands in a var axis", "axis_defaults"));
  EXPECT_THAT(Changed("{\"type\": \"var\"}", "\"var\""), IsError(kInvalid, "string, not an", "{"));
  EXPECT_THAT(Changed("\"optional\": true", "\"optional\": 1"),
              IsError(kInvalid, "inputs.bias.optional: is '1'", "true or false"));
  EXPECT_THAT(Changed("\"name\": \"sample_paged_gather\"", "\"name\": \"a b\""),
              IsError(kInvalid, "name: 'a b' is no name", "letters"));
  EXPECT_THAT(Changed("\"op_type\": \"page_gather\",", ""),
              IsError(kInvalid, "op_type: is missing", "add \"op_type\""));
  EXPECT_THAT(Changed("\"num_tokens\":", "\"and\":"),
              IsError(kInvalid, "axes.and: 'and' is a word", "another name"));
}

TEST(Definition, OutputScalarsDuplicatesAndBrokenTextAreRefused) {
  EXPECT_THAT(Changed("\"outputs\": {\n    \"out\": {\"shape\": [\"num_tokens\", \"width\"]",
                      "\"outputs\": {\n    \"out\": {\"shape\": null"),
              IsError(kInvalid, "outputs.out.shape: is null", "through pointers"));
  EXPECT_THAT(Changed("\"indptr\": {", "\"pages\": {"),
              IsError(kInvalid, "key 'pages' appears twice", "once"));
  EXPECT_THAT(Changed("\"value\": 128", "\"value\": 128,"),
              IsError(kInvalid, "sample.json:8:", "trailing"));
  EXPECT_THAT(ParseDefinition("", "e.json").status(),
              IsError(kInvalid, "e.json:1:1: this is no JSON", ""));
  EXPECT_THAT(ParseDefinition("[]").status(), IsError(kInvalid, "array, not an object", "{"));
  EXPECT_THAT(ParseDefinition("\"\xff\"").status(), IsError(kInvalid, "no JSON", "text"));
}

TEST(Definition, AnIntegerScalarNamedLikeAnAxisThatNoTensorHasIsAnAttribute) {
  constexpr char kText[] = R"({
    "name": "o", "op_type": "t",
    "axes": {"n": {"type": "var"}, "groups": {"type": "var"}, "free": {"type": "var"}},
    "inputs": {
      "groups": {"shape": null, "dtype": "int32"},
      "n": {"shape": null, "dtype": "int32"},
      "free": {"shape": null, "dtype": "float32"}
    },
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "kvr": {"axis_defaults": {"groups": 4}}
  })";
  const absl::StatusOr<OpSpec> op = ParseDefinition(kText);
  ASSERT_TRUE(op.ok()) << op.status();
  EXPECT_EQ(op->inputs[0].attribute, 1);
  EXPECT_EQ(op->inputs[0].scalar_default, 4);
  EXPECT_EQ(op->inputs[1].attribute, -1);  // y says how large n is
  EXPECT_EQ(op->inputs[2].attribute, -1);  // no integer
  std::string text = kText;
  text.replace(text.find("\"axis_defaults\""), 15, "\"scalar_defaults\"");
  EXPECT_THAT(ParseDefinition(text).status(),
              IsError(kInvalid, "kvr.scalar_defaults.groups", "axis_defaults"));
}

TEST(Definition, ConstraintsAreParsed) {
  EXPECT_THAT(Changed("== num_tokens + 1", "== num_token + 1"),
              IsError(kInvalid, "constraints: expression", "did you mean 'num_tokens'"));
  EXPECT_THAT(Changed("== num_tokens + 1", "== num_tokens // 1"),
              IsError(kInvalid, "'//'", "floordiv"));
  EXPECT_THAT(Changed("num_tokens:pow2", "num_tokens:pow3"),
              IsError(kInvalid, "kvr.key_policy: key policy", "pow2"));
}

TEST(Definition, DefaultsThatBreakAConstraintAreRefused) {
  EXPECT_THAT(
      Changed(", \"len_indptr\": 65", ""),
      IsError(kInvalid, "kvr.axis_defaults: op 'sample_paged_gather' requires len_indptr ==",
              "meet every constraint"));
  EXPECT_THAT(Changed("\"axis_defaults\": {\"num_tokens\": 64, \"page_size\": 16, "
                      "\"len_indptr\": 65},",
                      ""),
              testing::Property(&absl::Status::ok, true))
      << "a definition without defaults loads as it is";
}

TEST(Definition, LimitsOfTheOpAreKept) {
  std::string axes, inputs;
  for (int i = 0; i <= kMaxAxes; ++i) {
    StrAppend(&axes, i ? "," : "", "\"a", i, "\": {\"type\": \"var\"}");
  }
  for (int i = 0; i <= kMaxTensors; ++i) {
    StrAppend(&inputs, i ? "," : "", "\"t", i, "\": {\"shape\": [\"a\"], \"dtype\": \"int32\"}");
  }
  auto definition = [](const std::string& a, const std::string& in) {
    return StrCat("{\"name\": \"x\", \"op_type\": \"x\", \"axes\": {", a, "}, \"inputs\": {", in,
                  "}, \"outputs\": {\"o\": {\"shape\": [\"a\"], \"dtype\": \"int32\"}}}");
  };
  const std::string a = "\"a\": {\"type\": \"var\"}";
  EXPECT_TRUE(ParseDefinition(definition(a, "")).ok());
  EXPECT_THAT(ParseDefinition(definition(axes, "")).status(),
              IsError(kInvalid, "axes: has 17 axes", "at most 16"));
  EXPECT_THAT(ParseDefinition(definition(a, inputs)).status(),
              IsError(kInvalid, "26 tensors", "at most 24"));
  const std::string deep =
      "\"t\": {\"shape\": [\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"], \"dtype\": \"int32\"}";
  EXPECT_THAT(ParseDefinition(definition(a, deep)).status(),
              IsError(kInvalid, "inputs.t.shape", "at most 6"));
}

TEST(Definition, RandomBytesNeverCrash) {
  std::mt19937_64 random(41);
  const std::string sample = Sample();
  for (int i = 0; i < 1000; ++i) {
    std::string text = sample;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      size_t at = random() % text.size();
      if (random() % 2) {
        text[at] = static_cast<char>(random());
      } else {
        text.erase(at, 1 + random() % 20);
      }
    }
    absl::StatusOr<OpSpec> op = ParseDefinition(text);
    ASSERT_TRUE(op.ok() || !Fix(op.status()).empty()) << op.status();
  }
  EXPECT_FALSE(ParseDefinition(std::string(100000, '[')).ok());
}

// The files that the FlashInfer project publishes, where a directory of them is at hand.
TEST(Definition, PublishedFilesLoadAsTheyAre) {
  const char* directory = std::getenv("KVR_DEFINITIONS_DIR");
  if (!directory) GTEST_SKIP() << "KVR_DEFINITIONS_DIR names no directory of Definition files";
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".json") continue;
    absl::StatusOr<OpSpec> op = ParseDefinition(ReadFile(entry.path()), entry.path().string());
    ASSERT_TRUE(op.ok()) << op.status();
    EXPECT_EQ(op->name, entry.path().stem());
    EXPECT_FALSE(op->outputs.empty());
    ++loaded;
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace kvr
