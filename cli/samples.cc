// SPDX-License-Identifier: Apache-2.0
#include "cli/samples.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "cli/table.h"
#include "core/strings.h"

namespace kvr::cli {

Json NumberJson(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json RelativeJson(double log_ratio) {
  return std::isfinite(log_ratio) ? Json(std::expm1(log_ratio)) : Json(nullptr);
}

std::string RelativeText(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "?";
  return absl::StrFormat("%+.1f %%", 100 * std::expm1(log_ratio));
}

namespace {

Json NumbersJson(const std::vector<double>& values) {
  Json json = Json::array();
  for (double value : values) json.push_back(NumberJson(value));
  return json;
}

}  // namespace

Json SessionResultJson(const SessionResult& session) {
  return {{"incumbent_us", NumbersJson(session.us[kIncumbent])},
          {"challenger_us", NumbersJson(session.us[kChallenger])},
          {"difference", RelativeJson(Median(session.LogRatios()))},
          {"trouble", session.trouble},
          {"plan_us", session.info.plan_us},
          {"sentinel_us", NumbersJson(session.info.sentinel_us)},
          {"lead_us", NumbersJson(session.info.lead_us)},
          {"clock_mhz", session.info.clock_mhz},
          {"throttle_bits", session.info.throttle_bits}};
}

Json SessionInfoJson(const DeviceInfo& device, const SessionInfo& session) {
  return {{"mode", ModeText(session.mode)},
          {"cold", device.l2_bytes > 0 ? Json(session.cold) : Json(nullptr)},
          {"input_sets", session.input_sets},
          {"sets", session.buffer_sets},
          {"launches_per_epoch", {session.launches_least, session.launches_most}},
          {"least_epoch_us", session.least_epoch_us},
          {"plan_us", session.plan_us},
          {"clock_mhz", session.clock_mhz},
          {"throttle_bits", session.throttle_bits}};
}

Json BandJson(const BandInUse& band) {
  if (!band.trouble.empty()) return {{"axes", AxesJson(band.axes)}, {"trouble", band.trouble}};
  return {{"axes", AxesJson(band.axes)},
          {"band", band.estimate.band},
          {"sigma", band.estimate.sigma},
          {"floor", band.estimate.floor},
          {"sessions", band.sessions},
          {"rounds", band.rounds},
          {"session_medians", NumbersJson(band.estimate.session_medians)},
          {"measured", band.measured},
          {"fresh", band.fresh},
          {"in_ledger", band.in_ledger}};
}

Json DeviceJson(const DeviceInfo& device) {
  return {{"name", device.name},
          {"kind", device.kind},
          {"uuid", device.uuid},
          {"driver", device.driver}};
}

ShapeNames::ShapeNames(const OpSpec& op, const std::vector<Axes>& shapes) : names(shapes.size()) {
  if (shapes.empty()) return;
  Axes shared;
  std::vector<Axes> own(shapes.size());
  for (const AxisSpec& axis : op.axes) {
    const auto value = [&](const Axes& shape) { return shape.at(axis.name); };
    const bool same = std::all_of(shapes.begin(), shapes.end(), [&](const Axes& shape) {
      return value(shape) == value(shapes.front());
    });
    if (!same) {
      for (size_t i = 0; i < shapes.size(); ++i) own[i][axis.name] = value(shapes[i]);
    } else if (!axis.is_const && value(shapes.front()) != axis.default_value) {
      shared[axis.name] = value(shapes.front());
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) names[i] = AxesText(own[i]);
  common = AxesText(shared);
}

std::string ShapeNames::Heading(std::string_view op) const {
  const bool differ = !names.empty() && !names.front().empty();
  const std::string at = !common.empty() ? common : differ || names.empty() ? "" : "its defaults";
  return Wrap(StrCat(op, at.empty() ? "" : " at ", at), TerminalWidth(), 0);
}

std::string HostRemark(const DeviceInfo& device) {
  if (device.kind != "host") return "";
  return "host timings rank nothing on a GPU, and drift is not judged there\n";
}

std::string SessionInfoText(const DeviceInfo& device, const SessionInfo& session) {
  const std::string sets = Count(static_cast<size_t>(session.buffer_sets), "buffer set");
  const bool warm = session.mode.cache == CacheMode::kCold && !session.cold;
  std::string text = "measured ";
  if (warm) {
    const std::string mode = ModeText(session.mode);
    StrAppend(&text, mode.substr(0, mode.find(' ')), ", caches cold asked for but not ",
              device.l2_bytes > 0 ? "reached" : "known to be reached (L2 of unknown size)",
              device.l2_bytes > 0 ? StrCat(" (", sets, ")") : "", ",");
  } else {
    StrAppend(&text, ModeText(session.mode));
  }
  StrAppend(&text, " on ", device.name);
  if (!device.driver.empty() && device.driver != device.name) {
    StrAppend(&text, " (driver ", device.driver, ")");
  }
  StrAppend(&text, ": ", Count(static_cast<size_t>(session.input_sets), "input set"), " in ", sets);
  StrAppend(&text, ", ", session.launches_least);
  if (session.launches_most != session.launches_least) {
    StrAppend(&text, " to ", session.launches_most);
  }
  StrAppend(&text, session.launches_most == 1 ? " launch" : " launches", " an epoch");
  if (session.plan_us > 0) StrAppend(&text, absl::StrFormat(", plan %.2f us", session.plan_us));
  if (session.clock_mhz > 0) StrAppend(&text, ", ", session.clock_mhz, " MHz");
  return text;
}

}  // namespace kvr::cli
