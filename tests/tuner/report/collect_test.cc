// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/property_tree/xml_parser.hpp>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "tests/tuner/report/example_ledger.h"

namespace kvr::report {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class CollectTest : public ::testing::Test {
 protected:
  CollectTest() {
    char path[] = "/tmp/kvr-report-XXXXXX";
    directory_ = mkdtemp(path);
    ledger_ = *ledger::Ledger::Open(directory_);
  }
  ~CollectTest() override { std::filesystem::remove_all(directory_); }

  CollectRequest Request() {
    CollectRequest request;
    request.op = kExampleOp;
    request.operation = operation_.get();
    request.bandwidth = [](const ledger::Environment&) { return 4.3e12; };
    return request;
  }
  Report Collected(const CollectRequest& request) {
    absl::StatusOr<Report> report = Collect(*ledger_, request);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : Report{};
  }

  int64_t At(const ledger::Environment& environment) { return *ledger_->Remember(environment); }
  ledger::Verdict Add(ledger::Verdict verdict) {
    verdict.op = kExampleOp;
    if (verdict.environment == 0) verdict.environment = At(ExampleDevice());
    if (verdict.kind.empty()) verdict.kind = "quick";
    if (verdict.mode.empty()) verdict.mode = "graph cold";
    if (verdict.incumbent.empty()) verdict.incumbent = "baseline";
    EXPECT_TRUE(ledger_->Add(verdict).ok());
    return verdict;
  }
  ledger::Trial Add(ledger::Trial trial) {
    trial.op = kExampleOp;
    trial.environment = At(ExampleDevice());
    trial.mode = "graph cold";
    if (trial.status.empty()) trial.status = "PASSED";
    EXPECT_TRUE(ledger_->Add(trial).ok());
    return trial;
  }

