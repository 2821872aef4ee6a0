// SPDX-License-Identifier: Apache-2.0
//
// What kvr ab and kvr noise say of their sessions: as data, and in a line for people.
//
// Threading: the CLI's own thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "tuner/noise_run.h"

namespace kvr::cli {

// What is no number is null.
Json NumberJson(double value);
// Of time: a log ratio of 0.405 is 0.5, or "+50.0 %"; "?" of what is no number.
Json RelativeJson(double log_ratio);
std::string RelativeText(double log_ratio);
// One session with its samples and those of the sentinel.
Json SessionResultJson(const SessionResult& session);
// What held for all sessions. "cold" is null where the device does not say how large its L2 is.
Json SessionInfoJson(const DeviceInfo& device, const SessionInfo& session);
Json BandJson(const BandInUse& band);
Json DeviceJson(const DeviceInfo& device);

// Names for the shapes of one report: the axes in which they differ, in columns; what they share
// and is not the op's default is `common`, said once. One shape has no name but that.
struct ShapeNames {
  ShapeNames(const OpSpec& op, const std::vector<Axes>& shapes);
  std::vector<std::string> names;  // by shape
  std::string common;              // may be empty
  // "moe_decode at hidden=2048,inner=768", a line above the table of the shapes.
  std::string Heading(std::string_view op) const;
};

// What a time on this device is not good for, a line; empty: nothing.
std::string HostRemark(const DeviceInfo& device);
// "measured graph cold on NVIDIA H200 (driver 580.95), 2 input sets in 4 buffer sets, ..."
std::string SessionInfoText(const DeviceInfo& device, const SessionInfo& session);

}  // namespace kvr::cli
