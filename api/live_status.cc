// SPDX-License-Identifier: Apache-2.0
#include "api/live_status.h"

#include <unistd.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/swapper.h"

namespace kvr {
namespace {

LiveJson NumbersJson(const std::map<std::string, int64_t>& numbers) {
  LiveJson json = LiveJson::object();
  for (const auto& [name, value] : numbers) json[name] = value;
  return json;
}

LiveJson DeviceJson(const DeviceInfo& device) {
  return {{"kind", device.kind},     {"name", device.name}, {"model", device.model},
          {"target", device.target}, {"uuid", device.uuid}, {"driver", device.driver}};
}

LiveJson GenerationJson(const Generation& generation) {
  return {{"number", generation.number()}, {"digest", generation.digest().Hex()}};
}

// What is not at its default; all of it, of a variant that the catalog does not have.
Config Chosen(const Catalog& catalog, const ServedInfo& info) {
  Config chosen = info.config;
  const absl::StatusOr<VariantPtr> variant = catalog.Find(info.op, info.variant);
  if (!variant.ok()) return chosen;
  for (const auto& [name, value] : DefaultConfig((*variant)->tunables)) {
    const auto found = chosen.find(name);
    if (found != chosen.end() && found->second == value) chosen.erase(found);
  }
  return chosen;
}

LiveJson ServedJson(const Catalog& catalog, const std::vector<ServedInfo>& served) {
  LiveJson list = LiveJson::array();
  for (const ServedInfo& info : served) {
    list.push_back({{"op", info.op},
                    {"key", NumbersJson(info.key)},
                    {"variant", info.variant},
                    {"version", info.version},
                    {"fingerprint", info.fingerprint.Hex()},
                    {"config", NumbersJson(info.config)},
                    {"chosen", NumbersJson(Chosen(catalog, info))},
                    {"binary", info.binary.Hex()},
                    {"missed", info.missed},
                    {"overridden", info.overridden},
                    {"why", info.why}});
  }
  return list;
}

// What the environment, --set and opt-ins force, whether a key shows it or not.
LiveJson OverridesJson(const Catalog& catalog, const DispatcherOptions& options) {
  LiveJson list = LiveJson::array();
  for (const auto& op : catalog.ops()) {
    const Overrides::ForOp* forced = options.overrides.Find(op->name());
    if (forced == nullptr) continue;
    if (!forced->variant.empty()) {
      list.push_back({{"op", op->name()},
                      {"what", "variant"},
                      {"value", forced->variant},
                      {"source", forced->variant_source}});
    }
    for (const auto& [tunable, value] : forced->tunables) {
      list.push_back({{"op", op->name()},
                      {"what", tunable},
                      {"value", StrCat(value.value)},
                      {"source", value.source}});
    }
  }
  return list;
}

LiveJson PluginsJson(const Catalog& catalog) {
  // A plugin may bring several variants, and several plugins may have one name.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> variants;
  for (const auto& op : catalog.ops()) {
    for (const VariantPtr& variant : op->variants) {
      variants[{variant->plugin, variant->directory}].push_back(
          StrCat(op->name(), "/", variant->name));
    }
  }
  LiveJson loaded = LiveJson::array(), rejected = LiveJson::array();
  for (const auto& [plugin, names] : variants) {
    loaded.push_back({{"name", plugin.first}, {"path", plugin.second}, {"variants", names}});
  }
  for (const Rejection& rejection : catalog.rejections()) {
    rejected.push_back({{"path", rejection.path},
                        {"what", std::string(What(rejection.status))},
                        {"fix", std::string(Fix(rejection.status))}});
  }
  return {{"loaded", std::move(loaded)}, {"rejected", std::move(rejected)}};
}

LiveJson CountersJson(const Counters& c) {
  return {{"misses", c.misses},
          {"not_loaded", c.not_loaded},
          {"not_selected", c.not_selected},
          {"not_fitting", c.not_fitting},
          {"baseline", c.baseline},
          {"refused", c.refused},
          {"loaded_in_launch", c.loaded_in_launch},
          {"captured", c.captured},
          {"unscoped", c.unscoped},
          {"generations", c.generations},
          {"unchanged", c.unchanged},
          {"failed", c.failed},
          {"rollbacks", c.rollbacks},
          {"applied", c.applied},
          {"recaptures", c.recaptures},
          {"retired", c.retired}};
}

LiveJson StepsJson(const StepCounts& steps) {
  LiveJson buckets = LiveJson::array();
  for (const StepCounts::Bucket& bucket : steps.Read()) {
    buckets.push_back({{"bucket", bucket.name},
                       {"steps", bucket.steps},
                       {"p50_us", bucket.p50_us},
                       {"p99_us", bucket.p99_us}});
  }
  return {{"steps", steps.steps()}, {"errors", steps.errors()}, {"buckets", std::move(buckets)}};
}

}  // namespace

LiveJson LiveStatusJson(const Runtime& runtime, const Swapper* swapper, const StepCounts& steps,
                        const LiveProgram& program, bool selections) {
  const GenerationPtr generation = runtime.generation();
  const Catalog& catalog = runtime.catalog();
  LiveJson json = {{"kind", "kvr-status"},
                   {"protocol", kLiveProtocol},
                   {"version", KVR_VERSION},
                   {"program", program.name},
                   {"pid", getpid()},
                   {"uid", geteuid()},
                   {"uptime_s", program.uptime_s},
                   {"device", DeviceJson(runtime.device().info())},
                   {"generation", GenerationJson(*generation)},
                   {"frozen", runtime.dispatcher().frozen()},
                   {"served", ServedJson(catalog, runtime.served())},
                   {"overrides", OverridesJson(catalog, runtime.dispatcher().options())},
                   {"plugins", PluginsJson(catalog)},
                   {"counters", CountersJson(runtime.counters())},
                   {"steps", StepsJson(steps)}};
  LiveJson& misses = json["misses"] = LiveJson::array();
  for (const Miss& miss : runtime.misses()) {
    misses.push_back({{"op", miss.op},
                      {"key", NumbersJson(miss.key)},
                      {"reason", std::string(MissReasonName(miss.reason))},
                      {"count", miss.count}});
  }
  LiveJson& dropped = json["dropped"] = LiveJson::array();
  for (const DroppedSelection& selection : runtime.dropped()) {
    dropped.push_back({{"op", selection.op},
                       {"variant", selection.variant},
                       {"key", NumbersJson(selection.key)},
                       {"reason", selection.reason}});
  }
  LiveJson& history = json["history"] = LiveJson::array();
  for (const GenerationPtr& older : runtime.history()) history.push_back(GenerationJson(*older));
  LiveJson& publications = json["publications"] = LiveJson::array();
  for (const PublicationRecord& record : runtime.publications()) {
    publications.push_back(PublicationJson(record));
  }
  json["swapper"] = swapper != nullptr;
  LiveJson& swaps = json["swaps"] = LiveJson::array();
  if (swapper != nullptr) {
    for (const SwapResult& result : swapper->recent()) swaps.push_back(SwapJson(result));
  }
  json["live_ab"] = program.live_ab.empty() ? LiveJson(nullptr) : LiveJson(program.live_ab);
  if (selections) {
    json["selections"] = LiveJson::parse(SelectionJson(*generation), nullptr, false);
  }
  return json;
}

}  // namespace kvr