  std::string directory_;
  std::unique_ptr<ledger::Ledger> ledger_;
  std::unique_ptr<Operation> operation_ = ExampleOperation();
};

void ExpectWellFormed(const std::string& page) {
  std::istringstream stream(page);
  boost::property_tree::ptree tree;
  try {
    boost::property_tree::read_xml(stream, tree);
  } catch (const boost::property_tree::xml_parser_error& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST_F(CollectTest, EveryVerdictIsARowWithItsIntervalAndEveryLoserIsKept) {
  FillExample(*ledger_);
  const Report report = Collected(Request());
  const std::vector<ledger::Verdict> verdicts = *ledger_->Find<ledger::Verdict>({});
  ASSERT_EQ(report.rows.size(), verdicts.size());
  const std::string markdown = ToMarkdown(report), page = ToHtml(report);
  for (const ledger::Verdict& v : verdicts) {
    const auto row = std::find_if(report.rows.begin(), report.rows.end(), [&](const Row& r) {
      return r.challenger.variant == v.challenger && r.kind == v.kind &&
             StrCat("head_dim=576,", r.axes, ",topk=2048") == v.axes;
    });
    ASSERT_NE(row, report.rows.end()) << v.challenger << " at " << v.axes;
    EXPECT_EQ(row->verdict, v.verdict);
    EXPECT_THAT(markdown, HasSubstr(StrCat("| ", PercentText(v.difference), " | ",
                                           IntervalText(v.low, v.high), " | ")));
    EXPECT_THAT(page,
                HasSubstr(StrCat("data-of=\"interval\">", IntervalText(v.low, v.high), "</td>")));
    if (v.verdict == "INVALID") continue;
    EXPECT_GT(row->incumbent_us, 0);
    EXPECT_NEAR(std::log(row->challenger_us / row->incumbent_us), row->difference, 0.01);
  }
  for (const char* loser :
       {"w8 lost to baseline (ship) at num_tokens=1 (", "w16 could not be compared with",
        "5 configs of wide", "COMPILE_ERROR: needs 233472 bytes", "s3 {BLOCK_H=16",
        "w16 {WARPS=16}: did not build for sm_90a", "screening dropped", "halving dropped",
        "w8 lost to baseline as reported elsewhere (fewer splits a token), at concurrency=8"}) {
    EXPECT_THAT(report.negatives, Contains(HasSubstr(loser)));
  }
  for (const std::string& line : report.negatives) EXPECT_THAT(line, Not(HasSubstr("such as {}")));
}

TEST_F(CollectTest, SaysWhetherToShip) {
  FillExample(*ledger_);
  CollectRequest request = Request();
  request.kind = "ship";
  request.variants = {"w8", "s3"};
  const Report report = Collected(request);
  ASSERT_THAT(report.conclusion, SizeIs(2));
  EXPECT_THAT(report.conclusion[0], HasSubstr("Ship s3: it is faster than baseline at "));
  EXPECT_THAT(report.conclusion[0], HasSubstr("regression of 3 % is excluded at all 6 shapes"));
  EXPECT_THAT(report.conclusion[1], HasSubstr("Do not ship w8 for baseline. It is slower at "));
  EXPECT_EQ(report.title, "sparse_decode: s3 and w8 against baseline");
  EXPECT_THAT(report.what, Contains(HasSubstr("STAGES 3 instead of 2")));
  EXPECT_THAT(report.what, Contains(HasSubstr("Measured at head_dim=576, topk=2048.")));
}

TEST_F(CollectTest, DrawsSamplesBySessionTheFunnelAndTheFloor) {
  FillExample(*ledger_);
  const Report report = Collected(Request());
  const auto ship = std::find_if(report.samples.begin(), report.samples.end(), [](const auto& s) {
    return s.title == "num_tokens=64: s3 against baseline (ship)";
  });
  ASSERT_NE(ship, report.samples.end());
  EXPECT_THAT(ship->sessions, SizeIs(15));
  for (const Samples::Series& series : ship->series) EXPECT_THAT(series.us, SizeIs(320));
  ASSERT_THAT(report.funnels, SizeIs(1));
  const std::vector<Funnel::Stage>& stages = report.funnels[0].stages;
  ASSERT_THAT(stages, SizeIs(3));
  EXPECT_EQ(stages[0].entered, 64);
  EXPECT_EQ(stages[0].kept, stages[1].entered);
  EXPECT_EQ(stages[1].kept, stages[2].entered);
  ASSERT_THAT(report.regret, SizeIs(1));
  EXPECT_THAT(report.regret[0], HasSubstr("all 64 configs, measured for 60 rounds each"));
  ASSERT_THAT(report.scalings, SizeIs(1));
  EXPECT_EQ(report.scalings[0].axis, "num_tokens");
  ASSERT_THAT(report.scalings[0].floor, SizeIs(kExampleShapes));
  EXPECT_NEAR(report.scalings[0].floor[0].us, 2048 * 576 * 2 / 4.3e12 * 1e6, 1e-9);
  EXPECT_THAT(report.noise, SizeIs(3));
  ASSERT_THAT(report.reported, SizeIs(1));
  EXPECT_EQ(report.reported[0].verdict, "LOSS");
}

TEST_F(CollectTest, PagesStandAloneAndAreTheSameForTheSameLedger) {
  FillExample(*ledger_);
  const std::string page = ToHtml(Collected(Request()));
  ExpectWellFormed(page);
  for (const char* outside : {"http", "<script", "src=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_EQ(page, ToHtml(Collected(Request())));
  EXPECT_EQ(ToMarkdown(Collected(Request())), ToMarkdown(Collected(Request())));
  EXPECT_LT(page.size(), 500'000u);
}

TEST_F(CollectTest, AnEmptyLedgerSaysWhatToRun) {
  const absl::Status nothing = Collect(*ledger_, Request()).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Fix(nothing)), HasSubstr("kvr ab sparse_decode"));
}

TEST_F(CollectTest, ARequestThatNothingMeetsSaysWhatThereIs) {
  FillExample(*ledger_);
  CollectRequest request = Request();
  request.axes = {{{"num_tokens", 7}}};
  const absl::Status nothing = Collect(*ledger_, request).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Fix(nothing)), HasSubstr("num_tokens=48"));
}

TEST_F(CollectTest, OneShapeIsNamedByWhatIsNotItsDefault) {
  Add(ledger::Verdict{.axes = "head_dim=576,num_tokens=3,topk=2048",
                      .challenger = "w8",
                      .verdict = "EQUIVALENT",
                      .low = -0.01,
                      .high = 0.01,
                      .band = 0.01,
                      .rounds = 12});
  const Report report = Collected(Request());
  ASSERT_THAT(report.rows, SizeIs(1));
  EXPECT_EQ(report.rows[0].axes, "num_tokens=3");
  EXPECT_TRUE(std::isnan(report.rows[0].incumbent_us));  // no samples are stored
  EXPECT_THAT(report.scalings, IsEmpty());
  EXPECT_THAT(report.negatives, Contains(HasSubstr("w8 gained nothing over baseline")));
  ExpectWellFormed(ToHtml(report));
}

TEST_F(CollectTest, ARaceWithoutIncumbentIsReported) {
  for (const char* config : {"W=4", "W=8"}) {
    ledger::Trial trial{.session = "r", .variant = "w8", .config = config, .axes = "num_tokens=3"};
    trial.stage = "screen";
    trial.outcome = config == std::string("W=4") ? "kept" : "dropped";
    trial.samples = {9, 10};
    trial.median_us = config == std::string("W=4") ? 9.5 : 20;
    Add(trial);
  }
  const Report report = Collected(Request());
  EXPECT_THAT(
      report.conclusion,
      Contains("The race at num_tokens=3 chose w8 {W=4}; no comparison with an incumbent is "
               "in the ledger."));
  EXPECT_THAT(report.negatives, Contains(HasSubstr("screening dropped w8 {W=8} (20.00 µs)")));
  ExpectWellFormed(ToHtml(report));
}

TEST_F(CollectTest, TheNewestRunOfAComparisonCountsUnlessATimeIsGiven) {
  ledger::Verdict verdict{.axes = "num_tokens=3", .challenger = "w8"};
  verdict.time = "2026-11-28T10:00:00.000Z";
  verdict.verdict = "WIN";
  Add(verdict);
  verdict.time = "2026-11-27T10:00:00.000Z";  // the clock jumped back
  verdict.verdict = "LOSS";
  Add(verdict);
  EXPECT_EQ(Collected(Request()).rows.at(0).verdict, "LOSS");
  CollectRequest request = Request();
  request.since = "2026-11";
  EXPECT_THAT(Collected(request).rows, SizeIs(2));
  request.since = "2026-11-28";
  EXPECT_THAT(Collected(request).rows, SizeIs(1));
}

TEST_F(CollectTest, DevicesStandInRowsOfTheirOwn) {
  ledger::Verdict verdict{.axes = "num_tokens=3", .challenger = "w8", .verdict = "WIN"};
  verdict.environment = At(ExampleDevice("GPU-1"));
  Add(verdict);
  verdict.environment = At(ExampleDevice("GPU-2"));
  verdict.verdict = "LOSS";
  Add(verdict);
  const Report report = Collected(Request());
  ASSERT_THAT(report.rows, SizeIs(2));
  EXPECT_EQ(report.rows[0].where, "NVIDIA H200 #1");
  EXPECT_EQ(report.rows[1].where, "NVIDIA H200 #2");
  ASSERT_THAT(report.conclusion, SizeIs(2));
  EXPECT_THAT(ToMarkdown(report), HasSubstr("| NVIDIA H200 #2 | device NVIDIA H200, GPU-2;"));
}

TEST_F(CollectTest, SessionsInTroubleAreNotAVerdictsOwnAndAreCounted) {
  for (const char* session : {"a", "b", "c"}) {
    for (const char* variant : {"baseline", "w8"}) {
      ledger::Trial trial{.session = session, .variant = variant, .axes = "num_tokens=3"};
      trial.stage = "ab";
      trial.samples = {session == std::string("b") ? 99.0 : 10.0};
      if (session == std::string("b")) trial.reason = "the sentinel drifted";
      Add(trial);
    }
  }
  Add(ledger::Verdict{.session = "c",
                      .axes = "num_tokens=3",
                      .kind = "ship",
                      .challenger = "w8",
                      .verdict = "EQUIVALENT",
                      .rounds = 2,
                      .sessions = 2});
  const Report report = Collected(Request());
  EXPECT_EQ(report.rows.at(0).challenger_us, 10);
  EXPECT_EQ(report.rows.at(0).rounds, 1);
  EXPECT_THAT(report.samples.at(0).sessions, SizeIs(1));
  EXPECT_THAT(report.negatives, Contains("1 session was not used: the sentinel drifted"));

  // Another's trouble is not this report's.
  ledger::Trial other{.session = "d", .variant = "s3", .axes = "num_tokens=3"};
  other.stage = "ab";
  other.samples = {10.0};
  other.reason = "the device was throttled";
  other.throttle_bits = 4;
  Add(other);
  CollectRequest request = Request();
  request.variants = {"w8"};
  const Report narrow = Collected(request);
  EXPECT_THAT(narrow.negatives, Contains(HasSubstr("the sentinel drifted")));
  EXPECT_THAT(narrow.negatives, Not(Contains(HasSubstr("throttled"))));
  for (const auto& [name, value] : narrow.environment) EXPECT_NE(name, "throttled");
}

TEST_F(CollectTest, TimesOverAnAxisAgreeWithTheVerdicts) {
  // w8 met the baseline when the machine was half as fast.
  for (const char* challenger : {"s3", "w8"}) {
    for (const char* axes : {"num_tokens=1,topk=512", "num_tokens=2,topk=512"}) {
      const double speed = challenger == std::string("w8") ? 2 : 1;
      for (const char* variant : {"baseline", challenger}) {
        ledger::Trial trial{.session = StrCat(challenger, axes), .variant = variant, .axes = axes};
        trial.stage = "ab";
        trial.samples = {10 * speed, 10 * speed};
        if (variant == std::string("w8")) trial.samples = {22, 22};
        Add(trial);
      }
      Add(ledger::Verdict{.session = StrCat(challenger, axes),
                          .axes = axes,
                          .challenger = challenger,
                          .verdict = speed > 1 ? "LOSS" : "EQUIVALENT",
                          .difference = speed > 1 ? std::log(1.1) : 0,
                          .rounds = 2});
    }
  }
  const Report report = Collected(Request());
  ASSERT_THAT(report.scalings, SizeIs(1));
  const std::vector<Scaling::Line>& lines = report.scalings[0].lines;
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[0].name, "baseline");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[0].points[i].us, 15);
    EXPECT_NEAR(lines[1].points[i].us / lines[0].points[i].us, 1, 1e-9);
    EXPECT_NEAR(lines[2].points[i].us / lines[0].points[i].us, 1.1, 1e-9);
  }
  EXPECT_THAT(ToMarkdown(report), HasSubstr(kScalingNote));
  EXPECT_THAT(ToHtml(report), HasSubstr("ratio of its own verdict"));
}

