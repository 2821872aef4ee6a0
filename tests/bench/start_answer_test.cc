// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/start/answer.h"
#include "core/status.h"

namespace kvr::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kStamps = {"opened", "built"};

TEST(Answer, IsALineWithAllStamps) {
  const absl::StatusOr<Json> answer =
      ParseAnswer("compile", kStamps, R"({"stamps": {"main": 1, "opened": 2.5, "built": 3}})");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ((*answer)["stamps"]["opened"], 2.5);
}

TEST(Answer, AnythingElseIsOneLineThatQuotesIt) {
  for (const char* said : {
           "",
           "\n",
           "hello from a library\n{\"stamps\": {\"opened\": 1, \"built\": 2}}\n",
           "{\"stamps\": {\"opened\": 1, \"built\": 2}}\ngoodbye\n",
           "{\"stamps\": {\"opened\": 1, \"bu",
           "[1, 2]",
           "null",
           "3",
           "{}",
           R"({"stamps": [1, 2]})",
           R"({"stamps": {"opened": 1}})",
           R"({"stamps": {"opened": "soon", "built": 2}})",
           "\xff\xfe",
       }) {
    const absl::StatusOr<Json> answer = ParseAnswer("compile", kStamps, said);
    ASSERT_FALSE(answer.ok()) << said;
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(What(answer.status()), HasSubstr("the process 'compile' printed"));
    EXPECT_THAT(What(answer.status()), Not(HasSubstr("\n")));
  }
  EXPECT_THAT(What(ParseAnswer("compile", kStamps, "hello\nyou").status()), HasSubstr("hello"));
  EXPECT_THAT(What(ParseAnswer("compile", kStamps, "").status()), HasSubstr("nothing"));
}

TEST(Answer, HitsAreWhole) {
  const auto parse = [](const char* hits) {
    return ParseAnswer("hit", {}, std::string(R"({"stamps": {}, "hits": )") + hits + "}").ok();
  };
  EXPECT_TRUE(parse("[]"));
  EXPECT_TRUE(parse(R"([{"bytes": 1, "disk_us": [1], "read_us": [2], "held_us": [3]}])"));
  EXPECT_FALSE(parse(R"([{"bytes": 1, "disk_us": [], "read_us": [2], "held_us": [3]}])"));
  EXPECT_FALSE(parse(R"([{"bytes": 1, "disk_us": ["x"], "read_us": [2], "held_us": [3]}])"));
  EXPECT_FALSE(parse(R"([{"disk_us": [1], "read_us": [2], "held_us": [3]}])"));
  EXPECT_FALSE(parse("[1]"));
  EXPECT_FALSE(parse("null"));
  EXPECT_FALSE(ParseAnswer("hit", {}, R"({"stamps": {}})").ok());
}

TEST(Answer, EveryModeOwesWhatItsRowsShow) {
  EXPECT_THAT(StampsOf("kvr", true), testing::ElementsAre("opened", "loaded", "launched"));
  EXPECT_THAT(StampsOf("nvrtc", false), testing::ElementsAre("opened", "built"));
  EXPECT_THAT(StampsOf("nvrtc", true), testing::Contains("loaded"));
  EXPECT_THAT(StampsOf("hit", true), testing::IsEmpty());
}

template <typename F>
int EndOf(const F& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int ended = 0;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  return ended;
}

TEST(Answer, HowAProcessEndedIsSaid) {
  EXPECT_TRUE(CheckEnd("kvr", EndOf([] {}), "").ok());
  const absl::Status code = CheckEnd("kvr", EndOf([] { _exit(7); }), "two\nlines");
  EXPECT_EQ(What(code), "the process 'kvr' ended with 7, having printed 'two'");
  EXPECT_EQ(CheckEnd("prepare", EndOf([] { _exit(2); }), "").code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status killed = CheckEnd("kvr", EndOf([] { raise(SIGKILL); }), "");
  EXPECT_EQ(What(killed), "the process 'kvr' was ended by Killed, having printed nothing");
}

}  // namespace
}  // namespace kvr::bench
