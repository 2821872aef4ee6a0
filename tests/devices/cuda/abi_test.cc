// SPDX-License-Identifier: Apache-2.0
//
// devices/cuda/abi.h against <cuda.h>: all of it at compile time.
#include "devices/cuda/abi.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <type_traits>

#include "core/device.h"

namespace kvr::cuda {
namespace {

// What a parameter is to the calling convention: a pointer, or an integer of so many bytes.
template <typename T>
constexpr int KindOf() {
  if constexpr (std::is_pointer_v<T>) return -1;
  static_assert(std::is_pointer_v<T> || std::is_integral_v<T> || std::is_enum_v<T>);
  return sizeof(T);
}

template <typename R, typename... A>
constexpr auto Shape(R (*)(A...)) {
  return std::array<int, sizeof...(A) + 1>{KindOf<R>(), KindOf<A>()...};
}

template <typename Ours, typename Theirs>
constexpr bool SameShape() {
  constexpr auto ours = Shape(Ours{});
  constexpr auto theirs = Shape(Theirs{});
  if constexpr (ours.size() != theirs.size()) {
    return false;
  } else {
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] != theirs[i]) return false;
    }
    return true;
  }
}

// The typedef's suffix is the version at which the entry became what it is, so this also checks
// that each version asked for exists.
#if CUDA_VERSION >= 12040
#define KVR_CHECK(member, symbol, version, required, parameters) \
  static_assert(SameShape<Result(*) parameters, PFN_##symbol##_v##version>(), #symbol);
KVR_CUDA_FUNCTIONS(KVR_CHECK)
#undef KVR_CHECK
#endif

static_assert(sizeof(DevicePtr) == sizeof(CUdeviceptr));
static_assert(sizeof(Uuid) == sizeof(CUuuid));

static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(alignof(LaunchAttribute) == alignof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, id) == offsetof(CUlaunchAttribute, id));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(offsetof(CUlaunchAttributeValue, cooperative) == 0);
static_assert(offsetof(CUlaunchAttributeValue, clusterDim) == 0);
static_assert(offsetof(CUlaunchAttributeValue, programmaticStreamSerializationAllowed) == 0);

static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
#define KVR_SAME_OFFSET(ours, theirs) \
  static_assert(offsetof(LaunchConfig, ours) == offsetof(CUlaunchConfig, theirs))
KVR_SAME_OFFSET(grid_x, gridDimX);
KVR_SAME_OFFSET(grid_z, gridDimZ);
KVR_SAME_OFFSET(block_x, blockDimX);
KVR_SAME_OFFSET(block_z, blockDimZ);
KVR_SAME_OFFSET(smem_bytes, sharedMemBytes);
KVR_SAME_OFFSET(stream, hStream);
KVR_SAME_OFFSET(attributes, attrs);
KVR_SAME_OFFSET(attribute_count, numAttrs);

static_assert(sizeof(KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS));
#define KVR_SAME_NODE_OFFSET(ours, theirs) \
  static_assert(offsetof(KernelNodeParams, ours) == offsetof(CUDA_KERNEL_NODE_PARAMS, theirs))
KVR_SAME_NODE_OFFSET(function, func);
KVR_SAME_NODE_OFFSET(grid_x, gridDimX);
KVR_SAME_NODE_OFFSET(grid_y, gridDimY);
KVR_SAME_NODE_OFFSET(grid_z, gridDimZ);
KVR_SAME_NODE_OFFSET(block_x, blockDimX);
KVR_SAME_NODE_OFFSET(block_y, blockDimY);
KVR_SAME_NODE_OFFSET(block_z, blockDimZ);
KVR_SAME_NODE_OFFSET(smem_bytes, sharedMemBytes);
KVR_SAME_NODE_OFFSET(params, kernelParams);
KVR_SAME_NODE_OFFSET(extra, extra);
KVR_SAME_NODE_OFFSET(kernel, kern);
KVR_SAME_NODE_OFFSET(context, ctx);

static_assert(sizeof(GraphUpdateInfo) == sizeof(CUgraphExecUpdateResultInfo));
static_assert(offsetof(GraphUpdateInfo, result) == offsetof(CUgraphExecUpdateResultInfo, result));
static_assert(offsetof(GraphUpdateInfo, error_node) ==
              offsetof(CUgraphExecUpdateResultInfo, errorNode));
static_assert(offsetof(GraphUpdateInfo, error_from_node) ==
              offsetof(CUgraphExecUpdateResultInfo, errorFromNode));

