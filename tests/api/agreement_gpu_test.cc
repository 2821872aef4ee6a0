// SPDX-License-Identifier: Apache-2.0
//
// The same source on the same inputs: what the host device computes and what the GPU computes lie
// within the sum of both bounds, for every variant of the MLA operations that both can run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/platform.h"
#include "api/runtime.h"
#include "core/status.h"

namespace kvr {
namespace {

// Every output byte of one launch on `device`, tensors of the op's order filled by the generator.
absl::StatusOr<std::vector<std::vector<char>>> OutputsOn(const std::string& device_name,
                                                         const std::string& op_name,
                                                         const std::string& variant,
                                                         const Axes& axes) {
  RuntimeOptions options{.device = device_name};
  options.forced = {.op = op_name, .variant = variant};
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, Runtime::Open(options));
  KVR_ASSIGN_OR_RETURN(LoadReport report, runtime->Load(op_name, {axes}));
  KVR_RETURN_IF_ERROR(report.items.front().status);
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, runtime->catalog().FindOp(op_name));
  KVR_ASSIGN_OR_RETURN(AxisVector extents, ResolveAxes(op->spec(), axes));
  Device& device = runtime->device();
  KVR_ASSIGN_OR_RETURN(Stream stream, device.CreateStream());
  KVR_RETURN_IF_ERROR(runtime->PrepareStream(stream));

  std::vector<TensorView> host = TensorShapes(op->spec(), extents);
  std::vector<std::vector<char>> memory;
  for (TensorView& view : host) {
    memory.emplace_back(static_cast<size_t>(view.bytes()));
    view.data = memory.back().data();
  }
  const size_t inputs = op->spec().inputs.size();
  KVR_RETURN_IF_ERROR(
      op->operation->Generate(extents, /*seed=*/7, absl::MakeSpan(host).first(inputs)));
  std::vector<TensorView> tensors = host;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (op->spec().tensor(static_cast<int>(i)).is_scalar) continue;
    KVR_ASSIGN_OR_RETURN(tensors[i].data, device.Allocate(tensors[i].bytes()));
    KVR_RETURN_IF_ERROR(
        device.CopyToDevice(tensors[i].data, host[i].data, host[i].bytes(), stream));
  }
  KVR_RETURN_IF_ERROR(runtime->Launch(op_name, tensors, stream));
  for (size_t i = inputs; i < tensors.size(); ++i)
    KVR_RETURN_IF_ERROR(
        device.CopyToHost(host[i].data, tensors[i].data, tensors[i].bytes(), stream));
  KVR_RETURN_IF_ERROR(device.Synchronize(stream));
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!op->spec().tensor(static_cast<int>(i)).is_scalar) device.Free(tensors[i].data);
  device.DestroyStream(stream);
  return memory;
}

struct Shape {
  const char* op;
  Axes axes;
};

class HostAndGpu : public testing::TestWithParam<Shape> {};

TEST_P(HostAndGpu, AgreeOnTheSameInputs) {
  absl::StatusOr<std::unique_ptr<Platform>> platform = Platform::Open({});
  ASSERT_TRUE(platform.ok()) << platform.status();
  if (!(*platform)->OpenDevice("host").ok()) GTEST_SKIP() << "there is no host module here";

  const std::string op_name = GetParam().op;
  const Axes& axes = GetParam().axes;
  absl::StatusOr<const Catalog::Op*> op = (*platform)->catalog().FindOp(op_name);
  ASSERT_TRUE(op.ok());
  const AxisVector extents = ResolveAxes((*op)->spec(), axes).value();
  for (const VariantPtr& variant : (*op)->variants) {
    if (!variant->Supports("host")) continue;
    SCOPED_TRACE(variant->name);
    auto host = OutputsOn("host", op_name, variant->name, axes);
    ASSERT_TRUE(host.ok()) << host.status();
    auto gpu = OutputsOn("cuda", op_name, variant->name, axes);
    ASSERT_TRUE(gpu.ok()) << gpu.status();

    std::vector<TensorView> views = TensorShapes((*op)->spec(), extents);
    for (size_t i = 0; i < views.size(); ++i) views[i].data = (*host)[i].data();
    const size_t inputs = (*op)->spec().inputs.size();
    auto reference = (*op)->operation->Reference(extents, absl::MakeConstSpan(views).first(inputs),
                                                 /*threads=*/0);
    ASSERT_TRUE(reference.ok()) << reference.status();
    for (size_t i = 0; i < inputs; ++i) ASSERT_EQ((*host)[i], (*gpu)[i]) << "input " << i;
    for (size_t o = 0; o < reference->size(); ++o) {
      const DType dtype = views[inputs + o].dtype;
      int64_t differing = 0;
      for (size_t e = 0; e < (*reference)[o].expected.size(); ++e) {
        const double a = LoadAsDouble((*host)[inputs + o].data(), dtype, static_cast<int64_t>(e));
        const double b = LoadAsDouble((*gpu)[inputs + o].data(), dtype, static_cast<int64_t>(e));
        if (std::isinf(a) || std::isinf(b)) {
          ASSERT_EQ(a, b) << "output " << o << " element " << e;
          continue;
        }
        ASSERT_LE(std::abs(a - b), 2 * (*reference)[o].bound[e])
            << "output " << o << " element " << e;
        differing += a != b ? 1 : 0;
      }
      RecordProperty("differing_elements_" + std::to_string(o), std::to_string(differing));
      std::printf("%s output %zu: %lld of %zu elements differ in their last bits\n",
                  variant->name.c_str(), o, static_cast<long long>(differing),
                  (*reference)[o].expected.size());
    }
  }
}

// No multiple of any tile.
INSTANTIATE_TEST_SUITE_P(
    , HostAndGpu,
    testing::Values(
        Shape{"mla_sparse_decode", {{"num_tokens", 5}, {"num_qo_heads", 17}, {"topk", 130}}},
        Shape{"mla_sparse_decode_fp8",
              {{"num_tokens", 5}, {"num_qo_heads", 17}, {"topk", 130}, {"extra_topk", 37}}},
        Shape{"mla_sparse_decode_fp8_v32",
              {{"num_tokens", 5}, {"num_qo_heads", 17}, {"topk", 130}, {"extra_topk", 37}}}),
    [](const auto& shape) { return std::string(shape.param.op); });

}  // namespace
}  // namespace kvr