TEST_F(CollectTest, ATuningKeyDoesNotMakeShapesLong) {
  for (const char* axes :
       {"head_dim=576,num_tokens=1,topk=64", "head_dim=576,num_tokens=2,topk=64"})
    Add(ledger::Verdict{.axes = axes, .challenger = "w8", .verdict = "LOSS"});
  ledger::Publication published{.environment = At(ExampleDevice()), .op = kExampleOp};
  published.axes = "topk=64";
  published.trigger = "tune";
  published.variant = "w8";
  published.outcome = "published";
  ASSERT_TRUE(ledger_->Add(published).ok());
  // Several modes, of which a publication has none.
  Add(ledger::Verdict{.axes = "head_dim=576,num_tokens=1,topk=64",
                      .mode = "eager hot",
                      .challenger = "w8",
                      .verdict = "LOSS"});
  const Report report = Collected(Request());
  EXPECT_EQ(report.rows.at(0).axes, "num_tokens=1");
  EXPECT_THAT(report.what, Contains("Measured at head_dim=576, topk=64."));
  ASSERT_THAT(report.published, SizeIs(1));
  EXPECT_THAT(report.published[0], ::testing::StartsWith("topk=64: w8 published by tune"));
}

TEST_F(CollectTest, ARaceIsToldByItsOwnVerdict) {
  const auto race = [&](const std::string& session, const std::string& chosen,
                        const std::string& verdict) {
    for (const char* config : {"W=4", "W=8"}) {
      ledger::Trial trial{
          .session = session, .variant = "w8", .config = config, .axes = "num_tokens=3"};
      trial.stage = "final";
      trial.outcome = "kept";
      trial.samples = {9, 10};
      trial.median_us = config == std::string("W=4") ? 9.5 : 20;
      Add(trial);
    }
    Add(ledger::Verdict{.session = session,
                        .axes = "num_tokens=3",
                        .challenger = "w8",
                        .challenger_config = chosen,
                        .verdict = verdict});
  };
  // The incumbent itself came first, so that the best of the others met it; then a ship verdict.
  race("r", "W=8", "LOSS");
  Add(ledger::Verdict{.session = "s",
                      .axes = "num_tokens=3",
                      .kind = "ship",
                      .challenger = "w8",
                      .challenger_config = "W=8",
                      .verdict = "WIN"});
  for (const char* kind : {"", "ship"}) {
    CollectRequest request = Request();
    request.kind = kind;
    const Report report = Collected(request);
    EXPECT_THAT(report.conclusion, Contains(HasSubstr("The race at num_tokens=3 chose w8")));
    EXPECT_THAT(report.conclusion, Not(Contains(HasSubstr("no comparison"))));
  }
}

