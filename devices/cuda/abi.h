// SPDX-License-Identifier: Apache-2.0
//
// The few types, constants and functions of the CUDA driver API that KVR uses, declared here so
// that KVR builds on machines without any CUDA header. Names and values are those of <cuda.h>,
// where their meaning is documented; tests/devices/cuda/abi_test.cc compares every one of them with
// <cuda.h> where there is one. Handles are opaque; enumerations travel as int.
//
// KVR_CUDA_FUNCTIONS lists each entry once: member of Driver, the symbol asked for, the version of
// the API asked for (11040 = CUDA 11.4: the newest behaviour that an entry got up to there),
// whether a driver must have it, and its parameters. All return Result. A symbol whose parameters
// changed is listed once per form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvr::cuda {

using Result = int;
using DeviceHandle = int;
using DevicePtr = unsigned long long;  // NOLINT(google-runtime-int): the driver's own type
using Context = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;
using GraphExecHandle = struct GraphExecTag*;
using UserObject = struct UserObjectTag*;
struct EdgeData;  // CUgraphEdgeData; never looked into

struct Uuid {
  unsigned char bytes[16];
};

struct alignas(8) LaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union {
    char size[64] = {};
    int cooperative;
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic;
  } value;
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned smem_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  FunctionHandle function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned smem_bytes;
  void** params;
  void** extra;
  void* kernel;
  Context context;
};

struct GraphUpdateInfo {  // CUgraphExecUpdateResultInfo
  int result;
  GraphNode error_node;
  GraphNode error_from_node;
};

enum : int {  // CUresult, those that KVR tells apart
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kInvalidSource = 300,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kLaunchOutOfResources = 701,
  kCooperativeLaunchTooLarge = 720,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemDriverMismatch = 803,
  kCompatNotSupported = 804,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureImplicit = 906,
  kStreamCaptureWrongThread = 908,
  kGraphUpdateFailure = 910,
  kInvalidClusterSize = 912,
};

enum : int {  // CUdevice_attribute
  kMaxThreadsPerBlock = 1,
  kMaxRegistersPerBlock = 12,
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerMultiprocessor = 81,
  kMaxRegistersPerMultiprocessor = 82,
  kMaxSharedMemoryPerBlockOptin = 97,
  kMaxBlocksPerMultiprocessor = 106,
  kReservedSharedMemoryPerBlock = 111,
  kClusterLaunch = 120,
};

enum : int {  // CUfunction_attribute
  kFuncSharedSizeBytes = 1,
  kFuncMaxDynamicSharedSizeBytes = 8,
  kFuncNonPortableClusterSizeAllowed = 14,
};

enum : int { kJitErrorLogBuffer = 5, kJitErrorLogBufferSizeBytes = 6 };  // CUjit_option
enum : int { kLaunchCooperative = 2, kLaunchCluster = 4, kLaunchProgrammatic = 6 };
enum : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum : int { kCaptureModeGlobal = 0, kCaptureModeThreadLocal = 1, kCaptureModeRelaxed = 2 };
enum : unsigned { kStreamNonBlocking = 1, kEventDefault = 0, kEventDisableTiming = 2 };
enum : unsigned { kUserObjectNoDestructorSync = 1, kGraphUserObjectMove = 1 };
enum : int {  // CUgraphExecUpdateResult
  kGraphUpdateTopologyChanged = 2,
  kGraphUpdateNodeTypeChanged = 3,
  kGraphUpdateParametersChanged = 5,
  kGraphUpdateNotSupported = 6,
  kGraphUpdateFunctionUnsupported = 7,
  kGraphUpdateAttributesChanged = 8,
};
enum : uint64_t { kLegacyStream = 1 };  // flag of cuGetProcAddress

