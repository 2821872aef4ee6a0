// SPDX-License-Identifier: Apache-2.0
//
// kvr.h: what is told in JSON.
#include "api/kvr_c.h"
#include "api/platform.h"
#include "core/config.h"
#include "nlohmann/json.hpp"

namespace kvr::c {
namespace {

Json TensorsJson(const OpSpec& op, const std::vector<TensorSpec>& tensors) {
  Json list = Json::array();
  for (const TensorSpec& tensor : tensors) {
    Json shape = Json::array();
    for (const int axis : tensor.axes) shape.push_back(op.axes[static_cast<size_t>(axis)].name);
    list.push_back({{"name", tensor.name},
                    {"dtype", tensor.any_dtype ? "any" : DTypeName(tensor.dtype)},
                    {"shape", tensor.is_scalar ? Json(nullptr) : shape},
                    {"optional", tensor.optional}});
  }
  return list;
}

Json OpJson(const Catalog::Op& op) {
  Json axes = Json::object(), variants = Json::array();
  for (const AxisSpec& axis : op.spec().axes) {
    axes[axis.name] = {
        {axis.is_const ? "value" : "default", axis.is_const ? axis.value : axis.default_value}};
  }
  for (const VariantPtr& variant : op.variants) {
    variants.push_back(
        {{"name", variant->name},
         {"version", variant->version},
         {"semantics", variant->semantics == Semantics::kExact ? "exact" : "approximate"},
         {"baseline", variant->is_baseline},
         {"plugin", variant->plugin},
         {"targets", variant->targets},
         {"fingerprint", variant->fingerprint.Hex()}});
  }
  return {{"name", op.name()},
          {"axes", axes},
          {"inputs", TensorsJson(op.spec(), op.spec().inputs)},
          {"outputs", TensorsJson(op.spec(), op.spec().outputs)},
          {"variants", variants}};
}

}  // namespace

Json ErrorJson(const absl::Status& status) {
  return {{"code", kvr_code_name(static_cast<kvr_code>(status.code()))},
          {"what", What(status)},
          {"fix", Fix(status)}};
}

absl::Status FirstFailure(const LoadReport& report) {
  for (const LoadItem& item : report.items) {
    if (!item.status.ok()) return WithContext(StrCat("{", AxesText(item.axes), "}"), item.status);
  }
  return absl::OkStatus();
}

Json ReportJson(const LoadReport& report) {
  Json items = Json::array();
  for (const LoadItem& item : report.items) {
    Json entry = {{"axes", item.axes}, {"key", item.key}, {"ready", item.status.ok()}};
    if (!item.status.ok()) entry["error"] = ErrorJson(item.status);
    entry.update(Json{{"variant", item.variant},
                      {"config", item.config},
                      {"why", item.why},
                      {"overridden", item.overridden},
                      {"binary", item.binary.Hex()},
                      {"cache_hit", item.cache_hit},
                      {"compile_ms", item.compile_ms},
                      {"workspace_bytes", item.workspace_bytes}});
    items.push_back(std::move(entry));
  }
  return {{"ready", report.ready()},
          {"text", report.Text()},
          {"fallback", report.fallback.ok() ? Json(nullptr) : ErrorJson(report.fallback)},
          {"workspace_bytes", report.workspace_bytes},
          {"items", items}};
}

Json DroppedJson(const std::vector<DroppedSelection>& dropped) {
  Json list = Json::array();
  for (const DroppedSelection& selection : dropped) {
    list.push_back({{"op", selection.op},
                    {"variant", selection.variant},
                    {"key", selection.key},
                    {"reason", selection.reason}});
  }
  return list;
}

Json ScanJson(const Runtime& runtime) {
  const DeviceInfo& device = runtime.device().info();
  Json ops = Json::array(), refused = Json::array(), components = Json::array();
  for (const auto& op : runtime.catalog().ops()) ops.push_back(OpJson(*op));
  for (const Rejection& rejection : runtime.catalog().rejections()) {
    Json entry = ErrorJson(rejection.status);
    entry["path"] = rejection.path;
    refused.push_back(std::move(entry));
  }
  for (const Component& component : runtime.platform().components()) {
    components.push_back({{"name", component.name},
                          {"state", StateName(component.state)},
                          {"found", component.found},
                          {"explanation", component.explanation}});
  }
  return {{"version", KVR_VERSION},
          {"device",
           {{"kind", device.kind},
            {"name", device.name},
            {"model", device.model},
            {"target", device.target},
            {"uuid", device.uuid},
            {"driver", device.driver},
            {"ordinal", device.ordinal}}},
          {"ops", ops},
          {"refused", refused},
          {"dropped", DroppedJson(runtime.dropped())},
          {"components", components}};
}

}  // namespace kvr::c
