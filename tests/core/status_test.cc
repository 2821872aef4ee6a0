// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <gtest/gtest.h>

#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Status, ErrorKeepsWhatAndFixApart) {
  absl::Status status = Error(kInvalid, "axis 'topk' is 0", "give a positive integer");
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_EQ(What(status), "axis 'topk' is 0");
  EXPECT_EQ(Fix(status), "give a positive integer");
  EXPECT_NE(status.ToString().find("give a positive integer"), std::string::npos);
}

TEST(Status, StatusMadeElsewhereIsAllWhat) {
  absl::Status status = absl::NotFoundError("gone");
  EXPECT_EQ(What(status), "gone");
  EXPECT_EQ(Fix(status), "");
  EXPECT_EQ(What(absl::OkStatus()), "");
}

TEST(Status, ErrorAtPlacesTheWhat) {
  EXPECT_EQ(What(ErrorAt(kInvalid, "variant.toml", 12, 9, "bad", "f")), "variant.toml:12:9: bad");
  EXPECT_EQ(What(ErrorAt(kInvalid, "variant.toml", 12, 0, "bad", "f")), "variant.toml:12: bad");
  EXPECT_EQ(What(ErrorAt(kInvalid, "variant.toml", 0, 9, "bad", "f")), "variant.toml: bad");
}

TEST(Status, WithContextKeepsCodeFixAndPayload) {
  absl::Status inner = Error(absl::StatusCode::kOutOfRange, "overflow", "keep it small");
  inner.SetPayload("kvr/test", absl::Cord("data"));
  absl::Status outer = WithContext("let 'n'", inner);
  EXPECT_EQ(outer.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(What(outer), "let 'n': overflow");
  EXPECT_EQ(Fix(outer), "keep it small");
  EXPECT_EQ(outer.GetPayload("kvr/test"), absl::Cord("data"));
  EXPECT_TRUE(WithContext("anything", absl::OkStatus()).ok());
}

TEST(Status, SeparatorWithinThePartsDoesNotConfuseThem) {
  absl::Status status = Error(kInvalid, "log:\nfix: of the compiler", "use\nfix: nothing");
  EXPECT_EQ(What(status), "log:\nfix: of the compiler");
  EXPECT_EQ(Fix(status), "use; nothing");
}

TEST(Status, ErrorIsNeverASuccess) {
  EXPECT_EQ(Error(absl::StatusCode::kOk, "x", "y").code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace kvr
