// SPDX-License-Identifier: Apache-2.0
#include "api/tune.h"

#include "api/bench.h"
#include "devices/profiles.h"

namespace kvr {

absl::StatusOr<VerifyReport> Verify(Platform& platform, const TuneSettings& settings,
                                    const VerifyRequest& request) {
  return VerifyVariants(MakeBench(platform, settings), request);
}

absl::StatusOr<TuneReport> Tune(Platform& platform, const TuneSettings& settings,
                                const TuneRequest& request) {
  const RecordingBench bench(platform, settings);
  return TuneOp(bench.workbench, request);
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
