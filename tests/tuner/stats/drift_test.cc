// SPDX-License-Identifier: Apache-2.0
//
// What a sentinel is believed to say, on simulated devices: 20 us, with noise. 100 sentinels each,
// about as many as a race has.
#include "tuner/stats/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <random>
#include <string>

namespace kvr::stats {
namespace {

using ::testing::HasSubstr;

constexpr int kSessions = 300, kSentinels = 100;

struct Sentinel {
  double us, lead_us;
};
using Next = std::function<Sentinel(int i, std::mt19937& random)>;

double Normal(std::mt19937& random, double deviation) {
  return std::normal_distribution<double>(0, deviation)(random);
}
bool Chance(std::mt19937& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}
// The host's launch comes some microseconds after its event.
double Lead(std::mt19937& random, double us) { return us + 3 + std::abs(Normal(random, 3)); }

// In how many of kSessions there is trouble; `last` is one of its texts.
int Troubled(const char* name, const Next& next, std::string* last = nullptr) {
  int troubled = 0;
  for (int session = 0; session < kSessions; ++session) {
    std::mt19937 random(static_cast<unsigned>(session));
    DeviceWatch watch;
    std::string trouble;
    for (int i = 0; i < kSentinels && trouble.empty(); ++i) {
      const Sentinel sentinel = next(i, random);
      watch.Add(sentinel.us, sentinel.lead_us);
      trouble = watch.TakeTrouble();
    }
    troubled += !trouble.empty();
    if (!trouble.empty() && last != nullptr) *last = trouble;
  }
  std::printf("%s: trouble in %d of %d sessions\n", name, troubled, kSessions);
  return troubled;
}

TEST(DeviceWatch, BelievesAnIdleDevice) {
  for (const double deviation : {0.001, 0.006, 0.01}) {
    EXPECT_LE(Troubled("idle",
                       [deviation](int, std::mt19937& random) {
                         const double us = 20 * (1 + Normal(random, deviation));
                         return Sentinel{us, Lead(random, us)};
                       }),
              kSessions / 20)
        << deviation;
  }
}

TEST(DeviceWatch, ForgivesOneStepOfTheClockAndAHostThatIsLateNowAndThen) {
  EXPECT_LE(Troubled("one step of the clock",
                     [](int i, std::mt19937& random) {
                       const double us = 20 * (i < 50 ? 1 : 1.008) * (1 + Normal(random, 0.006));
                       return Sentinel{us, Lead(random, us)};
                     }),
            kSessions / 20);
  EXPECT_LE(Troubled("late host",
                     [](int, std::mt19937& random) {
                       const double us = 20 * (1 + Normal(random, 0.006));
                       return Sentinel{us, Lead(random, us) + (Chance(random, 0.02) ? 2000 : 0)};
                     }),
            kSessions / 20);
}

TEST(DeviceWatch, SaysWhichWayAndByHowMuchADeviceDrifted) {
  const auto by = [](double change) {
    return [change](int i, std::mt19937& random) {
      const double us = 20 * (i < 40 ? 1 : 1 + change) * (1 + Normal(random, 0.006));
      return Sentinel{us, Lead(random, us)};
    };
  };
  std::string text;
  EXPECT_GE(Troubled("5 % slower", by(0.05), &text), kSessions * 99 / 100);
  EXPECT_THAT(text, HasSubstr("the device drifted"));
  EXPECT_THAT(text, HasSubstr("% longer than before"));
  EXPECT_GE(Troubled("5 % faster", by(-0.05), &text), kSessions * 99 / 100);
  EXPECT_THAT(text, HasSubstr("% less than before"));
}

// Turns of 2 ms: who is idle gives its turn away, so the next launch waits for the other's to end.
TEST(DeviceWatch, FindsAnotherProcessThatTakesTurns) {
  const auto turns = [](double probability) {
    return [probability](int, std::mt19937& random) {
      const double us = 20 * (1 + Normal(random, 0.01));
      const double wait = std::uniform_real_distribution<double>(0, 2000)(random);
      return Sentinel{us, Lead(random, us) + (Chance(random, probability) ? wait : 0)};
    };
  };
  std::string text;
  EXPECT_EQ(Troubled("turns, always", turns(1), &text), kSessions);
  EXPECT_THAT(text, HasSubstr("not ours alone"));
  EXPECT_GE(Troubled("turns, every third time", turns(0.33)), kSessions * 99 / 100);
  // From the middle on.
  EXPECT_GE(
      Troubled("turns, later",
               [&](int i, std::mt19937& random) { return turns(i < 50 ? 0 : 0.5)(i, random); }),
      kSessions * 99 / 100);
}

TEST(DeviceWatch, FindsWhoComputesBesideUs) {
  std::string text;
  EXPECT_GE(Troubled(
                "beside",
                [](int, std::mt19937& random) {
                  const double us = 20 * (1 + std::abs(Normal(random, 0.25)));
                  return Sentinel{us, Lead(random, us)};
                },
                &text),
            kSessions * 95 / 100);
  EXPECT_THAT(text, HasSubstr("not ours alone"));
}

TEST(DeviceWatch, LearnsAnewWhatIsUsualAfterTrouble) {
  DeviceWatch watch;
  std::mt19937 random(1);
  int troubles = 0;
  for (int i = 0; i < 400; ++i) {
    const double us = 20 * (i < 40 ? 1 : 1.1) * (1 + Normal(random, 0.003));
    watch.Add(us, us);
    troubles += !watch.TakeTrouble().empty();
  }
  EXPECT_EQ(troubles, 1);
}

}  // namespace
}  // namespace kvr::stats
