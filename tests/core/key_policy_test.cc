// SPDX-License-Identifier: Apache-2.0
#include "core/key_policy.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/samples.h"

namespace kvr {
namespace {

AxisVector At(int64_t num_tokens, int64_t heads, int64_t topk) {
  return {num_tokens, heads, 512, topk, 128};
}

TEST(KeyPolicy, BucketsEachAxisByItsRule) {
  KeyPolicy policy =
      *KeyPolicy::Parse("topk:pow2; num_tokens:ceil(1,2,4,8); num_qo_heads:exact", SampleOp());
  bool clipped = true;
  BucketedKey key = policy.Bucket(At(5, 37, 600), &clipped);
  EXPECT_FALSE(clipped);
  EXPECT_EQ(policy.Named(key), (Axes{{"topk", 1024}, {"num_tokens", 8}, {"num_qo_heads", 37}}));
  EXPECT_EQ(policy.Named(policy.Bucket(At(9, 1, 1), &clipped)).at("num_tokens"), 8);
  EXPECT_TRUE(clipped) << "above the last bound";
  EXPECT_EQ(policy.Named(policy.Bucket(At(0, 1, 0))),
            (Axes{{"topk", 1}, {"num_tokens", 1}, {"num_qo_heads", 1}}));
}

TEST(KeyPolicy, TextIsCanonicalAndParsesBack) {
  OpSpec op = SampleOp();
  KeyPolicy policy = *KeyPolicy::Parse("  topk : pow2 ;num_tokens:ceil( 1, 2 )", op);
  EXPECT_EQ(policy.text(), "topk:pow2; num_tokens:ceil(1,2)");
  EXPECT_EQ(KeyPolicy::Parse(policy.text(), op)->text(), policy.text());
  EXPECT_EQ(KeyPolicy::Parse("", op)->text(), "");
  EXPECT_EQ(KeyPolicy::Parse("", op)->Bucket(At(1, 2, 3)), BucketedKey{});
}

TEST(KeyPolicy, LawsHoldForRandomAxes) {
  OpSpec op = SampleOp();
  std::mt19937_64 random(17);
  for (const char* text : {"topk:pow2", "topk:exact; num_tokens:pow2",
                           "num_tokens:ceil(1,2,4,8,16,32,48,64,80,96,128); topk:ceil(512)",
                           "num_qo_heads:ceil(7,9); num_tokens:exact; topk:pow2"}) {
    KeyPolicy policy = *KeyPolicy::Parse(text, op);
    for (int i = 0; i < 2000; ++i) {
      auto value = [&random] { return static_cast<int64_t>(random() >> (1 + random() % 63)); };
      AxisVector axes = At(value(), value(), value());
      BucketedKey key = policy.Bucket(axes);
      AxisVector representative = policy.Representative(axes);
      bool clipped = true;
      ASSERT_EQ(policy.Bucket(representative, &clipped), key) << "lies in its own bucket";
      ASSERT_FALSE(clipped) << "and is never clipped";
      ASSERT_EQ(policy.Representative(representative), representative) << "idempotent";
      for (size_t a = 0; a < op.axes.size(); ++a) {
        if (policy.Named(key).contains(op.axes[a].name)) continue;
        ASSERT_EQ(representative[a], axes[a]);
      }
      absl::StatusOr<BucketedKey> back = policy.FromNamed(policy.Named(key));
      ASSERT_TRUE(back.ok()) << back.status();
      ASSERT_EQ(*back, key);
    }
  }
}

TEST(KeyPolicy, BucketsAreMonotone) {
  KeyPolicy policy = *KeyPolicy::Parse("topk:pow2; num_tokens:ceil(1,3,9)", SampleOp());
  for (int64_t v = 0; v < 300; ++v) {
    BucketedKey low = policy.Bucket(At(v, 1, v)), high = policy.Bucket(At(v + 1, 1, v + 1));
    EXPECT_LE(low.values[0], high.values[0]);
    EXPECT_LE(low.values[1], high.values[1]);
    EXPECT_GE(low.values[0], v);
  }
}

TEST(KeyPolicy, MalformedTextIsRefused) {
  OpSpec op = SampleOp();
  auto error = [&op](const char* text) { return KeyPolicy::Parse(text, op).status(); };
  EXPECT_THAT(error("topkk:pow2"),
              IsError(kInvalid, "unknown axis 'topkk'", "did you mean 'topk'"));
  EXPECT_THAT(error("topk"), IsError(kInvalid, "'topk' has no ':'", "axis:bucket"));
  EXPECT_THAT(error("topk:pow3"), IsError(kInvalid, "unknown bucket", "exact, pow2 or ceil"));
  EXPECT_THAT(error("topk:pow2;"), IsError(kInvalid, "is empty", "axis:bucket"));
  EXPECT_THAT(error("topk:pow2; topk:exact"), IsError(kInvalid, "a second time", "axis:bucket"));
  EXPECT_THAT(error("topk:ceil()"), IsError(kInvalid, "bound", "ceil(1,2,4)"));
  EXPECT_THAT(error("topk:ceil(1,,2)"), IsError(kInvalid, "bound", "ceil(1,2,4)"));
  EXPECT_THAT(error("topk:ceil(4,2)"), IsError(kInvalid, "do not ascend", "ceil(1,2,4)"));
  EXPECT_THAT(error("topk:ceil(2,2)"), IsError(kInvalid, "do not ascend", "ceil(1,2,4)"));
  EXPECT_THAT(error("topk:ceil(0,2)"), IsError(kInvalid, "below 1", "ceil(1,2,4)"));
  EXPECT_THAT(error("topk:ceil(1,2"), IsError(kInvalid, "unknown bucket", "ceil(1,2,4)"));
  op.axes.clear();
  std::string many;
  for (int i = 0; i <= kMaxKeyAxes; ++i) {
    op.axes.push_back({.name = std::string(1, static_cast<char>('a' + i))});
    many += std::string(i ? ";" : "") + op.axes.back().name + ":exact";
  }
  EXPECT_THAT(error(many.c_str()), IsError(kInvalid, "more than the 6", "axis:bucket"));
}

TEST(KeyPolicy, FromNamedWantsTheAxesOfThePolicyAtBuckets) {
  KeyPolicy policy = *KeyPolicy::Parse("topk:pow2; num_tokens:ceil(1,2)", SampleOp());
  auto error = [&policy](const Axes& axes) { return policy.FromNamed(axes).status(); };
  EXPECT_THAT(error({{"topk", 512}}), IsError(kInvalid, "lacks axis 'num_tokens'", "every axis"));
  EXPECT_THAT(error({{"topk", 500}, {"num_tokens", 1}}),
              IsError(kInvalid, "topk=500 is no bucket", "topk=512"));
  EXPECT_THAT(error({{"topk", 512}, {"num_tokens", 1}, {"num_token", 1}}),
              IsError(kInvalid, "unknown axis 'num_token'", "num_tokens"));
}

TEST(KeyPolicy, RandomTextsNeverCrash) {
  OpSpec op = SampleOp();
  std::mt19937 random(23);
  for (int i = 0; i < 5000; ++i) {
    static const char* const kTokens[] = {"topk", "num_tokens", ":", ";", "pow2", "exact", "ceil(",
                                          ")",    ",",          "1", "8", " ",    "-",     "\xff"};
    std::string text;
    for (uint32_t n = random() % 12; n > 0; --n) text += kTokens[random() % std::size(kTokens)];
    absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(text, op);
    if (policy.ok()) {
      ASSERT_EQ(KeyPolicy::Parse(policy->text(), op)->text(), policy->text()) << text;
    } else {
      ASSERT_FALSE(Fix(policy.status()).empty()) << text;
    }
  }
}

}  // namespace
}  // namespace kvr
