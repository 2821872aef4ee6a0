// SPDX-License-Identifier: Apache-2.0
//
// The smallest application that embeds KVR: open, load, freeze, launch.
#include <cstdio>
#include <vector>

#include "api/runtime.h"
#include "core/status.h"

absl::Status Run(const char* device_name) {
  KVR_ASSIGN_OR_RETURN(auto runtime, kvr::Runtime::Open({.device = device_name}));
  const kvr::Axes axes = {{"num_tokens", 4}, {"num_qo_heads", 16}, {"topk", 128}};
  KVR_ASSIGN_OR_RETURN(kvr::LoadReport report, runtime->Load("mla_sparse_decode", {axes}));
  std::printf("%s", report.Text().c_str());
  KVR_ASSIGN_OR_RETURN(kvr::Stream stream, runtime->device().CreateStream());
  KVR_RETURN_IF_ERROR(runtime->PrepareStream(stream));
  runtime->Freeze();  // from here on no launch compiles, loads or allocates

  // Your tensors: here zeros on the device, in the op's order; scalars lie in host memory.
  float sm_scale = 0.0722f;
  KVR_ASSIGN_OR_RETURN(const kvr::Catalog::Op* op, runtime->catalog().FindOp("mla_sparse_decode"));
  KVR_ASSIGN_OR_RETURN(kvr::AxisVector extents, kvr::ResolveAxes(op->spec(), axes));
  std::vector<kvr::TensorView> tensors = kvr::TensorShapes(op->spec(), extents);
  for (kvr::TensorView& tensor : tensors) {
    tensor.data = &sm_scale;
    if (tensor.rank == 0) continue;
    KVR_ASSIGN_OR_RETURN(tensor.data, runtime->device().Allocate(tensor.bytes()));
    KVR_RETURN_IF_ERROR(runtime->device().MemsetAsync(tensor.data, 0, tensor.bytes(), stream));
  }

  KVR_RETURN_IF_ERROR(runtime->Launch("mla_sparse_decode", tensors, stream));
  KVR_RETURN_IF_ERROR(runtime->device().Synchronize(stream));
  std::printf("launched on %s\n", runtime->device().info().name.c_str());
  for (kvr::TensorView& tensor : tensors) {
    if (tensor.rank > 0) runtime->device().Free(tensor.data);
  }
  runtime->device().DestroyStream(stream);
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "auto");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
