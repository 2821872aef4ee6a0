// SPDX-License-Identifier: Apache-2.0
//
// The boot of a server: from a selection file and a prebuilt cache layer alone. No compiler is
// opened, nothing is compiled, and neither SQLite nor the statistics are part of the program.
//
//   kvr tune mla_sparse_decode --axes num_tokens=4,topk=128 --selections selections.json
//   kvr cache export LAYER
//   boot cuda:0 selections.json LAYER num_tokens=4,topk=128
//
// On the host device the host module is loaded, and Clang lies in it: it is not asked to compile.
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "api/platform.h"
#include "api/runtime.h"
#include "core/axes.h"
#include "core/status.h"

namespace {

constexpr char kOp[] = "mla_sparse_decode";

// The shared objects that this process holds, as the kernel lists them.
std::set<std::string> LoadedObjects() {
  std::set<std::string> objects;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.find(".so", path) != std::string::npos) {
      objects.insert(line.substr(path));
    }
  }
  return objects;
}

absl::Status Boot(const char* device, const char* selections, const char* layer,
                  const char* shape) {
  // 1. Open: variants are admitted, the selection file is checked against them.
  KVR_ASSIGN_OR_RETURN(auto runtime, kvr::Runtime::Open({.device = device,
                                                         .selection_file = selections,
                                                         .cache_layers = {layer},
                                                         .miss_policy = kvr::MissPolicy::kError,
                                                         .compilers = false}));
  for (const kvr::DroppedSelection& dropped : runtime->dropped()) {
    std::printf("dropped %s: %s\n", dropped.variant.c_str(), dropped.reason.c_str());
  }

  // 2. Load the shapes that will be served: their binaries come from the layer.
  KVR_ASSIGN_OR_RETURN(const kvr::Axes axes, kvr::ParseAxes(shape));
  KVR_ASSIGN_OR_RETURN(const kvr::LoadReport report, runtime->Load(kOp, {axes}));
  std::printf("%s", report.Text().c_str());
  if (!report.ready()) return report.items.front().status;

  // 3. Freeze, then serve: here one launch, on zeros.
  KVR_ASSIGN_OR_RETURN(const kvr::Stream stream, runtime->device().CreateStream());
  KVR_RETURN_IF_ERROR(runtime->PrepareStream(stream));
  runtime->Freeze();
  float sm_scale = 0.0722f;
  KVR_ASSIGN_OR_RETURN(const kvr::Catalog::Op* op, runtime->catalog().FindOp(kOp));
  KVR_ASSIGN_OR_RETURN(const kvr::AxisVector extents, kvr::ResolveAxes(op->spec(), axes));
  std::vector<kvr::TensorView> tensors = kvr::TensorShapes(op->spec(), extents);
  for (kvr::TensorView& tensor : tensors) {
    tensor.data = &sm_scale;
    if (tensor.rank == 0) continue;
    KVR_ASSIGN_OR_RETURN(tensor.data, runtime->device().Allocate(tensor.bytes()));
    KVR_RETURN_IF_ERROR(runtime->device().MemsetAsync(tensor.data, 0, tensor.bytes(), stream));
  }
  KVR_RETURN_IF_ERROR(runtime->Launch(kOp, tensors, stream));
  KVR_RETURN_IF_ERROR(runtime->device().Synchronize(stream));

  // 4. What it took.
  for (const std::string& object : LoadedObjects()) std::printf("loaded %s\n", object.c_str());
  const kvr::Jit::Stats jit = runtime->platform().jit().stats();
  const kvr::BinaryCache::Stats cache = runtime->platform().cache().stats();
  std::printf("%lld compiles, %lld binaries from the layer, %llu misses\n",
              static_cast<long long>(jit.compiles), static_cast<long long>(cache.layer_hits),
              static_cast<unsigned long long>(runtime->counters().misses));

  for (kvr::TensorView& tensor : tensors) {
    if (tensor.rank > 0) runtime->device().Free(tensor.data);
  }
  runtime->device().DestroyStream(stream);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: boot DEVICE SELECTION_FILE CACHE_LAYER AXIS=N,...\n");
    return 2;
  }
  const absl::Status status = Boot(argv[1], argv[2], argv[3], argv[4]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
