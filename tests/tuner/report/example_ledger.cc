// SPDX-License-Identifier: Apache-2.0
#include "tests/tuner/report/example_ledger.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/sampler.h"
#include "tuner/stats/noise.h"
#include "tuner/stats/quick.h"
#include "tuner/stats/racing.h"
#include "tuner/stats/ship.h"

namespace kvr::report {
namespace {

using ledger::Trial;

constexpr const char* kMode = "graph cold";
constexpr const char* kBase = "BLOCK_H=32,BLOCK_T=16,STAGES=2,TARGET_CTAS=256,WARPS=4";
constexpr int kBatches[kExampleShapes] = {1, 8, 48, 64, 80, 96};

std::string Shape(int batch) { return StrCat("head_dim=576,num_tokens=", batch, ",topk=2048"); }
double BaseUs(int batch) { return 7.5 + 0.6 * batch; }

class RecordingSampler : public Sampler {
 public:
  RecordingSampler(size_t subjects, std::function<double(size_t)> sample)
      : samples(subjects), sample_(std::move(sample)) {}
  int subjects() const override { return static_cast<int>(samples.size()); }
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds) override {
    SampleTable table(static_cast<size_t>(rounds));
    for (std::vector<double>& row : table) {
      for (int subject : subjects) {
        row.push_back(sample_(static_cast<size_t>(subject)));
        samples[static_cast<size_t>(subject)].push_back(row.back());
      }
    }
    return table;
  }
  std::vector<std::vector<double>> samples;  // all that were taken, by subject

 private:
  const std::function<double(size_t)> sample_;
};

class Filler {
 public:
  explicit Filler(ledger::Ledger& ledger) : ledger_(ledger) {
    environment_ = *ledger_.Remember(ExampleDevice());
  }

  double Normal(double sigma) { return std::normal_distribution<double>(0, sigma)(random_); }

  // A sample: noise of one percent, now and then a spike.
  double Sample(double us) {
    const bool spike = std::uniform_real_distribution<double>(0, 1)(random_) < 0.02;
    return us * std::exp(Normal(0.01)) * (spike ? 1.15 : 1);
  }

  // Seconds pass; times do not come from the clock.
  std::string Time() {
    ++seconds_;
    return absl::StrFormat("2026-11-30T%02d:%02d:%02d.000Z", 9 + seconds_ / 3600,
                           seconds_ / 60 % 60, seconds_ % 60);
  }

  template <class Record>
  Record Made(Record record) {
    record.environment = environment_;
    record.op = kExampleOp;
    record.time = Time();
    return record;
  }
  template <class Record>
  void Add(Record record) {
    const absl::Status stored = ledger_.Add(std::move(record));
    if (!stored.ok()) std::abort();
  }

  Trial TrialOf(const std::string& variant, const std::string& config, int batch,
                const std::string& session, const std::string& stage) {
    Trial trial = Made(Trial{});
    trial.session = session;
    trial.variant = variant;
    trial.config = config;
    trial.fingerprint = StrCat(variant, "0123456789abcdef");
    trial.axes = Shape(batch);
    trial.mode = kMode;
    trial.stage = stage;
    trial.status = "PASSED";
    trial.clock_mhz = 1965;
    return trial;
  }

  void AddSampled(Trial trial, std::vector<double> samples) {
    trial.samples = samples;
    std::sort(samples.begin(), samples.end());
    trial.median_us = samples[samples.size() / 2];
    Add(std::move(trial));
  }

  ledger::Verdict VerdictOf(const std::string& variant, const std::string& config, int batch,
                            const std::string& session, const std::string& kind) {
    ledger::Verdict v = Made(ledger::Verdict{});
    v.session = session;
    v.axes = Shape(batch);
    v.mode = kMode;
    v.kind = kind;
    v.incumbent = "baseline";
    v.incumbent_config = kBase;
    v.incumbent_fingerprint = "baseline0123456789abcdef";
    v.challenger = variant;
    v.challenger_config = config;
    v.challenger_fingerprint = StrCat(variant, "0123456789abcdef");
    return v;
  }

