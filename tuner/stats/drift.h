// SPDX-License-Identifier: Apache-2.0
//
// Is the machine still the one it was, and is it ours alone? A sentinel, the same small kernel
// every few epochs, answers.
//
// Drift: its times are standardised by its own first ones, winsorised at +-3 (one hiccup is no
// drift), and summed both ways (Page's CUSUM, slack k, alarm at h).
//
// Sharing: another process on a GPU takes turns with ours, and a turn lasts about a millisecond or
// more. A sentinel that has to wait for one takes that much longer, whatever it takes by itself: a
// quarter of a millisecond over the least is neither the device's doing (an idle one spreads by
// about 1 % of 20 us) nor the launch's (some 5 us). The host can do it, by not running us, but not
// time and again: three of the last eight count. So do first times that spread by more than 5 %,
// five times an idle device's: somebody computes beside us.
//
// Threading: one caller at a time. Units: microseconds.
#pragma once

#include <deque>
#include <limits>
#include <string>
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
  static constexpr int kBaseline = 16;  // sentinels that say what usual is
  static constexpr double kMostSpread = 0.05;

  void Add(double sentinel_us);
  bool drifted() const { return cusum_.alarmed(); }
  // The last kBaseline sentinels over the first, relative; 0 before there are so many.
  double change() const;
  bool spread_out() const { return spread_ > kMostSpread; }
  double spread() const { return spread_; }  // of the first, a robust standard deviation, relative

 private:
  std::vector<double> first_;
  std::deque<double> last_;
  double center_ = 0, scale_ = 0, spread_ = 0;
  Cusum cusum_;
};

class SharingMonitor {
 public:
  static constexpr int kWindow = 8, kMostWaits = 2;
  static constexpr double kWaitUs = 250;

  // `sentinel_us`: a sentinel launched on an idle device, what it waited included.
  void Add(double sentinel_us);
  bool shared() const { return shared_; }
  double longest_us() const { return longest_; }

 private:
  std::deque<double> last_;
  double least_ = std::numeric_limits<double>::infinity(), longest_ = 0;
  bool shared_ = false;
};

// Both on one device, for as long as it is watched. After each piece of trouble what is usual is
// learnt anew.
class DeviceWatch {
 public:
  void Add(double sentinel_us, double lead_us);
  // What is wrong since the last call: "the device drifted: the sentinel takes 3.2 % longer than
  // before"; empty: nothing.
  std::string TakeTrouble();

 private:
  DriftMonitor drift_;
  SharingMonitor sharing_;
};

}  // namespace kvr::stats