TEST_F(CollectTest, SaysNoMoreOfTheCacheThanIsKnown) {
  Add(ledger::Verdict{.axes = "num_tokens=3", .challenger = "w8", .verdict = "LOSS"});
  EXPECT_THAT(Collected(Request()).how,
              Contains(HasSubstr("rotate over more than the cache holds, where memory allows")));
  CollectRequest request = Request();
  ledger::Environment host = ExampleDevice("HOST");
  host.device_kind = "host";
  Add(ledger::Verdict{
      .environment = At(host), .axes = "num_tokens=4", .challenger = "w8", .verdict = "LOSS"});
  request.axes = {{{"num_tokens", 4}}};
  EXPECT_THAT(Collected(request).how, Not(Contains(HasSubstr("cache"))));
}

TEST_F(CollectTest, AVariantsDefaultConfigIsItsName) {
  for (const char* config : {"S=2,W=4", "S=2,W=8"}) {
    Add(ledger::Verdict{.axes = "num_tokens=3",
                        .incumbent = "baseline",
                        .incumbent_config = "S=2,W=4",
                        .challenger = "baseline",
                        .challenger_config = config,
                        .verdict = "LOSS"});
  }
  CollectRequest request = Request();
  request.defaults["baseline"] = "S=2,W=4";
  const Report report = Collected(request);
  ASSERT_THAT(report.rows, SizeIs(2));
  EXPECT_EQ(Named(report.rows[0].challenger), "baseline {W=8}");
  EXPECT_EQ(Named(report.rows[0].incumbent), "baseline");
  EXPECT_THAT(report.baseline, Contains("baseline, its default config {S=2,W=4}."));
  EXPECT_THAT(report.what, Contains(HasSubstr("baseline against itself")));
}

