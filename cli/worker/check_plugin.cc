// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/check_plugin.h"

#include <memory>
#include <vector>

#include "core/config.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/profiles.h"
#include "plugins/library.h"
#include "plugins/roots.h"
#include "plugins/scan.h"

namespace kvr {
namespace {

// Those that profiles describe, and the host device: opening real ones takes long.
std::vector<DeviceInfo> Devices() {
  std::vector<DeviceInfo> devices;
  DeviceInfo& host = devices.emplace_back();
  host.kind = "profile";
  host.name = "KVR host";
  host.target = "host";
  host.sms = 8;
  host.max_threads_per_block = 1024;
  host.smem_per_block = 227 * 1024;
  if (const absl::StatusOr<std::vector<std::string>> names = ListProfiles(); names.ok()) {
    for (const std::string& name : *names) {
      if (const absl::StatusOr<DeviceInfo> profile = LoadProfile(name); profile.ok()) {
        devices.push_back(*profile);
      }
    }
  }
  return devices;
}

}  // namespace

absl::Status CheckPlugin(const std::string& path,
                         const std::function<void(std::string doing)>& doing) {
  KVR_RETURN_IF_ERROR(CheckPluginLoads(path));
  const std::vector<std::string> roots = PluginRoots({&path, 1});
  const Scan scan = ScanPlugins(roots, {});
  const std::vector<DeviceInfo> devices = Devices();
  for (const VariantPtr& variant : scan.variants) {
    const PlanFunction* function = variant->plan.function.get();
    if (function == nullptr || !variant->directory.starts_with(path)) continue;
    for (const std::unique_ptr<Operation>& operation : scan.operations) {
      if (operation->spec().name != variant->op) continue;
      const absl::StatusOr<AxisVector> axes = ResolveAxes(operation->spec(), {});
      if (!axes.ok()) continue;
      const std::vector<int64_t> tunables =
          variant->TunableValues(DefaultConfig(variant->tunables));
      std::vector<int64_t> values(variant->plan.function_values.size());
      for (const DeviceInfo& device : devices) {
        if (!variant->Supports(device.target)) continue;
        doing(StrCat("calling the plan function of ", variant->op, "/", variant->name));
        function
            ->Values(absl::MakeSpan(axes->data(), operation->spec().axes.size()), tunables, device,
                     absl::MakeSpan(values))
            .IgnoreError();
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace kvr
