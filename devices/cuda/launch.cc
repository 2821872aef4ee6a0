// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/launch.h"

#include <array>
#include <string>

#include "core/strings.h"

namespace kvr::cuda {
namespace {

Result LaunchPlain(const Driver& driver, FunctionHandle function, const KernelLaunch& launch,
                   void* const* params, StreamHandle stream) {
  const Dim3& grid = launch.grid;
  const Dim3& block = launch.block;
  return driver.LaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             static_cast<unsigned>(launch.smem), stream, const_cast<void**>(params),
                             nullptr);
}

Result LaunchWithAttributes(const Driver& driver, FunctionHandle function,
                            const KernelLaunch& launch, const LaunchAttributes& attributes,
                            void* const* params, StreamHandle stream) {
  std::array<LaunchAttribute, 3> list;
  unsigned count = 0;
  if (launch.cluster.volume() != 1) {
    LaunchAttribute& attribute = list[count++];
    attribute.id = kLaunchCluster;
    attribute.value.cluster = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
  }
  if (attributes.cooperative) {
    LaunchAttribute& attribute = list[count++];
    attribute.id = kLaunchCooperative;
    attribute.value.cooperative = 1;
  }
  if (attributes.programmatic) {
    LaunchAttribute& attribute = list[count++];
    attribute.id = kLaunchProgrammatic;
    attribute.value.programmatic = 1;
  }
  const LaunchConfig config = {.grid_x = launch.grid.x,
                               .grid_y = launch.grid.y,
                               .grid_z = launch.grid.z,
                               .block_x = launch.block.x,
                               .block_y = launch.block.y,
                               .block_z = launch.block.z,
                               .smem_bytes = static_cast<unsigned>(launch.smem),
                               .stream = stream,
                               .attributes = list.data(),
                               .attribute_count = count};
  return driver.LaunchKernelEx(&config, function, const_cast<void**>(params), nullptr);
}

}  // namespace

std::string Text(const Dim3& dim) { return StrCat(dim.x, "x", dim.y, "x", dim.z); }

std::string Text(const KernelLaunch& launch) {
  return StrCat("grid ", Text(launch.grid), ", block ", Text(launch.block), ", cluster ",
                Text(launch.cluster), ", ", launch.smem, " bytes of dynamic shared memory");
}

absl::Status LaunchKernel(const Driver& driver, FunctionHandle function, const KernelLaunch& launch,
                          const LaunchAttributes& attributes, void* const* params,
                          StreamHandle stream) {
  const bool plain = attributes == LaunchAttributes{} && launch.cluster.volume() == 1;
  const Result result =
      plain ? LaunchPlain(driver, function, launch, params, stream)
            : LaunchWithAttributes(driver, function, launch, attributes, params, stream);
  if (result == kSuccess) return absl::OkStatus();
  return ErrorFrom(driver, result, plain ? "cuLaunchKernel" : "cuLaunchKernelEx", Text(launch));
}

KernelNodeParams NodeParams(FunctionHandle function, const KernelLaunch& launch,
                            void* const* params) {
  return {.function = function,
          .grid_x = launch.grid.x,
          .grid_y = launch.grid.y,
          .grid_z = launch.grid.z,
          .block_x = launch.block.x,
          .block_y = launch.block.y,
          .block_z = launch.block.z,
          .smem_bytes = static_cast<unsigned>(launch.smem),
          .params = const_cast<void**>(params),
          .extra = nullptr,
          .kernel = nullptr,
          .context = nullptr};
}

}  // namespace kvr::cuda