TEST_F(CollectTest, WhatNobodyKnowsIsRefused) {
  FillExample(*ledger_);
  const auto refused = [&](const CollectRequest& request) {
    const absl::Status status = Collect(*ledger_, request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  for (const char* since : {"yesterday", "2026-1", "2026-13", "2026-11-30 09", "2026-11-30T25",
                            "2026-11-30T09:00:00+01:00"}) {
    CollectRequest request = Request();
    request.since = since;
    EXPECT_THAT(refused(request), HasSubstr("is no time"));
  }
  for (const char* since : {"2026", "2026-11-30T09Z", "2026-11-30T09:00", "2026-11-30T09:00:00Z"}) {
    CollectRequest request = Request();
    request.since = since;
    EXPECT_TRUE(Collect(*ledger_, request).ok()) << since;
  }
  CollectRequest request = Request();
  request.axes = {{{"num_token", 3}}};
  EXPECT_THAT(refused(request), HasSubstr("unknown axis 'num_token'"));
  request.axes = {{{"concurrency", 8}}};  // of somebody's table alone
  EXPECT_TRUE(Collect(*ledger_, request).ok());
  request = Request();
  request.variants = {"w9"};
  EXPECT_THAT(refused(request), HasSubstr("unknown variant 'w9'"));
  request.descriptions["w9"] = "nine warps";  // the catalog's, never measured
  EXPECT_NE(Collect(*ledger_, request).status().code(), absl::StatusCode::kInvalidArgument);
}

class SinglesTest : public CollectTest {
 protected:
  // A key's own choice against one for all, as a tune leaves it.
  void AddSingle(int tokens, const std::string& own, const std::string& verdict, double difference,
                 int rounds = 20) {
    ledger::Verdict v;
    v.session = StrCat("single-", tokens);
    v.axes = StrCat("head_dim=576,num_tokens=", tokens, ",topk=2048");
    v.kind = "single";
    v.incumbent_config = "TARGET_CTAS=256";
    v.challenger = "wide";
    v.challenger_config = own;
    v.verdict = verdict;
    v.difference = difference;
    v.low = difference - 0.01 * (rounds > 0);
    v.high = difference + 0.01 * (rounds > 0);
    v.band = 0.012;
    v.rounds = rounds;
    v.sessions = rounds > 0;
    for (const auto& [variant, config, us] :
         {std::tuple(v.incumbent.empty() ? "baseline" : v.incumbent.c_str(), v.incumbent_config,
                     10.0),
          std::tuple("wide", own, 10 * std::exp(difference))}) {
      if (rounds == 0) break;
      ledger::Trial trial{.session = v.session, .variant = variant, .config = config};
      trial.axes = v.axes;
      trial.stage = "ab";
      trial.samples = {us, us};
      trial.median_us = us;
      Add(trial);
    }
    Add(v);
  }
};

TEST_F(SinglesTest, AFinerKeyThatGainsNothingIsCalledMoot) {
  AddSingle(1, "TARGET_CTAS=256", "EQUIVALENT", 0, /*rounds=*/0);
  AddSingle(8, "TARGET_CTAS=512", "EQUIVALENT", -0.003);
  AddSingle(64, "TARGET_CTAS=1024", "LOSS", 0.04);
  const Report report = Collected(Request());
  EXPECT_THAT(report.rows, IsEmpty());  // in a section of their own
  ASSERT_THAT(report.singles, SizeIs(1));
  EXPECT_EQ(report.singles[0].keys, "topk=2048");
  ASSERT_THAT(report.singles[0].rows, SizeIs(3));
  EXPECT_TRUE(std::isnan(report.singles[0].rows[0].challenger_us));
  EXPECT_DOUBLE_EQ(report.singles[0].rows[1].incumbent_us, 10);
  ASSERT_THAT(report.conclusion, SizeIs(1));
  EXPECT_THAT(report.conclusion[0], HasSubstr("One choice for 3 keys of topk=2048, baseline"));
  EXPECT_THAT(report.conclusion[0], HasSubstr("is moot on this device"));
  EXPECT_THAT(report.conclusion[0], HasSubstr("slower at num_tokens=64 (+4.1 %"));
  EXPECT_THAT(report.conclusion[0], HasSubstr("as fast at num_tokens=1 and num_tokens=8"));
  const std::string markdown = ToMarkdown(report), page = ToHtml(report);
  ExpectWellFormed(page);
  EXPECT_THAT(markdown, HasSubstr("## One choice for all keys"));
  EXPECT_THAT(markdown,
              HasSubstr("| num_tokens=64 | wide {TARGET_CTAS=1024} | LOSS (20) | +4.1 %"));
  EXPECT_THAT(page, HasSubstr("One choice for all keys"));
  EXPECT_THAT(page, HasSubstr("wide {TARGET_CTAS=1024}"));
}

TEST_F(SinglesTest, WhatIsFasterBeyondTheBandIsToldWithItsFiguresAndTheNewestRunCounts) {
  AddSingle(1, "TARGET_CTAS=1024", "EQUIVALENT", 0.001);
  AddSingle(1, "TARGET_CTAS=512", "WIN", -0.05);
  AddSingle(8, "TARGET_CTAS=512", "INCONCLUSIVE", -0.012);
  const Report report = Collected(Request());
  ASSERT_THAT(report.singles, SizeIs(1));
  EXPECT_THAT(report.singles[0].rows, SizeIs(2));
  const std::string worth = Worth(report.singles[0]);
  EXPECT_THAT(worth, HasSubstr("at 1 of 2 its own is faster beyond the noise band: num_tokens=1 ("
                               "-4.9 %"));
  EXPECT_THAT(worth, HasSubstr("not told apart at num_tokens=8"));
  EXPECT_THAT(worth, Not(HasSubstr("moot")));
  CollectRequest request = Request();
  request.kind = "ship";
  EXPECT_FALSE(Collect(*ledger_, request).ok());  // --ship is about ship verdicts alone
}

TEST_F(CollectTest, NamesAreTextInBothFormats) {
  const std::string odd = "a<b>&\"c\"|'d'";
  Add(ledger::Verdict{.axes = "num_tokens=3",
                      .challenger = odd,
                      .challenger_config = "W=<|>",
                      .verdict = "INVALID",
                      .reason = "1 < 2 & | \"so\"\n*"});
  ledger::Trial trial{.session = "s", .variant = odd, .config = "W=&|", .axes = "num_tokens=3"};
  trial.status = "RUNTIME_ERROR";
  trial.reason = "<script>alert(1)</script>";
  Add(trial);
  CollectRequest request = Request();
  request.title = "<T> & | \"t\"";
  request.why = "</p><script>";
  const Report report = Collected(request);
  const std::string page = ToHtml(report), markdown = ToMarkdown(report);
  ExpectWellFormed(page);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;|'d'"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;T&gt; &amp; | &quot;t&quot;</title>"));
  EXPECT_THAT(markdown, Not(HasSubstr("<script")));
  EXPECT_THAT(markdown, HasSubstr("a&lt;b>&amp;\"c\"\\|'d'"));
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| num_tokens=3")) continue;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    }
    EXPECT_EQ(bars, 10u) << line;
  }
}

}  // namespace
}  // namespace kvr::report
