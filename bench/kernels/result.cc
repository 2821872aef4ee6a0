// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/result.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr::bench {
namespace {

// Events resolve half a microsecond over an epoch of many launches.
double Rounded(double us) { return std::round(us * 1000) / 1000; }
double RoundedShare(double share) { return std::round(share * 1e5) / 1e5; }

// A mean over input sets that all agree is a whole number.
Json Count(double mean) {
  return mean == std::floor(mean) ? Json(static_cast<int64_t>(mean)) : Json(mean);
}

Json JsonOf(const Axes& axes) {
  Json json = Json::object();
  for (const auto& [name, value] : axes) json[name] = value;
  return json;
}

// What a row's reader tells shapes by; the fields that a document's contract begins with.
Json ShapeFields(const Suite& suite, const ShapeRecord& record) {
  Json row = Json::object();
  if (suite.roofline == Roofline::kGather) {
    for (const char* name : {"topk", "num_tokens", "num_qo_heads"})
      row[name] = record.axes.at(name);
    return row;
  }
  row["shape"] = record.shape.model;
  row["num_tokens"] = record.axes.at(std::string(FindMoe(suite.op)->tokens));
  return row;
}

}  // namespace

Json RowsOf(const Suite& suite, const ShapeRecord& record) {
  Json rows = Json::array();
  const ShapeResult& result = record.result;
  for (size_t i = 0; i < result.entrants.size(); ++i) {
    const Timed& timed = result.entrants[i];
    if (timed.us.empty()) continue;
    const Variant& variant = *timed.candidate.variant;
    const Timed& floor = result.rooflines[static_cast<size_t>(record.roofline[i])];
    const bool approximate = variant.semantics == Semantics::kApproximate;
    Json row = ShapeFields(suite, record);
    if (!record.active.empty()) row["active_experts"] = Count(record.active[i]);
    row["variant"] = variant.name;
    row["semantics"] = approximate ? "approximate" : "exact";
    row["us"] = Rounded(timed.median_us());
    row[std::string(RooflineField(suite.roofline))] = Rounded(floor.median_us());
    for (const QualityMeasure& measure : timed.quality)
      row["quality"][measure.name] = measure.value;
    row["selected"] = static_cast<int>(i) == record.selected;
    row["spread"] = RoundedShare(RelativeSpread(timed.us));
    row["roofline_spread"] = RoundedShare(RelativeSpread(floor.us));
    if (static_cast<int>(i) == result.twice && !result.again.us.empty()) {
      row["again_us"] = Rounded(result.again.median_us());
      row["aa"] = RoundedShare(result.again.median_us() / timed.median_us() - 1);
    }
    row["config"] = ConfigText(timed.candidate.config);
    row["config_from"] = record.entrants[i].config_from;
    if (result.raced > 0) row["configs_raced"] = result.raced;
    row["roofline_config"] = ConfigText(floor.candidate.config);
    row["rounds"] = timed.us.size();
    row["clock_mhz"] = result.session.clock_mhz;
    row["cold"] = result.session.cold;
    if (!record.shape.scaled.empty()) row["scaled"] = record.shape.scaled;
    if (!result.cut_short.empty()) row["cut_short"] = result.cut_short;
    if (!result.trouble.empty()) row["trouble"] = result.trouble;
    row["seeds"] = record.seeds;
    row["axes"] = JsonOf(record.axes);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json LeftOutOf(const ShapeRecord& record) {
  Json all = Json::array();
  for (const LeftOut& each : record.result.left_out) {
    all.push_back({{"axes", JsonOf(record.axes)},
                   {"variant", each.variant},
                   {"config", each.config},
                   {"reason", each.reason}});
  }
  return all;
}

Json EnvironmentOf(const DeviceInfo& device, const std::string& compiler,
                   const SessionInfo& session, const std::string& date) {
  return {{"device", device.name},          {"device_model", device.model},
          {"target", device.target},        {"driver", device.driver},
          {"compiler", compiler},           {"date", date},
          {"mode", ModeText(session.mode)}, {"input_sets", session.input_sets},
          {"l2_bytes", device.l2_bytes},    {"multiprocessors", device.sms}};
}

absl::StatusOr<Json> Merged(const Json& stored, Json fresh) {
  const auto same = [&](const Json& a, const Json& b, const char* field) {
    return a.value(field, Json()) == b.value(field, Json());
  };
  bool place = same(stored, fresh, "op");
  for (const char* field : {"device", "driver", "compiler", "mode"}) {
    place = place && same(stored.value("environment", Json::object()), fresh["environment"], field);
  }
  if (!place) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the stored rows are of another operation, device, driver, compiler or mode",
                 "write to another directory, or leave --append out");
  }
  for (const char* list : {"rows", "left_out"}) {
    Json kept = Json::array();
    for (const Json& row : stored.value(list, Json::array())) {
      const bool again =
          std::any_of(fresh["rows"].begin(), fresh["rows"].end(),
                      [&](const Json& r) { return r["axes"] == row.value("axes", Json()); });
      if (!again) kept.push_back(row);
    }
    for (Json& row : fresh[list]) kept.push_back(std::move(row));
    fresh[list] = std::move(kept);
  }
  return fresh;
}

}  // namespace kvr::bench
