// SPDX-License-Identifier: Apache-2.0
// Export and import: everything comes back, and nothing that cannot be comes in.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "core/status.h"
#include "tests/tuner/ledger/fixture.h"
#include "tuner/ledger/check.h"
#include "tuner/stats/summary.h"

namespace kvr::ledger {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void AddOneOfEach(Ledger& ledger, int64_t environment) {
  EXPECT_TRUE(ledger.Add(TrialOf(environment, "W=1")).ok());
  EXPECT_TRUE(
      ledger
          .Add(Build{
              .environment = environment, .op = "scale", .variant = "baseline", .status = "built"})
          .ok());
  EXPECT_TRUE(ledger
                  .Add(Band{.environment = environment,
                            .op = "scale",
                            .mode = "graph cold",
                            .session_medians = {0.01}})
                  .ok());
  EXPECT_TRUE(
      ledger.Add(Publication{.environment = environment, .trigger = "tune", .outcome = "published"})
          .ok());
  EXPECT_TRUE(ledger
                  .Add(Verdict{.environment = environment,
                               .op = "scale",
                               .mode = "graph cold",
                               .kind = "quick",
                               .challenger = "wide",
                               .verdict = "INCONCLUSIVE",
                               .low = -INFINITY})
                  .ok());
}

// Figures that came as a table read as their authors read them, but for what the band swallows.
TEST_F(LedgerTest, TakesResultsThatCameWithoutSamples) {
  auto ledger = Open();
  std::ifstream file(std::string(KVR_SOURCE_DIR) + "/tests/tuner/ledger/campaign.jsonl");
  const auto imported = ledger->Import(file);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->added, 13);
  std::set<std::string> wins, losses;
  const std::vector<Summary> summaries = *ledger->Find<Summary>({});
  for (const Summary& summary : summaries) {
    const stats::Verdict verdict = stats::JudgeSummary(summary.percents, summary.band_percent);
    const std::string at = summary.challenger + " " + summary.axes;
    if (verdict == stats::Verdict::kWin) wins.insert(at);
    if (verdict == stats::Verdict::kLoss) losses.insert(at);
    EXPECT_EQ(ledger->EnvironmentOf(summary)->target, "sm_120a");
  }
  EXPECT_EQ(wins, std::set<std::string>({"baseline num_tokens=64"}));
  EXPECT_EQ(losses,
            std::set<std::string>({"w8 num_tokens=1", "w8 num_tokens=8", "s3 num_tokens=64"}));
}

TEST_F(LedgerTest, ExchangesEverythingOnce) {
  auto source = Open("a"), target = Open("b");
  ASSERT_TRUE(target->Remember(Gpu("nvidia-l40s")).ok());  // so that ids differ
  const int64_t environment = *source->Remember(Gpu());
  AddOneOfEach(*source, environment);
  ASSERT_TRUE(source->Remember({.target = "sm_90a"}).ok());  // built for without a device
  std::stringstream lines;
  ASSERT_TRUE(source->Export(lines).ok());
  const std::string text = lines.str();
  EXPECT_EQ(target->Import(lines)->added, 7);
  std::stringstream again(text);
  EXPECT_EQ(target->Import(again)->known, 7);
  const std::vector<Trial> trials = *target->Find<Trial>({});
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(target->EnvironmentOf(trials[0])->device_model, "nvidia-h200");
  EXPECT_EQ(trials[0].samples.size(), 4u);
}

TEST_F(LedgerTest, RehearsesAnImportWithoutAFile) {
  auto source = Open();
  ASSERT_TRUE(source->Add(TrialOf(*source->Remember(Gpu()), "W=4")).ok());
  std::stringstream lines;
  const auto count = source->Export(lines);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 2);  // the environment and the trial
  const auto rehearsed = Ledger::Rehearse(lines);
  ASSERT_TRUE(rehearsed.ok()) << rehearsed.status();
  EXPECT_EQ(rehearsed->added, 2);
  std::stringstream bad("{}");
  EXPECT_THAT(std::string(What(Ledger::Rehearse(bad).status())), HasSubstr("line 1"));
}