enum : int {  // CUtensorMapDataType
  kTensorMapUint8 = 0,
  kTensorMapInt32 = 3,
  kTensorMapInt64 = 5,
  kTensorMapFloat16 = 6,
  kTensorMapFloat32 = 7,
  kTensorMapFloat64 = 8,
  kTensorMapBfloat16 = 9,
};
enum : int { kTensorMapInterleaveNone = 0 };  // CUtensorMapInterleave
enum : int {                                  // CUtensorMapSwizzle
  kTensorMapSwizzleNone = 0,
  kTensorMapSwizzle32 = 1,
  kTensorMapSwizzle64 = 2,
  kTensorMapSwizzle128 = 3,
};
enum : int { kTensorMapL2Promotion128 = 2 };  // CUtensorMapL2promotion
enum : int { kTensorMapFillZeros = 0 };       // CUtensorMapFloatOOBfill

// clang-format off
#define KVR_CUDA_FUNCTIONS(X)                                                                        \
  X(GetErrorName, cuGetErrorName, 6000, true, (Result, const char**))                                \
  X(GetErrorString, cuGetErrorString, 6000, true, (Result, const char**))                            \
  X(Init, cuInit, 2000, true, (unsigned))                                                            \
  X(DriverGetVersion, cuDriverGetVersion, 2020, true, (int*))                                        \
  X(DeviceGetCount, cuDeviceGetCount, 2000, true, (int*))                                            \
  X(DeviceGet, cuDeviceGet, 2000, true, (DeviceHandle*, int))                                        \
  X(DeviceGetName, cuDeviceGetName, 2000, true, (char*, int, DeviceHandle))                          \
  X(DeviceGetUuid, cuDeviceGetUuid, 11040, true, (Uuid*, DeviceHandle))                              \
  X(DeviceGetPciBusId, cuDeviceGetPCIBusId, 4010, true, (char*, int, DeviceHandle))                  \
  X(DeviceGetAttribute, cuDeviceGetAttribute, 2000, true, (int*, int, DeviceHandle))                 \
  X(PrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, true, (Context*, DeviceHandle))                \
  X(PrimaryCtxRelease, cuDevicePrimaryCtxRelease, 11000, true, (DeviceHandle))                       \
  X(CtxGetCurrent, cuCtxGetCurrent, 4000, true, (Context*))                                          \
  X(CtxSetCurrent, cuCtxSetCurrent, 4000, true, (Context))                                           \
  X(CtxGetDevice, cuCtxGetDevice, 2000, true, (DeviceHandle*))                                       \
  X(MemAlloc, cuMemAlloc, 3020, true, (DevicePtr*, size_t))                                          \
  X(MemFree, cuMemFree, 3020, true, (DevicePtr))                                                     \
  X(MemGetInfo, cuMemGetInfo, 3020, true, (size_t*, size_t*))                                        \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync, 3020, true, (DevicePtr, const void*, size_t, StreamHandle))  \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync, 3020, true, (void*, DevicePtr, size_t, StreamHandle))        \
  X(MemsetD8Async, cuMemsetD8Async, 3020, true, (DevicePtr, unsigned char, size_t, StreamHandle))    \
  X(StreamCreate, cuStreamCreate, 2000, true, (StreamHandle*, unsigned))                             \
  X(StreamDestroy, cuStreamDestroy, 4000, true, (StreamHandle))                                      \
  X(StreamSynchronize, cuStreamSynchronize, 2000, true, (StreamHandle))                              \
  X(StreamIsCapturing, cuStreamIsCapturing, 10000, true, (StreamHandle, int*))                       \
  X(ThreadExchangeCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, true, (int*))               \
  X(StreamGetCaptureInfoV2, cuStreamGetCaptureInfo, 11030, true, (StreamHandle, int*, uint64_t*, GraphHandle*, const GraphNode**, size_t*)) \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo, 12030, false, (StreamHandle, int*, uint64_t*, GraphHandle*, const GraphNode**, const EdgeData**, size_t*)) \
  X(StreamBeginCapture, cuStreamBeginCapture, 10010, true, (StreamHandle, int))                      \
  X(StreamEndCapture, cuStreamEndCapture, 10000, true, (StreamHandle, GraphHandle*))                 \
  X(GraphDestroy, cuGraphDestroy, 10000, true, (GraphHandle))                                        \
  X(GraphGetNodes, cuGraphGetNodes, 10000, true, (GraphHandle, GraphNode*, size_t*))                 \
  X(GraphInstantiate, cuGraphInstantiateWithFlags, 11040, true, (GraphExecHandle*, GraphHandle, unsigned long long)) \
  X(GraphUpload, cuGraphUpload, 11010, true, (GraphExecHandle, StreamHandle))                        \
  X(GraphLaunch, cuGraphLaunch, 10000, true, (GraphExecHandle, StreamHandle))                        \
  X(GraphExecDestroy, cuGraphExecDestroy, 10000, true, (GraphExecHandle))                            \
  X(GraphExecUpdate, cuGraphExecUpdate, 12000, true, (GraphExecHandle, GraphHandle, GraphUpdateInfo*)) \
  X(GraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 12000, true, (GraphExecHandle, GraphNode, const KernelNodeParams*)) \
  X(GraphClone, cuGraphClone, 10000, true, (GraphHandle*, GraphHandle))                              \
  X(GraphNodeFindInClone, cuGraphNodeFindInClone, 10000, true, (GraphNode*, GraphNode, GraphHandle)) \
  X(GraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 12000, true, (GraphNode, const KernelNodeParams*)) \
  X(GraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000, true, (GraphNode, int, const void*)) \
  X(UserObjectCreate, cuUserObjectCreate, 11030, true, (UserObject*, void*, void (*)(void*), unsigned, unsigned)) \
  X(UserObjectRelease, cuUserObjectRelease, 11030, true, (UserObject, unsigned))                     \
  X(GraphRetainUserObject, cuGraphRetainUserObject, 11030, true, (GraphHandle, UserObject, unsigned, unsigned)) \
  X(GraphReleaseUserObject, cuGraphReleaseUserObject, 11030, true, (GraphHandle, UserObject, unsigned)) \
  X(EventCreate, cuEventCreate, 2000, true, (EventHandle*, unsigned))                                \
  X(EventDestroy, cuEventDestroy, 4000, true, (EventHandle))                                         \
  X(StreamWaitEvent, cuStreamWaitEvent, 3020, true, (StreamHandle, EventHandle, unsigned))           \
  X(EventRecord, cuEventRecord, 2000, true, (EventHandle, StreamHandle))                             \
  X(EventSynchronize, cuEventSynchronize, 2000, true, (EventHandle))                                 \
  X(EventElapsedTime, cuEventElapsedTime, 2000, true, (float*, EventHandle, EventHandle))            \
  X(ModuleLoadDataEx, cuModuleLoadDataEx, 2010, true, (ModuleHandle*, const void*, unsigned, int*, void**)) \
  X(ModuleUnload, cuModuleUnload, 2000, true, (ModuleHandle))                                        \
  X(ModuleGetFunction, cuModuleGetFunction, 2000, true, (FunctionHandle*, ModuleHandle, const char*)) \
  X(FuncGetAttribute, cuFuncGetAttribute, 2020, true, (int*, int, FunctionHandle))                   \
  X(FuncSetAttribute, cuFuncSetAttribute, 9000, true, (FunctionHandle, int, int))                    \
  X(FuncLoad, cuFuncLoad, 12040, false, (FunctionHandle))                                            \
  X(OccupancyMaxActiveBlocks, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, true, (int*, FunctionHandle, int, size_t)) \
  X(LaunchKernel, cuLaunchKernel, 4000, true, (FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, StreamHandle, void**, void**)) \
  X(LaunchKernelEx, cuLaunchKernelEx, 11060, true, (const LaunchConfig*, FunctionHandle, void**, void**)) \
  X(TensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000, false, (void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int, int, int, int))
// clang-format on

}  // namespace kvr::cuda
