// SPDX-License-Identifier: Apache-2.0
#include "core/op.h"

#include <gtest/gtest.h>

#include "tests/core/samples.h"

namespace kvr {
namespace {

TEST(Op, FindsAxesAndTensorsByName) {
  OpSpec op = SampleOp();
  EXPECT_EQ(op.AxisIndex("topk"), 3);
  EXPECT_EQ(op.AxisIndex("q"), -1);
  EXPECT_EQ(op.TensorIndex("output"), 4);
  EXPECT_EQ(op.TensorIndex("topk"), -1);
  EXPECT_EQ(op.tensor_count(), 5);
  EXPECT_EQ(op.tensor(4).name, "output");
  EXPECT_EQ(op.tensor(0).name, "q");
}

TEST(ResolveAxes, DefaultsWhatIsLeftOut) {
  OpSpec op = SampleOp();
  AxisVector axes = *ResolveAxes(op, {{"topk", 512}, {"num_tokens", 0}});
  EXPECT_EQ(NamedAxes(op, axes), (Axes{{"num_tokens", 0},
                                       {"num_qo_heads", 16},
                                       {"head_dim", 512},
                                       {"topk", 512},
                                       {"extra_topk", 128}}));
  EXPECT_TRUE(ResolveAxes(op, {{"head_dim", 512}}).ok()) << "a const axis at its value";
}

TEST(ResolveAxes, ErrorsNameTheFix) {
  OpSpec op = SampleOp();
  EXPECT_THAT(ResolveAxes(op, {{"top_k", 1}}).status(),
              IsError(kInvalid, "op 'sample_decode': unknown axis 'top_k'",
                      "did you mean 'topk'? known: topk"));
  EXPECT_THAT(ResolveAxes(op, {{"head_dim", 256}}).status(),
              IsError(kInvalid, "fixes it", "head_dim=512"));
  EXPECT_THAT(ResolveAxes(op, {{"topk", -1}}).status(), IsError(kInvalid, "is -1", "not negative"));
  EXPECT_THAT(ResolveAxes(op, {{"topk", 32769}}).status(),
              IsError(kInvalid, "requires topk <= 32768", "meet it"));
}

std::vector<TensorView> Tensors(const OpSpec& op, const AxisVector& axes) {
  static int memory = 0;
  std::vector<TensorView> tensors = TensorShapes(op, axes);
  for (TensorView& tensor : tensors) {
    EXPECT_EQ(tensor.data, nullptr);
    tensor.data = &memory;
  }
  return tensors;
}

TEST(AxesFromTensors, InvertsTensorShapes) {
  OpSpec op = SampleOp();
  AxisVector axes = *ResolveAxes(op, {{"num_tokens", 7}, {"topk", 37}, {"extra_topk", 5}});
  AxisVector read{};
  ASSERT_TRUE(AxesFromTensors(op, Tensors(op, axes), &read).ok());
  EXPECT_EQ(read, axes);
}

TEST(AxesFromTensors, AxisOfAbsentTensorsIsZeroAndOfNoneDefaults) {
  OpSpec op = SampleOp();
  op.axes.push_back({.name = "block_size", .default_value = 64});
  AxisVector axes = *ResolveAxes(op, {});
  std::vector<TensorView> tensors = Tensors(op, axes);
  tensors[3].data = nullptr;
  AxisVector read{};
  ASSERT_TRUE(AxesFromTensors(op, tensors, &read).ok());
  EXPECT_EQ(read[4], 0);
  EXPECT_EQ(read[5], 64);
}

TEST(AxesFromTensors, WrongTensorsAreNamed) {
  OpSpec op = SampleOp();
  const std::vector<TensorView> good = Tensors(op, *ResolveAxes(op, {}));
  AxisVector read{};
  auto error = [&](auto change) {
    std::vector<TensorView> tensors = good;
    change(tensors);
    return AxesFromTensors(op, tensors, &read);
  };
  EXPECT_THAT(error([](auto& t) { t.pop_back(); }), IsError(kInvalid, "is given 4 tensors, not 5",
                                                            "q, indices, sm_scale, extra, output"));
  EXPECT_THAT(error([](auto& t) { t[0].dtype = DType::kF16; }),
              IsError(kInvalid, "tensor 'q' of op 'sample_decode' is float16[64, 16, 512]",
                      "bfloat16[num_tokens, num_qo_heads, head_dim]"));
  EXPECT_THAT(error([](auto& t) { t[0].rank = 2; }), IsError(kInvalid, "[64, 16]", "bfloat16"));
  EXPECT_THAT(error([](auto& t) { t[2].rank = 1; }), IsError(kInvalid, "'sm_scale'", "rank 0"));
  EXPECT_THAT(error([](auto& t) { t[1].shape[0] = 63; }),
              IsError(kInvalid, "'indices'", "num_tokens is 64"));
  EXPECT_THAT(error([](auto& t) { t[0].shape[2] = 256; }),
              IsError(kInvalid, "head_dim = 256 at dimension 2", "head_dim is 512 in this op"));
  EXPECT_THAT(error([](auto& t) { t[0].shape[0] = -1; }), IsError(kInvalid, "= -1", "0 or more"));
}

TEST(AxesFromTensors, UnknownDtypeTakesAny) {
  OpSpec op = SampleOp();
  op.inputs[0].any_dtype = true;
  std::vector<TensorView> tensors = Tensors(op, *ResolveAxes(op, {}));
  tensors[0].dtype = DType::kF8E4M3;
  AxisVector read{};
  EXPECT_TRUE(AxesFromTensors(op, tensors, &read).ok());
}

TEST(TensorView, CountsElementsAndBytes) {
  std::vector<TensorView> shapes = TensorShapes(SampleOp(), *ResolveAxes(SampleOp(), {}));
  EXPECT_EQ(shapes[0].elements(), 64 * 16 * 512);
  EXPECT_EQ(shapes[0].bytes(), 64 * 16 * 512 * 2);
  EXPECT_EQ(shapes[2].elements(), 1);
}

}  // namespace
}  // namespace kvr