TEST_F(LedgerTest, ImportsAllOrNothing) {
  auto source = Open("a");
  const int64_t environment = *source->Remember(Gpu());
  ASSERT_TRUE(source->Add(TrialOf(environment, "W=1")).ok());
  std::stringstream lines;
  ASSERT_TRUE(source->Export(lines).ok());
  const std::string good = lines.str();
  const std::vector<std::pair<std::string, std::string>> bad = {
      {good + "{\"table\": \"trials\"", "line 3 of the import is no JSON object"},
      {good + "[]", "line 3 of the import is no JSON object"},
      {good + R"({"table": "spells", "uid": "1"})", "'spells'"},
      {good + R"({"table": "builds", "uid": "1"})", "has no 'time'"},
      {good.substr(good.find('\n') + 1), "names an environment that no line before it has"},
  };
  for (const auto& [text, message] : bad) {
    auto target = Open("b");
    std::stringstream in(text);
    const absl::Status status = target->Import(in).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_TRUE(target->Find<Trial>({})->empty());
    EXPECT_TRUE(target->Find<Environment>({})->empty());
  }
}

std::string Exported(const Ledger& ledger) {
  std::stringstream lines;
  EXPECT_TRUE(ledger.Export(lines).ok());
  return lines.str();
}

// `text` with the one `what` in it replaced.
std::string With(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

std::string Refusal(Ledger& ledger, const std::string& text) {
  std::stringstream in(text);
  const absl::Status status = ledger.Import(in).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST_F(LedgerTest, TakesNoEnvironmentForAnother) {
  auto source = Open("a"), target = Open("b");
  ASSERT_TRUE(source->Add(TrialOf(*source->Remember(Gpu()), "W=1")).ok());
  const std::string good = Exported(*source);
  const std::string forged = With(good, "NVIDIA H200", "NVIDIA H100");
  const std::string uid = source->Find<Environment>({})->at(0).uid;
  // Whether or not the ledger knows the environment whose uid it bears.
  for (int known = 0; known < 2; ++known) {
    EXPECT_THAT(Refusal(*target, forged),
                AllOf(HasSubstr("line 1 of the import (environments '" + uid.substr(0, 12)),
                      HasSubstr("has a 'uid' that is not its content's")));
    EXPECT_EQ(target->Find<Environment>({})->size(), static_cast<size_t>(known));
    ASSERT_TRUE(target->Remember(Gpu()).ok());
  }
}

// By hand nobody writes the uid of a content: a name will do, within the text.
TEST_F(LedgerTest, KnowsAnEnvironmentWrittenByHandByItsContent) {
  auto source = Open("a"), target = Open("b");
  const int64_t here = *source->Remember(Gpu());
  ASSERT_TRUE(source->Add(TrialOf(here, "W=1")).ok());
  const std::string uid = source->Find<Environment>({})->at(0).uid;
  std::string named = Exported(*source);
  for (int i = 0; i < 2; ++i) named = With(named, uid, "mine");
  std::stringstream in(named);
  EXPECT_EQ(target->Import(in)->added, 2);
  EXPECT_EQ(target->Find<Environment>({})->at(0).uid, uid);
  std::stringstream again(Exported(*source));
  EXPECT_EQ(target->Import(again)->known, 2);
  const std::string line = named.substr(0, named.find('\n') + 1);
  EXPECT_THAT(Refusal(*target, line + With(line, "NVIDIA H200", "NVIDIA H100")),
              HasSubstr("line 2 of the import (environments 'mine') has the 'uid' of another"));
}

TEST_F(LedgerTest, TakesNoRecordForAnother) {
  auto source = Open("a"), target = Open("b");
  const int64_t environment = *source->Remember(Gpu());
  AddOneOfEach(*source, environment);
  const std::string good = Exported(*source);
  std::stringstream in(good);
  ASSERT_EQ(target->Import(in)->added, 6);
  for (const char* table : {"builds", "trials", "verdicts", "bands", "publications"}) {
    std::stringstream lines(good);
    std::string first, line;
    std::getline(lines, first);
    while (line.find(std::string("\"") + table) == std::string::npos) std::getline(lines, line);
    const std::string other = With(line, "\"time\":\"2", "\"time\":\"1");
    EXPECT_THAT(Refusal(*target, first + "\n" + other),
                HasSubstr("has the 'uid' of another record, which differs"));
  }
  EXPECT_EQ(Exported(*target), good);
}

TEST_F(LedgerTest, ImportsNothingThatCannotBe) {
  auto source = Open("a"), target = Open("b");
  Trial trial = TrialOf(*source->Remember(Gpu()), "W=1");
  trial.uid = "aa";
  trial.clock_mhz = 1980;
  ASSERT_TRUE(source->Add(trial).ok());
  const std::string good_trial = Exported(*source);
  const std::string environment = good_trial.substr(0, good_trial.find('\n') + 1);
  const std::string of = R"(, "environment": ")" + source->Find<Environment>({})->at(0).uid +
                         R"(", "time": "2026-11-30T11:22:33.444Z", "op": "scale", "axes": "n=4")";
  const std::string good_verdict = environment + R"({"table": "verdicts", "uid": "bb")" + of +
                                   R"(, "session": "s", "mode": "graph cold", "kind": "quick",
      "incumbent": "baseline", "incumbent_fingerprint": "", "incumbent_config": "",
      "challenger": "wide", "challenger_fingerprint": "", "challenger_config": "",
      "verdict": "WIN", "reason": "", "difference": -0.2, "low": -0.3, "high": -0.1,
      "band": 0.01, "rounds": 20, "sessions": 1})";
  const std::string good_band = environment + R"({"table": "bands", "uid": "cc")" + of +
                                R"(, "mode": "graph cold", "band": 0.02, "sigma": 0.01,
      "floor": 0.003, "sessions": 3, "rounds": 20, "session_medians": [0.01, -0.01]})";
  const std::string good_build = environment + R"({"table": "builds", "uid": "dd")" +
                                 With(of, R"(, "axes": "n=4")", "") +
                                 R"(, "variant": "wide", "version": "1.0.0", "fingerprint": "",
      "config": "", "target": "sm_90a", "binary": "", "status": "hit", "reason": "",
      "milliseconds": 2})";
  const auto one_line = [](std::string text) {
    const size_t first = text.find('\n') + 1;
    std::replace(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(), '\n', ' ');
    return text;
  };
  struct Case {
    std::string text, what, by, message;
  };
  const std::vector<Case> cases = {
      {good_trial, R"("uid":"aa")", R"("uid":"")", "'uid'"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":1e308)", "'clock_mhz' of 1e+308"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":18446744073709551615)",
       "'clock_mhz' of 18446744073709551615"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":1.5)", "'clock_mhz' of 1.5"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":-1)", "'clock_mhz' of -1"},
      {good_trial, R"("clock_mhz":1980)", R"("clock_mhz":true)", "'clock_mhz' of another type"},
      {good_trial, R"("median_us":9.5)", R"("median_us":-9.5)", "'median_us' of -9.5"},
      {good_trial, R"([9.25,)", R"([-9.25,)", "'samples' of -9.25"},
      {good_trial, R"("PASSED")", R"("PAST")", "'status' of 'PAST'"},
      {good_trial, R"("graph cold")", R"("graph lukewarm")", "'mode' of 'graph lukewarm'"},
      {good_trial, R"("time":"2)", R"("time":" 2)", "'time' of ' 2"},
      {good_verdict, "33.444Z", "33.444", "'time'"},
      {good_verdict, "2026-11-30", "2026-11-31", "'time'"},
      {good_verdict, "2026-11-30T11:22:33.444Z", "infinite-future", "'time'"},
      {good_verdict, R"("WIN")", R"("WON")", "'verdict' of 'WON'"},
      {good_verdict, R"("quick")", R"("quickly")", "'kind' of 'quickly'"},
      {good_verdict, R"("low": -0.3)", R"("low": 0.3)", "'low' of 0.3"},
      {good_verdict, R"("sessions": 1)", R"("sessions": -5)", "'sessions' of -5"},
      {good_band, R"("band": 0.02)", R"("band": -0.02)", "'band' of -0.02"},
      {good_band, R"("sigma": 0.01)", R"("sigma": null)", "'sigma' of nan"},
      {good_build, R"("hit")", R"("missed")", "'status' of 'missed'"},
      {good_build, R"("milliseconds": 2)", R"("milliseconds": -2)", "'milliseconds' of -2"},
  };
  for (const Case& c : cases) {
    const std::string said = Refusal(*target, one_line(With(c.text, c.what, c.by)));
    EXPECT_THAT(said, HasSubstr("line 2 of the import ("));
    EXPECT_THAT(said, HasSubstr(c.message));
  }
  for (const std::string& good : {good_trial, good_verdict, good_band, good_build}) {
    std::stringstream in(one_line(good));
    const auto imported = target->Import(in);
    EXPECT_TRUE(imported.ok()) << imported.status();
  }
}

