// SPDX-License-Identifier: Apache-2.0
//
// What the tests of core share: a small op, descriptions of two devices, and error matching.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "core/device_info.h"
#include "core/op.h"
#include "core/status.h"

namespace kvr {

// EXPECT_THAT(status, IsError(code, what part, fix part)): every error names its fix.
MATCHER_P3(IsError, code, what, fix, "") {
  const absl::Status status = absl::Status(arg);
  *result_listener << status;
  return status.code() == code && std::string(What(status)).find(what) != std::string::npos &&
         std::string(Fix(status)).find(fix) != std::string::npos;
}

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// The axes of sparse decode, with a scalar, an optional input and a constraint.
inline OpSpec SampleOp() {
  OpSpec op;
  op.name = "sample_decode";
  op.op_type = "dsa_paged";
  op.axes = {{.name = "num_tokens", .default_value = 64},
             {.name = "num_qo_heads", .default_value = 16},
             {.name = "head_dim", .is_const = true, .value = 512, .default_value = 512},
             {.name = "topk", .default_value = 2048},
             {.name = "extra_topk", .default_value = 128}};
  op.inputs = {{.name = "q", .dtype = DType::kBF16, .axes = {0, 1, 2}},
               {.name = "indices", .dtype = DType::kI32, .axes = {0, 3}},
               {.name = "sm_scale", .dtype = DType::kF32, .is_scalar = true},
               {.name = "extra", .dtype = DType::kI32, .optional = true, .axes = {0, 4}}};
  op.outputs = {{.name = "output", .dtype = DType::kBF16, .axes = {0, 1, 2}}};
  op.constraints = {"topk <= 32768"};
  op.key_policy = "topk:pow2";
  return op;
}

inline DeviceInfo RtxPro6000() {
  DeviceInfo device;
  device.kind = "profile";
  device.name = "NVIDIA RTX PRO 6000 Blackwell";
  device.target = "sm_120a";
  device.sms = 188;
  device.max_threads_per_sm = 1536;
  device.max_blocks_per_sm = 24;
  device.max_cluster_size = 8;
  device.smem_per_sm = 102400;
  device.smem_per_block = 101376;
  device.smem_reserved_per_block = 1024;
  return device;
}

inline DeviceInfo H200() {
  DeviceInfo device;
  device.kind = "profile";
  device.name = "NVIDIA H200";
  device.target = "sm_90a";
  device.sms = 132;
  device.max_cluster_size = 8;
  device.smem_per_sm = 233472;
  device.smem_per_block = 232448;
  device.smem_reserved_per_block = 1024;
  return device;
}

}  // namespace kvr
