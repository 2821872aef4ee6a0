// SPDX-License-Identifier: Apache-2.0
#include "bench/start/set.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "jit/includes.h"
#include "jit/nvrtc/nvrtc.h"
#include "jit/template.h"
#include "registry/opt_in.h"
#include "registry/prepared.h"
#include "registry/selection_file.h"

namespace kvr::bench {
namespace {

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.good()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, StrCat("cannot write ", path),
               "make room, or name another directory");
}

// The axis that tells the variants of an operation apart: the first that varies.
int KeyAxis(const OpSpec& op) {
  for (size_t i = 0; i < op.axes.size(); ++i)
    if (!op.axes[i].is_const) return static_cast<int>(i);
  return -1;
}

// The op's defaults with the key axis as given, or with one other axis at a multiple of its
// default: the first at which the variant has a plan.
absl::StatusOr<AxisVector> FittingShape(const OpSpec& op, const Prepared& prepared,
                                        const Axes& key) {
  KVR_ASSIGN_OR_RETURN(const AxisVector defaults, ResolveAxes(op, key));
  LaunchPlan plan;
  const absl::Status status = prepared.Plan(defaults, &plan);
  if (status.ok()) return defaults;
  for (const AxisSpec& axis : op.axes) {
    if (axis.is_const || key.count(axis.name) > 0) continue;
    for (const int times : {2, 4, 8}) {
      Axes other = key;
      other[axis.name] = axis.default_value * times;
      const absl::StatusOr<AxisVector> axes = ResolveAxes(op, other);
      if (axes.ok() && prepared.Plan(*axes, &plan).ok()) return *axes;
    }
  }
  return WithContext(StrCat(op.name, "/", prepared.variant().name), status);
}

// What Jit hands to NVRTC, headers included.
absl::Status WriteUnit(const OpSpec& op, const Variant& variant, const Config& config,
                       std::string_view target, const std::string& sdk, const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Compiler> compiler,
                       MakeNvrtcCompiler({.sdk_dir = sdk}));
  KVR_ASSIGN_OR_RETURN(Unit unit, RenderUnit(op, variant, config));
  HeaderIndex(compiler->header_roots()).Resolve(&unit);
  Json headers = Json::array();
  for (const UnitHeader& header : unit.headers) {
    headers.push_back({{"name", header.name}, {"content", *header.content}});
  }
  const Json json = {{"options", compiler->Options(target)},
                     {"text", unit.text},
                     {"entries", unit.entries},
                     {"headers", headers}};
  return Write(path, json.dump());
}

}  // namespace

std::vector<int> StartSet::Distinct() const {
  std::vector<int> distinct;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](int j) { return variants[j].key == variants[i].key; })) {
      distinct.push_back(static_cast<int>(i));
    }
  }
  return distinct;
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (file.is_open()) return std::string(std::istreambuf_iterator<char>(file), {});
  return Error(absl::StatusCode::kNotFound, StrCat("cannot read ", path), "run the bench anew");
}

absl::Status MakeStartSet(const std::string& directory, const std::string& device_name,
                          std::string target) {
  StartSet set{.directory = directory, .device = device_name, .target = std::move(target)};
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Platform> platform,
                       Platform::Open({.cache_dir = set.CachePath()}));
  std::unique_ptr<Device> device;
  DeviceInfo info{.model = "none"};
  if (!set.device.empty()) {
    KVR_ASSIGN_OR_RETURN(device, platform->OpenDevice(set.device));
    info = device->info();
    set.ordinal = info.ordinal;
    set.target = info.target;
  }
  GenerationBuilder generation(info.model, set.target);
  Json variants = Json::array();
  for (const auto& op : platform->catalog().ops()) {
    const OpSpec& spec = op->spec();
    const AxisSpec& key_axis = spec.axes[KeyAxis(spec)];
    KVR_ASSIGN_OR_RETURN(const KeyPolicy policy, KeyPolicy::Parse(key_axis.name + ":exact", spec));
    generation.SetPolicy(spec.name, policy);
    for (const VariantPtr& variant : op->variants) {
      if (!variant->is_compiled() || !variant->Supports(set.target)) continue;
      const auto i = static_cast<int>(variants.size());
      const Config config = DefaultConfig(variant->tunables);
      KVR_ASSIGN_OR_RETURN(const Built built,
                           platform->jit().Build(spec, *variant, config, set.target));
      const Binary& binary = *built.binary;
      Axes axes;
      if (device != nullptr) {
        KVR_ASSIGN_OR_RETURN(const PreparedPtr prepared,
                             Prepare(*device, spec, variant, config, built.binary));
        const Axes key = {{key_axis.name, key_axis.default_value + i}};
        KVR_ASSIGN_OR_RETURN(const AxisVector shape, FittingShape(spec, *prepared, key));
        axes = NamedAxes(spec, shape);
        for (const AxisSpec& axis : spec.axes)
          if (axis.is_const) axes.erase(axis.name);
        KVR_RETURN_IF_ERROR(generation.Select(
            spec.name, policy.Bucket(shape),
            {.variant = variant, .config = config, .binary = binary.key, .evidence = {}}));
      }
      std::vector<std::string> symbols;
      for (const BinaryKernel& kernel : binary.kernels) symbols.push_back(kernel.symbol);
      variants.push_back({{"op", spec.name},
                          {"variant", variant->name},
                          {"config", config},
                          {"axes", axes},
                          {"key", binary.key.Hex()},
                          {"approximate", variant->semantics == Semantics::kApproximate},
                          {"quality", OptInFor(*variant, config).quality},
                          {"bytes", binary.bytes.size()},
                          {"symbols", symbols}});
      KVR_RETURN_IF_ERROR(Write(set.CubinPath(i), binary.bytes));
      if (set.target.starts_with("sm_")) {
        KVR_RETURN_IF_ERROR(
            WriteUnit(spec, *variant, config, set.target, platform->sdk_dir(), set.UnitPath(i)));
      }
    }
  }
  if (device != nullptr) {
    KVR_RETURN_IF_ERROR(WriteSelectionFile(*generation.Build(1), set.SelectionPath()));
  }
  const Json json = {{"device", set.device},  {"ordinal", set.ordinal},
                     {"target", set.target},  {"name", info.name},
                     {"driver", info.driver}, {"compiler", platform->jit().Identity(set.target)},
                     {"variants", variants}};
  return Write(directory + "/set.json", json.dump(1) + "\n");
}

absl::StatusOr<StartSet> ReadStartSet(const std::string& directory) {
  KVR_ASSIGN_OR_RETURN(const std::string text, ReadWhole(directory + "/set.json"));
  const Json json = Json::parse(text);
  StartSet set{.directory = directory,
               .device = json["device"],
               .target = json["target"],
               .ordinal = json["ordinal"]};
  for (const Json& each : json["variants"]) {
    KVR_ASSIGN_OR_RETURN(const Fingerprint key,
                         Fingerprint::FromHex(each["key"].get<std::string>()));
    set.variants.push_back({.op = each["op"],
                            .variant = each["variant"],
                            .config = each["config"].get<Config>(),
                            .axes = each["axes"].get<Axes>(),
                            .key = key,
                            .approximate = each["approximate"],
                            .quality = each["quality"].get<Config>(),
                            .bytes = each["bytes"],
                            .symbols = each["symbols"].get<std::vector<std::string>>()});
  }
  return set;
}

}  // namespace kvr::bench