TEST_F(LedgerTest, TakesEveryVerdictThatThereIs) {
  Verdict verdict{.uid = "a",
                  .time = Now(),
                  .op = "scale",
                  .mode = "graph cold",
                  .kind = "ship",
                  .challenger = "wide"};
  for (int i = 0; i <= static_cast<int>(stats::Verdict::kInvalid); ++i) {
    verdict.verdict = std::string(stats::VerdictName(static_cast<stats::Verdict>(i)));
    EXPECT_TRUE(Check(verdict).ok()) << Check(verdict);
  }
}

TEST_F(LedgerTest, ExportsWhatIsNoUtf8) {
  auto source = Open("a"), target = Open("b");
  Environment environment = Gpu();
  environment.host = "caf\xe9";
  Trial trial = TrialOf(*source->Remember(environment), "W=1");
  trial.reason = "it said \xff\xfe";
  ASSERT_TRUE(source->Add(trial).ok());
  const std::string text = Exported(*source);
  EXPECT_THAT(text, HasSubstr("it said \xef\xbf\xbd"));
  std::stringstream in(text), again(text), back(text);
  EXPECT_EQ(target->Import(in)->added, 2);
  EXPECT_EQ(target->Import(again)->known, 2);
  EXPECT_EQ(Exported(*target), text);
  ASSERT_TRUE(source->Import(back).ok());
  EXPECT_EQ(source->Find<Trial>({})->size(), 1u);
}