  // `effects`: log ratios by shape.
  void Ship(const std::string& variant, const std::string& config,
            const std::vector<double>& effects) {
    std::vector<std::vector<double>> medians(kExampleShapes);
    for (int session = 0; session < stats::kShipSessions; ++session) {
      const std::string name = StrCat(variant, "-ship-", session);
      const double drift = 0.01 * session / stats::kShipSessions;
      for (int shape = 0; shape < kExampleShapes; ++shape) {
        const double mine = Normal(0.003), yours = Normal(0.003);
        std::vector<double> a, b, ratios;
        for (int round = 0; round < stats::kShipRounds; ++round) {
          a.push_back(Sample(BaseUs(kBatches[shape]) * std::exp(drift + mine)));
          b.push_back(Sample(BaseUs(kBatches[shape]) *
                             std::exp(drift + yours + effects[static_cast<size_t>(shape)])));
          ratios.push_back(std::log(b.back() / a.back()));
        }
        AddSampled(TrialOf("baseline", kBase, kBatches[shape], name, "ab"), a);
        AddSampled(TrialOf(variant, config, kBatches[shape], name, "ab"), b);
        std::sort(ratios.begin(), ratios.end());
        medians[static_cast<size_t>(shape)].push_back((ratios[9] + ratios[10]) / 2);
      }
    }
    const stats::ShipVerdict judged = stats::JudgeShip(medians);
    for (int shape = 0; shape < kExampleShapes; ++shape) {
      const stats::ShapeVerdict& of = judged.shapes[static_cast<size_t>(shape)];
      ledger::Verdict v = VerdictOf(variant, config, kBatches[shape], "", "ship");
      v.verdict = stats::VerdictName(of.verdict);
      v.difference = of.difference;
      v.low = of.interval.low;
      v.high = of.interval.high;
      v.session = StrCat(variant, "-ship-", stats::kShipSessions - 1);
      v.rounds = stats::kShipRounds * stats::kShipSessions;
      v.sessions = stats::kShipSessions;
      Add(v);
    }
  }

  void Quick(const std::string& variant, const std::string& config, int batch, double effect,
             const std::string& kind, const std::string& stage) {
    const std::string session = StrCat(variant, "-", kind, "-", batch);
    stats::QuickComparison comparison({.band = 0.012});
    std::vector<double> a, b;
    while (!comparison.done()) {
      a.push_back(Sample(BaseUs(batch)));
      b.push_back(Sample(BaseUs(batch) * std::exp(effect)));
      comparison.Add(a.back(), b.back());
    }
    AddSampled(TrialOf("baseline", kBase, batch, session, stage), a);
    AddSampled(TrialOf(variant, config, batch, session, stage), b);
    ledger::Verdict v = VerdictOf(variant, config, batch, session, kind);
    v.verdict = stats::VerdictName(comparison.verdict());
    v.difference = comparison.median();
    v.low = comparison.interval().low;
    v.high = comparison.interval().high;
    v.band = 0.012;
    v.rounds = comparison.rounds();
    Add(v);
  }

  void Race(int batch) {
    std::vector<std::string> configs;
    std::vector<double> truth;
    for (int h : {16, 32}) {
      for (int t : {16, 32}) {
        for (int stages : {2, 3}) {
          for (int ctas : {128, 256, 512, 1024}) {
            for (int warps : {4, 8}) {
              configs.push_back(StrCat("BLOCK_H=", h, ",BLOCK_T=", t, ",STAGES=", stages,
                                       ",TARGET_CTAS=", ctas, ",WARPS=", warps));
              truth.push_back(BaseUs(batch) * (0.93 + 0.06 * std::abs(Normal(1)) +
                                               (t == 32 ? 0.7 : 0) + (h == 16 ? 0.15 : 0)));
            }
          }
        }
      }
    }
    RecordingSampler sampler(configs.size(),
                             [&](size_t subject) { return Sample(truth[subject]); });
    const stats::RaceResult result = *stats::Race(sampler, {});
    std::vector<size_t> taken(configs.size());
    for (const stats::RaceStage& stage : result.stages) {
      for (int subject : stage.entered) {
        const auto i = static_cast<size_t>(subject);
        Trial trial = TrialOf("wide", configs[i], batch, "race", std::string(stage.name));
        const bool left =
            std::find(stage.left.begin(), stage.left.end(), subject) != stage.left.end();
        trial.outcome = left ? "dropped" : "kept";
        const std::vector<double>& all = sampler.samples[i];
        const size_t end = std::min(all.size(), taken[i] + static_cast<size_t>(stage.rounds));
        AddSampled(std::move(trial), {all.begin() + static_cast<std::ptrdiff_t>(taken[i]),
                                      all.begin() + static_cast<std::ptrdiff_t>(end)});
        taken[i] = end;
      }
    }
    Quick("wide", configs[static_cast<size_t>(result.winner)], batch,
          std::log(truth[static_cast<size_t>(result.winner)] / BaseUs(batch)), "race", "duel");
    for (size_t i = 0; i < configs.size(); ++i) {
      std::vector<double> all;
      for (int round = 0; round < 60; ++round) all.push_back(Sample(truth[i]));
      AddSampled(TrialOf("wide", configs[i], batch, "exhaustive", ""), all);
    }
    ledger::Publication published = Made(ledger::Publication{});
    published.axes = Shape(batch);
    published.trigger = "tune";
    published.variant = "wide";
    published.config = configs[static_cast<size_t>(result.winner)];
    published.outcome = "published";
    Add(published);
  }