#define KVR_SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
KVR_SAME(kSuccess, CUDA_SUCCESS);
KVR_SAME(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
KVR_SAME(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
KVR_SAME(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
KVR_SAME(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
KVR_SAME(kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
KVR_SAME(kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
KVR_SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
KVR_SAME(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
KVR_SAME(kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
KVR_SAME(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
KVR_SAME(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
KVR_SAME(kInvalidPtx, CUDA_ERROR_INVALID_PTX);
KVR_SAME(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
KVR_SAME(kInvalidSource, CUDA_ERROR_INVALID_SOURCE);
KVR_SAME(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
KVR_SAME(kIllegalState, CUDA_ERROR_ILLEGAL_STATE);
KVR_SAME(kNotFound, CUDA_ERROR_NOT_FOUND);
KVR_SAME(kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
KVR_SAME(kCooperativeLaunchTooLarge, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
KVR_SAME(kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
KVR_SAME(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
KVR_SAME(kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
KVR_SAME(kCompatNotSupported, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
KVR_SAME(kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
KVR_SAME(kStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
KVR_SAME(kStreamCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
KVR_SAME(kStreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
KVR_SAME(kStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
KVR_SAME(kStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
KVR_SAME(kGraphUpdateFailure, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
KVR_SAME(kInvalidClusterSize, CUDA_ERROR_INVALID_CLUSTER_SIZE);

KVR_SAME(kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
KVR_SAME(kMaxRegistersPerBlock, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
KVR_SAME(kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
KVR_SAME(kL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
KVR_SAME(kMaxThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
KVR_SAME(kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
KVR_SAME(kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
KVR_SAME(kMaxSharedMemoryPerMultiprocessor,
         CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
KVR_SAME(kMaxRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
KVR_SAME(kMaxSharedMemoryPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
KVR_SAME(kMaxBlocksPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
KVR_SAME(kReservedSharedMemoryPerBlock, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
KVR_SAME(kClusterLaunch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);

KVR_SAME(kFuncSharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
KVR_SAME(kFuncMaxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
KVR_SAME(kFuncNonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
KVR_SAME(kJitErrorLogBuffer, CU_JIT_ERROR_LOG_BUFFER);
KVR_SAME(kJitErrorLogBufferSizeBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
KVR_SAME(kLaunchCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
KVR_SAME(kLaunchCluster, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
KVR_SAME(kLaunchProgrammatic, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
KVR_SAME(kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
KVR_SAME(kCaptureActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
KVR_SAME(kCaptureInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
KVR_SAME(kCaptureModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
KVR_SAME(kCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
KVR_SAME(kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
KVR_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
KVR_SAME(kEventDefault, CU_EVENT_DEFAULT);
KVR_SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
KVR_SAME(kUserObjectNoDestructorSync, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
KVR_SAME(kGraphUserObjectMove, CU_GRAPH_USER_OBJECT_MOVE);
KVR_SAME(kGraphUpdateTopologyChanged, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
KVR_SAME(kGraphUpdateNodeTypeChanged, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
KVR_SAME(kGraphUpdateParametersChanged, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
KVR_SAME(kGraphUpdateNotSupported, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
KVR_SAME(kGraphUpdateFunctionUnsupported, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
KVR_SAME(kGraphUpdateAttributesChanged, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED);
KVR_SAME(kLegacyStream, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
KVR_SAME(kTensorMapUint8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
KVR_SAME(kTensorMapInt32, CU_TENSOR_MAP_DATA_TYPE_INT32);
KVR_SAME(kTensorMapInt64, CU_TENSOR_MAP_DATA_TYPE_INT64);
KVR_SAME(kTensorMapFloat16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
KVR_SAME(kTensorMapFloat32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
KVR_SAME(kTensorMapFloat64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64);
KVR_SAME(kTensorMapBfloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
KVR_SAME(kTensorMapInterleaveNone, CU_TENSOR_MAP_INTERLEAVE_NONE);
KVR_SAME(kTensorMapSwizzleNone, CU_TENSOR_MAP_SWIZZLE_NONE);
KVR_SAME(kTensorMapSwizzle32, CU_TENSOR_MAP_SWIZZLE_32B);
KVR_SAME(kTensorMapSwizzle64, CU_TENSOR_MAP_SWIZZLE_64B);
KVR_SAME(kTensorMapSwizzle128, CU_TENSOR_MAP_SWIZZLE_128B);
KVR_SAME(kTensorMapL2Promotion128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
KVR_SAME(kTensorMapFillZeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) >= alignof(CUtensorMap));

TEST(Abi, MatchesTheHeaderItWasComparedWith) {
  RecordProperty("cuda_h", CUDA_VERSION);
  SUCCEED();
}

}  // namespace
}  // namespace kvr::cuda