// What an earlier KVR exported has no quality; what is no figure is none.
TEST_F(LedgerTest, QualityTravelsAndMayBeMissing) {
  auto ledger = Open();
  Trial trial = TrialOf(*ledger->Remember(Gpu()), "K0=4");
  trial.uid = "q";
  trial.quality = "y.relative_error=0.0125,zeros=nan";
  ASSERT_TRUE(ledger->Add(trial).ok());
  std::stringstream text;
  ASSERT_TRUE(ledger->Export(text).ok());
  EXPECT_THAT(text.str(), HasSubstr(R"("quality":"y.relative_error=0.0125,zeros=nan")"));
  auto other = Open("b");
  ASSERT_TRUE(other->Import(text).ok());
  EXPECT_EQ(other->Find<Trial>({})->front().quality, trial.quality);

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text.str();
    changed.replace(changed.find(from), from.size(), to);
    return std::stringstream(changed);
  };
  std::stringstream without = with(R"("quality":"y.relative_error=0.0125,zeros=nan",)", "");
  auto third = Open("c");
  const auto imported = third->Import(without);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(third->Find<Trial>({})->front().quality, "");
  std::stringstream wrong = with("zeros=nan", "zeros=many");
  EXPECT_THAT(std::string(Open("d")->Import(wrong).status().message()), HasSubstr("'quality'"));
}

}  // namespace
}  // namespace kvr::ledger
