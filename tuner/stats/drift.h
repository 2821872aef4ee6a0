// SPDX-License-Identifier: Apache-2.0
//
// Is the machine still the one it was when the session began? A sentinel, the same small kernel
// every few rounds, answers: its times are standardised by its own first ones, winsorised at +-3
// (one hiccup is no drift), and summed both ways (Page's CUSUM, slack k, alarm at h).
//
// Threading: one caller at a time.
#pragma once

#include <vector>

namespace kvr::stats {

class Cusum {
 public:
  static constexpr double kWinsor = 3, kSlack = 0.75, kAlarm = 5;
  void Add(double z);
  bool alarmed() const { return alarmed_; }

 private:
  double up_ = 0, down_ = 0;
  bool alarmed_ = false;
};

class DriftMonitor {
 public:
  static constexpr int kBaseline = 8;  // sentinels that say what usual is
  void Add(double sentinel_us);
  bool drifted() const { return cusum_.alarmed(); }

 private:
  std::vector<double> first_;
  double center_ = 0, scale_ = 0;
  Cusum cusum_;
};

}  // namespace kvr::stats
