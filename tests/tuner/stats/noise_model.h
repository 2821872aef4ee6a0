// SPDX-License-Identifier: Apache-2.0
//
// Simulated timings with the faults that real ones have. Everything is drawn from one seed.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace kvr::stats {

struct NoiseModel {
  std::string name;
  double sample_noise = 0.06;  // relative, of one sample
  double session_effect = 0;   // relative, of one side in one session
  double drift = 0;            // relative, over one session
  double spike_share = 0;      // of the samples
  double spike_size = 0.5;     // relative
  double autocorrelated = 0;   // relative sigma of a shared AR(1) part, coefficient 0.9
  double tick_us = 0;          // of the clock
};

// One session of alternating measurements of two sides.
class SimulatedSession {
 public:
  SimulatedSession(const NoiseModel& model, double incumbent_us, double challenger_us, int length,
                   std::mt19937_64& random)
      : model_(model), length_(length), random_(random) {
    level_[0] = incumbent_us * std::exp(model.session_effect * normal_(random_));
    level_[1] = challenger_us * std::exp(model.session_effect * normal_(random_));
  }

  // The next sample in time, of side 0 or 1.
  double Sample(int side) {
    constexpr double kCoefficient = 0.9;
    shared_ = kCoefficient * shared_ +
              model_.autocorrelated * std::sqrt(1 - kCoefficient * kCoefficient) * normal_(random_);
    const double progress = static_cast<double>(taken_++) / (2.0 * length_);
    double us = level_[side] * std::exp(model_.sample_noise * normal_(random_) + shared_) *
                (1 + model_.drift * progress);
    if (uniform_(random_) < model_.spike_share) us *= 1 + model_.spike_size;
    if (model_.tick_us > 0) us = std::max(1.0, std::round(us / model_.tick_us)) * model_.tick_us;
    return us;
  }

  // ABBA: the order turns from pair to pair, so that drift favours nobody.
  void Pair(double* incumbent_us, double* challenger_us) {
    const bool first = turn_++ % 2 == 0;
    double us[2];
    us[first ? 0 : 1] = Sample(first ? 0 : 1);
    us[first ? 1 : 0] = Sample(first ? 1 : 0);
    *incumbent_us = us[0];
    *challenger_us = us[1];
  }

 private:
  const NoiseModel& model_;
  const int length_;
  std::mt19937_64& random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double level_[2];
  double shared_ = 0;
  int taken_ = 0, turn_ = 0;
};

inline std::vector<NoiseModel> ModelsAt(double noise) {
  return {
      {.name = "iid", .sample_noise = noise},
      {.name = "drift", .sample_noise = noise, .drift = 0.05, .autocorrelated = 0.03},
      {.name = "session effects", .sample_noise = noise, .session_effect = 0.01},
      {.name = "spikes", .sample_noise = noise, .spike_share = 0.03},
      // 100 us in ticks of 4 us: many ties.
      {.name = "quantised clock", .sample_noise = noise, .tick_us = 4},
  };
}

}  // namespace kvr::stats
