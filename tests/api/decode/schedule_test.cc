// SPDX-License-Identifier: Apache-2.0
#include "api/decode/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace kvr {
namespace {

using ::testing::ElementsAre;

struct Course {
  std::map<int64_t, int64_t> tokens, began, ended;  // by request; steps
  std::vector<int64_t> batches;                     // by step
};

Course RunAll(int64_t concurrency, int64_t requests, int64_t max_tokens) {
  Course course;
  DecodeSchedule schedule(concurrency, requests, max_tokens);
  for (int64_t step = 0; !schedule.done(); ++step) {
    std::set<int64_t> running;
    for (const DecodeSchedule::Slot& slot : schedule.running()) {
      EXPECT_TRUE(running.insert(slot.request).second) << "request " << slot.request << " twice";
      EXPECT_EQ(slot.tokens, course.tokens[slot.request]);
      course.began.emplace(slot.request, step);
      ++course.tokens[slot.request];
    }
    course.batches.push_back(schedule.batch());
    for (const int64_t request : schedule.EndStep()) {
      EXPECT_TRUE(running.contains(request));
      EXPECT_TRUE(course.ended.emplace(request, step).second);
    }
    if (step > requests * max_tokens) {
      ADD_FAILURE() << "it does not end";
      break;
    }
  }
  EXPECT_EQ(schedule.tokens(), requests * max_tokens);
  return course;
}

TEST(DecodeSchedule, HoldsItsPropertiesWhateverTheLoad) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(1 + random() % most); };
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t concurrency = draw(40), requests = draw(120), max_tokens = draw(30);
    SCOPED_TRACE(testing::Message() << concurrency << " " << requests << " " << max_tokens);
    const Course course = RunAll(concurrency, requests, max_tokens);

    // Everybody finishes, with all tokens.
    EXPECT_EQ(course.ended.size(), static_cast<size_t>(requests));
    for (const auto& [request, tokens] : course.tokens) EXPECT_EQ(tokens, max_tokens) << request;

    // Never more than may run; fewer only when nobody waits any longer, and then ever fewer.
    EXPECT_LE(course.batches.front(), concurrency);
    EXPECT_TRUE(std::is_sorted(course.batches.rbegin(), course.batches.rend()));
    const int64_t last_began = course.began.at(requests - 1);
    for (int64_t step = 0; step < last_began; ++step) {
      EXPECT_EQ(course.batches[step], std::min(concurrency, requests)) << step;
      if (course.batches[step] != std::min(concurrency, requests)) break;
    }

    // Fair: they begin in their order, and none stands still once it has begun.
    int64_t before = 0;
    for (const auto& [request, step] : course.began) {
      EXPECT_GE(step, before) << request;
      before = step;
      EXPECT_EQ(course.ended.at(request) - step + 1, max_tokens) << request;
    }
  }
}

TEST(DecodeSchedule, TellsItsBatchesBeforehand) {
  EXPECT_THAT(BatchesOf(48, 192), ElementsAre(48));
  EXPECT_THAT(BatchesOf(48, 200), ElementsAre(48, 8));
  EXPECT_THAT(BatchesOf(48, 5), ElementsAre(5));
  for (const auto& [concurrency, requests] : {std::pair(3, 8), {5, 5}, {4, 1}, {7, 30}}) {
    std::vector<int64_t> seen = RunAll(concurrency, requests, 6).batches;
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    EXPECT_EQ(BatchesOf(concurrency, requests), seen);
  }
}

TEST(DecodeSchedule, ABatchIsPaddedToTheNextBucket) {
  EXPECT_EQ(DecodeBucketOf(1), 1);
  EXPECT_EQ(DecodeBucketOf(3), 4);
  EXPECT_EQ(DecodeBucketOf(48), 48);
  EXPECT_EQ(DecodeBucketOf(49), 64);
  EXPECT_EQ(DecodeBucketOf(512), 512);
  EXPECT_EQ(DecodeBucketOf(513), 0);
}

}  // namespace
}  // namespace kvr
