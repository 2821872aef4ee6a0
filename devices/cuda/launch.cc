// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/launch.h"

#include <array>
#include <string>

#include "core/status.h"
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

// Of every architecture that KVR compiles for.
constexpr uint32_t kMostBlocksX = 0x7fffffff, kMostBlocksYZ = 0xffff;
constexpr uint32_t kMostThreadsXY = 1024, kMostThreadsZ = 64;

bool Within(const Dim3& dim, uint32_t x, uint32_t y, uint32_t z) {
  return dim.x - 1 < x && dim.y - 1 < y && dim.z - 1 < z;  // an extent of 0 is none, too
}

bool Divides(const Dim3& cluster, const Dim3& grid) {
  return grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
}

absl::Status Beyond(const KernelLaunch& launch, std::string_view limit) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("a launch of ", Text(launch)), limit);
}

}  // namespace

std::string Text(const Dim3& dim) { return StrCat(dim.x, "x", dim.y, "x", dim.z); }

std::string Text(const KernelLaunch& launch) {
  return StrCat("grid ", Text(launch.grid), ", block ", Text(launch.block), ", cluster ",
                Text(launch.cluster), ", ", launch.smem, " bytes of dynamic shared memory");
}

absl::Status CheckLimits(const DeviceInfo& info, const KernelLaunch& launch) {
  if (!Within(launch.grid, kMostBlocksX, kMostBlocksYZ, kMostBlocksYZ)) {
    return Beyond(launch, "a grid has 1x1x1 to 2147483647x65535x65535 blocks");
  }
  if (!Within(launch.block, kMostThreadsXY, kMostThreadsXY, kMostThreadsZ) ||
      launch.block.volume() > info.max_threads_per_block) {
    return Beyond(launch, StrCat("a block has 1x1x1 to 1024x1024x64 threads, ",
                                 info.max_threads_per_block, " in all"));
  }
  if (launch.smem < 0 || launch.smem > info.smem_per_block) {
    return Beyond(launch, StrCat("a block has at most ", info.smem_per_block,
                                 " bytes of static and dynamic shared memory"));
  }
  const auto most = static_cast<uint32_t>(info.max_cluster_size);
  if (!Within(launch.cluster, most, most, most) || launch.cluster.volume() > most ||
      !Divides(launch.cluster, launch.grid)) {
    return Beyond(
        launch, StrCat("a cluster has 1 to ", most, " blocks, and its extents divide the grid's"));
  }
  return absl::OkStatus();
}

absl::Status CheckFits(const Driver& driver, const DeviceInfo& info, FunctionHandle function,
                       const KernelLaunch& launch, const LaunchAttributes& attributes) {
  int smem = 0;
  Result result = driver.FuncGetAttribute(&smem, kFuncMaxDynamicSharedSizeBytes, function);
  if (result != kSuccess) return ErrorFrom(driver, result, "cuFuncGetAttribute");
  if (launch.smem > smem) {
    return Beyond(launch, StrCat("the function was opted in to ", smem,
                                 " bytes of dynamic shared memory (Module::Get)"));
  }
  int blocks = 0;
  result = driver.OccupancyMaxActiveBlocks(
      &blocks, function, static_cast<int>(launch.block.volume()), static_cast<size_t>(launch.smem));
  if (result != kSuccess) {
    return ErrorFrom(driver, result, "cuOccupancyMaxActiveBlocksPerMultiprocessor", Text(launch));
  }
  if (blocks == 0) {
    return Error(absl::StatusCode::kResourceExhausted,
                 StrCat("a block does not fit on a multiprocessor: ", Text(launch)),
                 "use fewer threads, registers or shared memory per block");
  }
  if (attributes.cooperative && launch.grid.volume() > int64_t{blocks} * info.sms) {
    return Error(absl::StatusCode::kResourceExhausted,
                 StrCat("a cooperative launch that is not resident all at once: ", Text(launch)),
                 StrCat("use at most ", int64_t{blocks} * info.sms, " blocks"));
  }
  return absl::OkStatus();
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
