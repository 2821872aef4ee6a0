// SPDX-License-Identifier: Apache-2.0
#include "core/fingerprint.h"

#include <gtest/gtest.h>

#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Fingerprint, IsBlake3) {  // vectors of the BLAKE3 paper's reference code
  EXPECT_EQ(FingerprintOf("").Hex(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  EXPECT_EQ(FingerprintOf("abc").Hex(),
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
  EXPECT_EQ(FingerprintOf("abc").Short(), "6437b3ac3846");
}

TEST(Fingerprint, HexRoundTripsAndRefusesOthers) {
  Fingerprint print = FingerprintOf("x");
  EXPECT_EQ(*Fingerprint::FromHex(print.Hex()), print);
  std::string upper = print.Hex(), wrong = print.Hex();
  for (char& c : upper) c = static_cast<char>(toupper(c));
  wrong[5] = 'g';
  for (const std::string& bad : {std::string(), print.Short(), print.Hex() + "00", upper, wrong}) {
    EXPECT_THAT(Fingerprint::FromHex(bad).status(), IsError(kInvalid, "no fingerprint", "64"));
  }
}

TEST(Hasher, FieldBoundariesCount) {
  auto hash = [](std::initializer_list<std::pair<const char*, const char*>> fields) {
    Hasher hasher;
    for (auto [tag, value] : fields) hasher.Field(tag, value);
    return hasher.Finish();
  };
  EXPECT_EQ(hash({{"a", "b"}}), hash({{"a", "b"}}));
  EXPECT_NE(hash({{"ab", "c"}}), hash({{"a", "bc"}}));
  EXPECT_NE(hash({{"a", "b"}, {"c", "d"}}), hash({{"c", "d"}, {"a", "b"}}));
  EXPECT_NE(hash({{"a", ""}}), hash({{"", "a"}}));
  EXPECT_NE(hash({}), hash({{"", ""}}));
}

TEST(Hasher, FinishReadsAndDoesNotEnd) {
  Hasher hasher;
  hasher.Field("a", "1");
  Fingerprint first = hasher.Finish();
  EXPECT_EQ(hasher.Finish(), first);
  EXPECT_NE(hasher.Field("b", "2").Finish(), first);
}

}  // namespace
}  // namespace kvr
