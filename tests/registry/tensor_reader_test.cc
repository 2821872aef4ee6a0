// SPDX-License-Identifier: Apache-2.0
#include "registry/tensor_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

using ::testing::HasSubstr;

OpSpec Spec() {
  OpSpec op;
  op.name = "sample";
  op.axes = {{.name = "rows"},
             {.name = "dim", .is_const = true, .value = 64},
             {.name = "bias_dim"},
             {.name = "alone", .default_value = 7}};
  op.inputs = {{.name = "x", .dtype = DType::kBF16, .axes = {0, 1}},
               {.name = "any", .axes = {0}, .any_dtype = true},
               {.name = "bias", .dtype = DType::kF32, .optional = true, .axes = {2, 0}},
               {.name = "scale", .dtype = DType::kF32, .is_scalar = true}};
  op.outputs = {{.name = "y", .dtype = DType::kF32, .axes = {1, 0}}};
  return op;
}

alignas(64) std::byte memory[64];

TensorView View(DType dtype, std::initializer_list<int64_t> shape, void* data = memory) {
  TensorView view{.data = data, .dtype = dtype, .rank = static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  return view;
}

std::vector<TensorView> Good(int64_t rows) {
  return {View(DType::kBF16, {rows, 64}), View(DType::kI32, {rows}), View(DType::kF32, {3, rows}),
          View(DType::kF32, {}, nullptr), View(DType::kF32, {64, rows})};
}

TEST(TensorReader, ReadsAxesAndGivesDefaults) {
  const OpSpec op = Spec();
  const TensorReader reader(op);
  AxisVector axes;
  std::vector<TensorView> tensors = Good(5);
  ASSERT_TRUE(reader.Read(tensors, &axes).ok());
  EXPECT_EQ(axes, (AxisVector{5, 64, 3, 7}));
  tensors[2].data = nullptr;
  ASSERT_TRUE(reader.Read(tensors, &axes).ok());
  EXPECT_EQ(axes, (AxisVector{5, 64, 0, 7}));
}

TEST(TensorReader, ReadsAttributesFromTheirScalars) {
  OpSpec op = Spec();
  op.inputs.push_back({.name = "alone", .dtype = DType::kI32, .is_scalar = true});
  op.LinkAttributes();
  ASSERT_EQ(op.inputs.back().attribute, 3);
  for (const bool of_any_dtype : {true, false}) {  // both ways through the reader
    op.inputs[1].any_dtype = of_any_dtype;
    op.inputs[1].dtype = DType::kI32;
    op.inputs[2].optional = of_any_dtype;
    const TensorReader reader(op);
    std::vector<TensorView> tensors = Good(5);
    int32_t value = 9;
    tensors.insert(tensors.end() - 1, View(DType::kI32, {}, nullptr));
    AxisVector axes;
    ASSERT_TRUE(reader.Read(tensors, &axes).ok());
    EXPECT_EQ(axes[3], 7);  // left out: the axis's default
    bool changed = false;
    tensors[4].data = &value;
    ASSERT_TRUE(reader.Reread(tensors, &axes, &changed).ok());
    EXPECT_TRUE(changed);
    EXPECT_EQ(axes, (AxisVector{5, 64, 3, 9}));
    value = -1;
    EXPECT_THAT(std::string(reader.Read(tensors, &axes).message()), HasSubstr("attribute 'alone'"));
  }
}

TEST(TensorReader, RefusesMemoryThatIsMissingOrMisaligned) {
  const OpSpec op = Spec();
  const TensorReader reader(op);
  AxisVector axes;
  std::vector<TensorView> tensors = Good(5);
  tensors[0].data = nullptr;
  EXPECT_THAT(std::string(What(reader.Read(tensors, &axes))),
              HasSubstr("'x' of op 'sample' has no"));
  for (size_t i : {0, 1, 2, 4}) {
    tensors = Good(5);
    tensors[i].data = memory + 1;
    EXPECT_THAT(std::string(What(reader.Read(tensors, &axes))), HasSubstr("not aligned")) << i;
  }
  tensors = Good(0);  // nothing is read or written
  for (TensorView& tensor : tensors) tensor.data = nullptr;
  EXPECT_TRUE(reader.Read(tensors, &axes).ok());
}

// AxesFromTensors is the contract; whatever is changed in good tensors, both say the same.
TEST(TensorReader, AgreesWithAxesFromTensors) {
  std::mt19937_64 random(7);
  const auto pick = [&](size_t n) { return random() % n; };
  OpSpec plain = Spec();  // no tensor that may be absent or of any type
  plain.inputs[1].any_dtype = false;
  plain.inputs[1].dtype = DType::kI32;
  plain.inputs[2].optional = false;
  for (const OpSpec& op : {Spec(), plain}) {
    const TensorReader reader(op);
    int good = 0;
    for (int i = 0; i < 20000; ++i) {
      std::vector<TensorView> tensors = Good(static_cast<int64_t>(pick(4)));
      for (size_t change = pick(3); change > 0; --change) {
        TensorView& tensor = tensors[pick(tensors.size())];
        switch (pick(5)) {
          case 0:
            tensor.shape[pick(3)] = static_cast<int64_t>(pick(5)) - 1;
            break;
          case 1:
            tensor.rank = static_cast<int>(pick(4));
            break;
          case 2:
            tensor.dtype = pick(2) ? DType::kF32 : DType::kBF16;
            break;
          case 3:
            if (&tensor == &tensors[2]) tensor.data = nullptr;
            break;
          default:
            if (pick(4) == 0) tensors.pop_back();
        }
        if (tensors.empty()) break;
      }
      AxisVector axes, expected;
      const absl::Status status = AxesFromTensors(op, tensors, &expected);
      const absl::Status read = reader.Read(tensors, &axes);
      if (status.ok() && op.inputs[2].optional == false && tensors[2].data == nullptr &&
          tensors[2].elements() != 0) {
        EXPECT_FALSE(read.ok());
        continue;
      }
      ASSERT_EQ(read, status);
      if (!status.ok()) continue;
      ++good;
      ASSERT_EQ(axes, expected);
    }
    EXPECT_GT(good, 5000);
  }
}

}  // namespace
}  // namespace kvr
