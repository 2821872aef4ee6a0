// SPDX-License-Identifier: Apache-2.0
#include "api/tune.h"

#include "devices/profiles.h"

namespace kvr {
namespace {

Workbench MakeBench(Platform& platform, const TuneSettings& settings) {
  Workbench bench{platform.catalog(), platform.jit(), {}};
  bench.worker.device = settings.device;
  bench.worker.plugin_roots = settings.plugin_roots;
  bench.worker.memory_bytes = settings.memory_bytes;
  bench.worker.launch_timeout_s = settings.timeout_s;
  bench.progress = settings.progress;
  bench.cancel = settings.cancel;
  return bench;
}

}  // namespace

absl::StatusOr<VerifyReport> Verify(Platform& platform, const TuneSettings& settings,
                                    const VerifyRequest& request) {
  return VerifyVariants(MakeBench(platform, settings), request);
}

absl::StatusOr<TuneReport> Tune(Platform& platform, const TuneSettings& settings,
                                const TuneRequest& request) {
  return TuneOp(MakeBench(platform, settings), request);
}

absl::StatusOr<CompileReport> Compile(Platform& platform, const TuneSettings& settings,
                                      const std::vector<std::string>& targets,
                                      CompileRequest request) {
  request.targets.clear();
  for (const std::string& target : targets.empty() ? platform.CompilableTargets() : targets) {
    request.targets.push_back({target, DeviceOfTarget(platform, target)});
  }
  return CompileVariants(MakeBench(platform, settings), request);
}

DeviceInfo DeviceOfTarget(Platform& platform, std::string_view target) {
  for (const std::string& name : platform.DeviceNames()) {
    auto device = platform.OpenDevice(name);
    if (device.ok() && (*device)->info().target == target) return (*device)->info();
  }
  const auto profiles = ListProfiles();
  if (profiles.ok()) {
    for (const std::string& name : *profiles) {
      auto profile = LoadProfile(name);
      if (profile.ok() && profile->target == target) return *std::move(profile);
    }
  }
  DeviceInfo unknown;
  unknown.target = std::string(target);
  return unknown;
}

}  // namespace kvr
