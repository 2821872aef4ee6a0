// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/protocol.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kJobs[] = {"verify", "open", "sample", "check"};
constexpr std::string_view kStages[] = {"prepare", "launch"};
constexpr std::string_view kLaunchModes[] = {"graph", "eager"};
constexpr std::string_view kCacheModes[] = {"cold", "hot"};

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON has no NaN: it travels as null.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double Number(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

template <typename T, size_t N>
T Enum(const std::string& name, const std::string_view (&names)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<T>(i);
  }
  throw std::invalid_argument("unknown name " + name);
}

Json ItemJson(const WorkItem& item) {
  return {{"variant", item.variant},
          {"fingerprint", item.fingerprint.Hex()},
          {"config", item.config},
          {"binary", item.binary_path}};
}

WorkItem ItemOf(const Json& json) {
  WorkItem item;
  json.at("variant").get_to(item.variant);
  json.at("config").get_to(item.config);
  json.at("binary").get_to(item.binary_path);
  auto fingerprint = Fingerprint::FromHex(json.at("fingerprint").get<std::string>());
  if (!fingerprint.ok()) throw std::invalid_argument(std::string(fingerprint.status().message()));
  item.fingerprint = *fingerprint;
  return item;
}

Json DeviceJson(const DeviceInfo& d) {
  return {{"kind", d.kind},
          {"name", d.name},
          {"model", d.model},
          {"target", d.target},
          {"uuid", d.uuid},
          {"driver", d.driver},
          {"sms", d.sms},
          {"max_threads_per_block", d.max_threads_per_block},
          {"max_threads_per_sm", d.max_threads_per_sm},
          {"max_blocks_per_sm", d.max_blocks_per_sm},
          {"max_cluster_size", d.max_cluster_size},
          {"regs_per_sm", d.regs_per_sm},
          {"regs_per_block", d.regs_per_block},
          {"smem_per_sm", d.smem_per_sm},
          {"smem_per_block", d.smem_per_block},
          {"smem_reserved_per_block", d.smem_reserved_per_block},
          {"l2_bytes", d.l2_bytes},
          {"memory_bandwidth", d.memory_bandwidth}};
}

DeviceInfo DeviceOf(const Json& json) {
  DeviceInfo d;
  json.at("kind").get_to(d.kind);
  json.at("name").get_to(d.name);
  json.at("model").get_to(d.model);
  json.at("target").get_to(d.target);
  json.at("uuid").get_to(d.uuid);
  json.at("driver").get_to(d.driver);
  json.at("sms").get_to(d.sms);
  json.at("max_threads_per_block").get_to(d.max_threads_per_block);
  json.at("max_threads_per_sm").get_to(d.max_threads_per_sm);
  json.at("max_blocks_per_sm").get_to(d.max_blocks_per_sm);
  json.at("max_cluster_size").get_to(d.max_cluster_size);
  json.at("regs_per_sm").get_to(d.regs_per_sm);
  json.at("regs_per_block").get_to(d.regs_per_block);
  json.at("smem_per_sm").get_to(d.smem_per_sm);
  json.at("smem_per_block").get_to(d.smem_per_block);
  json.at("smem_reserved_per_block").get_to(d.smem_reserved_per_block);
  json.at("l2_bytes").get_to(d.l2_bytes);
  json.at("memory_bandwidth").get_to(d.memory_bandwidth);
  return d;
}

Json ErrorJson(const absl::Status& status) {
  return {{"code", static_cast<int>(status.code())},
          {"what", std::string(What(status))},
          {"fix", std::string(Fix(status))}};
}

absl::Status ErrorOf(const Json& json) {
  return Error(static_cast<absl::StatusCode>(json.at("code").get<int>()),
               json.at("what").get<std::string>(), json.at("fix").get<std::string>());
}

Json QualityJson(const std::vector<QualityMeasure>& quality) {
  Json json = Json::array();
  for (const QualityMeasure& measure : quality) {
    json.push_back({{"name", measure.name}, {"value", Number(measure.value)}});
  }
  return json;
}

Json FindingJson(const Finding& v) {
  return {{"subject", v.subject},         {"status", std::string(TrialStatusName(v.status))},
          {"reason", v.reason},           {"max_abs", Number(v.max_abs)},
          {"max_rel", Number(v.max_rel)}, {"quality", QualityJson(v.quality)}};
}