  void Noise(int batch) {
    std::vector<std::vector<double>> sessions(stats::kNoiseSessions);
    for (std::vector<double>& session : sessions) {
      const double effect = Normal(0.004);
      for (int round = 0; round < stats::kNoiseRounds; ++round) {
        session.push_back(effect + Normal(0.014));
      }
    }
    const stats::NoiseBand band = *stats::EstimateBand(sessions, 100);
    ledger::Band record = Made(ledger::Band{});
    record.axes = Shape(batch);
    record.mode = kMode;
    record.band = band.band;
    record.sigma = band.sigma;
    record.floor = band.floor;
    record.sessions = stats::kNoiseSessions;
    record.rounds = stats::kNoiseRounds;
    record.session_medians = band.session_medians;
    Add(record);
  }

  void Failures() {
    for (int i = 0; i < 5; ++i) {
      Trial trial = TrialOf("wide", StrCat("BLOCK_H=64,STAGES=", 2 + i), 64, "v", "verify");
      trial.status = "COMPILE_ERROR";
      trial.reason = StrCat("needs ", 233472 + 16384 * i,
                            " bytes of shared memory, the device has 232448\nsee the plan");
      Add(trial);
    }
    Trial wrong = TrialOf("s3", "BLOCK_H=16,STAGES=3", 64, "v", "verify");
    wrong.status = "INCORRECT_NUMERICAL";
    wrong.reason = "output 'out': element 17 is 0.25, expected 0.5 ± 0.01";
    Add(wrong);
    ledger::Build build = Made(ledger::Build{});
    build.variant = "w16";
    build.config = "WARPS=16";
    build.target = "sm_90a";
    build.status = "failed";
    build.reason = "split.cu:12: identifier \"tile\" is undefined";
    Add(build);
    ledger::Verdict invalid = VerdictOf("w16", "WARPS=8", 96, "", "quick");
    invalid.verdict = "INVALID";
    invalid.reason = "the clock fell from 1965 to 1410 MHz";
    invalid.difference = invalid.low = invalid.high = NAN;
    invalid.rounds = 24;
    Add(invalid);
  }

  void OthersTable() {
    ledger::Summary summary = Made(ledger::Summary{});
    summary.axes = "concurrency=8";
    summary.incumbent = "baseline";
    summary.challenger = "w8";
    summary.unit = "aggregate tok/s";
    summary.percents = {-8.2, -7.4};
    summary.band_percent = 7;
    summary.reason = "fewer splits a token";
    summary.source = "campaign of November";
    Add(summary);
  }

 private:
  ledger::Ledger& ledger_;
  int64_t environment_ = 0;
  std::mt19937_64 random_{20261130};
  int seconds_ = 0;
};

class Decode : public Operation {
 public:
  Decode() {
    spec_.name = kExampleOp;
    spec_.key_policy = "topk:pow2";
    spec_.axes = {{"num_tokens", false, 0, 64, ""},
                  {"topk", false, 0, 2048, ""},
                  {"head_dim", true, 576, 1, ""}};
  }
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>{};
  }
  int64_t MinimumBytes(const AxisVector& axes) const override {
    return axes[0] * axes[1] * axes[2] * 2;
  }

 private:
  OpSpec spec_;
};

}  // namespace

ledger::Environment ExampleDevice(const std::string& uuid) {
  return {.device_kind = "cuda",
          .device_name = "NVIDIA H200",
          .device_model = "nvidia-h200",
          .device_uuid = uuid,
          .target = "sm_90a",
          .driver = "580.95.05",
          .compiler = "nvrtc 13.0",
          .kvr_version = "0.1.0",
          .host = "gpu-7"};
}

void FillExample(ledger::Ledger& ledger) {
  Filler filler(ledger);
  for (int batch : {1, 64, 96}) filler.Noise(batch);
  filler.Ship("w8", "BLOCK_H=32,BLOCK_T=16,STAGES=2,TARGET_CTAS=256,WARPS=8",
              {0.052, 0.034, 0.004, 0.001, -0.003, -0.006});
  filler.Ship("s3", "BLOCK_H=32,BLOCK_T=16,STAGES=3,TARGET_CTAS=256,WARPS=4",
              {-0.001, -0.002, -0.021, -0.048, -0.041, -0.055});
  for (int batch : {1, 64, 96}) filler.Quick("baseline", kBase, batch, 0, "quick", "ab");
  filler.Race(64);
  filler.Failures();
  filler.OthersTable();
}

std::unique_ptr<Operation> ExampleOperation() { return std::make_unique<Decode>(); }

}  // namespace kvr::report