Finding FindingOf(const Json& json) {
  Finding v;
  json.at("subject").get_to(v.subject);
  auto status = ParseTrialStatus(json.at("status").get<std::string>());
  if (!status.ok()) throw std::invalid_argument(std::string(status.status().message()));
  v.status = *status;
  json.at("reason").get_to(v.reason);
  v.max_abs = Number(json.at("max_abs"));
  v.max_rel = Number(json.at("max_rel"));
  for (const Json& measure : json.at("quality")) {
    v.quality.push_back({measure.at("name").get<std::string>(), Number(measure.at("value"))});
  }
  return v;
}

MeasureMode ModeOf(const Json& json) {
  auto mode = ParseMode(json.get<std::string>());
  if (!mode.ok()) throw std::invalid_argument(std::string(mode.status().message()));
  return *mode;
}

Json SessionJson(const SessionInfo& s) {
  return {{"mode", ModeText(s.mode)},
          {"input_sets", s.input_sets},
          {"buffer_sets", s.buffer_sets},
          {"cold", s.cold},
          {"launches", {s.launches_least, s.launches_most}},
          {"least_epoch_us", Number(s.least_epoch_us)},
          {"plan_us", Number(s.plan_us)},
          {"sentinel_us", s.sentinel_us},
          {"lead_us", s.lead_us},
          {"clock_mhz", s.clock_mhz},
          {"throttle_bits", s.throttle_bits}};
}

SessionInfo SessionOf(const Json& json) {
  SessionInfo s;
  s.mode = ModeOf(json.at("mode"));
  json.at("input_sets").get_to(s.input_sets);
  json.at("buffer_sets").get_to(s.buffer_sets);
  json.at("cold").get_to(s.cold);
  json.at("launches").at(0).get_to(s.launches_least);
  json.at("launches").at(1).get_to(s.launches_most);
  s.least_epoch_us = Number(json.at("least_epoch_us"));
  s.plan_us = Number(json.at("plan_us"));
  json.at("sentinel_us").get_to(s.sentinel_us);
  json.at("lead_us").get_to(s.lead_us);
  json.at("clock_mhz").get_to(s.clock_mhz);
  json.at("throttle_bits").get_to(s.throttle_bits);
  return s;
}

// Runs `parse` on the line's object; the JSON library's exceptions end here.
template <typename T, typename Parse>
absl::StatusOr<T> Decode(std::string_view line, Parse parse) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("not a JSON object: ", Quoted(line)), "send one object a line");
  }
  try {
    T result;
    parse(json, &result);
    return result;
  } catch (const std::exception& error) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("bad message ", Quoted(line), ": ", error.what()),
                 "use kvr and kvr-worker of one build");
  }
}

}  // namespace

std::string ModeText(MeasureMode mode) {
  return StrCat(kLaunchModes[static_cast<size_t>(mode.launch)], " ",
                kCacheModes[static_cast<size_t>(mode.cache)]);
}

absl::StatusOr<MeasureMode> ParseMode(std::string_view text) {
  MeasureMode mode;
  bool launch = false, cache = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    bool known = false;
    for (size_t i = 0; i < 2; ++i) {
      if (word == kLaunchModes[i] && !std::exchange(launch, true)) {
        mode.launch = static_cast<LaunchMode>(i);
        known = true;
      } else if (word == kCacheModes[i] && !std::exchange(cache, true)) {
        mode.cache = static_cast<CacheMode>(i);
        known = true;
      }
    }
    if (!known) {
      launch = cache = false;
      break;
    }
  }
  if (launch || cache) return mode;
  return Error(absl::StatusCode::kInvalidArgument, StrCat("no measuring mode: ", Quoted(text)),
               "give graph or eager, cold or hot: \"graph cold\"");
}

SessionInfo Merge(const SessionInfo& a, const SessionInfo& b) {
  if (a.buffer_sets == 0) return b;
  if (b.buffer_sets == 0) return a;
  const auto least = [](auto x, auto y) { return x == 0 ? y : y == 0 ? x : std::min(x, y); };
  SessionInfo merged;
  merged.mode = a.mode;
  merged.input_sets = std::min(a.input_sets, b.input_sets);
  merged.buffer_sets = std::min(a.buffer_sets, b.buffer_sets);
  merged.cold = a.cold && b.cold;
  merged.launches_least = least(a.launches_least, b.launches_least);
  merged.launches_most = std::max(a.launches_most, b.launches_most);
  merged.least_epoch_us = least(a.least_epoch_us, b.least_epoch_us);
  merged.plan_us = std::max(a.plan_us, b.plan_us);
  merged.sentinel_us = a.sentinel_us;
  merged.sentinel_us.insert(merged.sentinel_us.end(), b.sentinel_us.begin(), b.sentinel_us.end());
  merged.lead_us = a.lead_us;
  merged.lead_us.insert(merged.lead_us.end(), b.lead_us.begin(), b.lead_us.end());
  merged.clock_mhz = least(a.clock_mhz, b.clock_mhz);
  merged.throttle_bits = a.throttle_bits | b.throttle_bits;
  return merged;
}

std::string EncodeRequest(const Request& r) {
  Json items = Json::array();
  for (const WorkItem& item : r.items) items.push_back(ItemJson(item));
  return Text({{"id", r.id},
               {"job", std::string(kJobs[static_cast<size_t>(r.job)])},
               {"op", r.op},
               {"axes", r.axes},
               {"seeds", r.seeds},
               {"items", std::move(items)},
               {"subjects", r.subjects},
               {"rounds", r.rounds},
               {"mode", ModeText(r.session.mode)},
               {"epoch_us", r.session.epoch_us},
               {"sentinel", r.session.sentinel_path}});
}

absl::StatusOr<Request> DecodeRequest(std::string_view line) {
  return Decode<Request>(line, [](const Json& json, Request* r) {
    json.at("id").get_to(r->id);
    r->job = Enum<Job>(json.at("job").get<std::string>(), kJobs);
    json.at("op").get_to(r->op);
    json.at("axes").get_to(r->axes);
    json.at("seeds").get_to(r->seeds);
    for (const Json& item : json.at("items")) r->items.push_back(ItemOf(item));
    json.at("subjects").get_to(r->subjects);
    json.at("rounds").get_to(r->rounds);
    r->session.mode = ModeOf(json.at("mode"));
    json.at("epoch_us").get_to(r->session.epoch_us);
    json.at("sentinel").get_to(r->session.sentinel_path);
  });
}

std::string EncodeMessage(const Message& m) {
  Json json = {{"id", m.id}};
  switch (m.kind) {
    case Message::Kind::kHello:
      json["hello"] = m.protocol;
      if (m.error.ok()) json["device"] = DeviceJson(m.device);
      break;
    case Message::Kind::kStage:
      json["stage"] = std::string(kStages[static_cast<size_t>(m.stage)]);
      json["subject"] = m.subject;
      json["doing"] = m.doing;
      break;
    case Message::Kind::kReply: {
      json["unusable"] = m.unusable;
      json["fault_subject"] = m.fault_subject;
      json["findings"] = Json::array();
      for (const Finding& v : m.findings) json["findings"].push_back(FindingJson(v));
      json["samples"] = Json::array();
      for (const std::vector<double>& round : m.samples) {
        Json row = Json::array();
        for (double sample : round) row.push_back(Number(sample));
        json["samples"].push_back(std::move(row));
      }
      json["session"] = SessionJson(m.session);
      break;
    }
  }
  if (!m.error.ok()) json["error"] = ErrorJson(m.error);
  return Text(json);
}

absl::StatusOr<Message> DecodeMessage(std::string_view line) {
  return Decode<Message>(line, [](const Json& json, Message* m) {
    json.at("id").get_to(m->id);
    if (json.contains("error")) m->error = ErrorOf(json["error"]);
    if (json.contains("hello")) {
      m->kind = Message::Kind::kHello;
      json["hello"].get_to(m->protocol);
      if (m->error.ok()) m->device = DeviceOf(json.at("device"));
    } else if (json.contains("stage")) {
      m->kind = Message::Kind::kStage;
      m->stage = Enum<Stage>(json["stage"].get<std::string>(), kStages);
      json.at("subject").get_to(m->subject);
      json.at("doing").get_to(m->doing);
    } else {
      m->kind = Message::Kind::kReply;
      json.at("unusable").get_to(m->unusable);
      json.at("fault_subject").get_to(m->fault_subject);
      for (const Json& v : json.at("findings")) m->findings.push_back(FindingOf(v));
      for (const Json& row : json.at("samples")) {
        std::vector<double>& round = m->samples.emplace_back();
        for (const Json& sample : row) round.push_back(Number(sample));
      }
      m->session = SessionOf(json.at("session"));
    }
  });
}

}  // namespace kvr
