// SPDX-License-Identifier: Apache-2.0
//
// Every variant of the fp8 MLA ops on what their generator does not draw: absent tensors, scales of
// any size, pages elsewhere. KVR_TEST_DEVICE says where.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "api/runtime.h"
#include "core/dtype.h"
#include "core/status.h"
#include "tests/variants/problem.h"
#include "variants/common/mla_fp8/mla_fp8.h"

namespace kvr::mla_fp8 {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Outputs as bytes, in the op's order.
using Outputs = std::vector<std::vector<char>>;

struct Subject {
  std::string op;
  Layout layout;
  std::string variant;
};

// Of what the device can run.
std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  auto runtime = Runtime::Open({.device = KVR_TEST_DEVICE});
  if (!runtime.ok()) return subjects;
  for (const auto& [op, layout] :
       {std::pair{"mla_sparse_decode_fp8", kV4}, std::pair{"mla_sparse_decode_fp8_v32", kV32}}) {
    for (const VariantPtr& variant : (*(*runtime)->catalog().FindOp(op))->variants) {
      if (variant->Supports((*runtime)->device().info().target)) {
        subjects.push_back({op, layout, variant->name});
      }
    }
  }
  return subjects;
}

class MlaFp8Launch : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    RuntimeOptions options{.device = KVR_TEST_DEVICE};
    options.forced = {.op = GetParam().op, .variant = GetParam().variant};
    auto opened = Runtime::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    runtime_ = *std::move(opened);
    stream_ = runtime_->device().CreateStream().value();
  }
  void TearDown() override { runtime_->device().DestroyStream(stream_); }

  const Layout& layout() const { return GetParam().layout; }
  const Operation& op() const { return *(*runtime_->catalog().FindOp(GetParam().op))->operation; }
  bool is_v4() const { return layout().scales_follow; }

  // Tokens, heads and lists that no tile divides; more heads than the 16 that `wide` is not for.
  Problem Draw(uint64_t seed, int64_t extra_topk = 0) const {
    Problem problem(op(), {{"num_tokens", 3},
                           {"num_qo_heads", 21},
                           {"topk", 43},
                           {"num_pages", 8},
                           {"page_size", 16},
                           {"extra_topk", extra_topk},
                           {"extra_num_pages", 5},
                           {"extra_page_size", 4}});
    problem.Generate(seed);
    return problem;
  }

  absl::StatusOr<Outputs> TryLaunch(const Problem& problem) {
    Device& device = runtime_->device();
    KVR_ASSIGN_OR_RETURN(LoadReport report,
                         runtime_->Load(GetParam().op, {NamedAxes(op().spec(), problem.axes)}));
    KVR_RETURN_IF_ERROR(report.items.front().status);
    KVR_RETURN_IF_ERROR(runtime_->PrepareStream(stream_));
    std::vector<TensorView> tensors = TensorShapes(op().spec(), problem.axes);
    std::vector<void*> memory;
    Outputs outputs;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool input = i < problem.inputs.size();
      if (input) tensors[i].data = problem.inputs[i].data;
      if (tensors[i].rank == 0 || (input && tensors[i].data == nullptr)) continue;
      KVR_ASSIGN_OR_RETURN(void* const data,
                           device.Allocate(std::max<int64_t>(16, tensors[i].bytes())));
      memory.push_back(data);
      if (input) {
        KVR_RETURN_IF_ERROR(
            device.CopyToDevice(data, tensors[i].data, tensors[i].bytes(), stream_));
      } else {
        KVR_RETURN_IF_ERROR(device.MemsetAsync(data, 0xff, tensors[i].bytes(), stream_));
        outputs.emplace_back(tensors[i].bytes());
      }
      tensors[i].data = data;
    }
    KVR_RETURN_IF_ERROR(runtime_->Launch(GetParam().op, tensors, stream_));
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorView& tensor = tensors[problem.inputs.size() + o];
      KVR_RETURN_IF_ERROR(
          device.CopyToHost(outputs[o].data(), tensor.data, tensor.bytes(), stream_));
    }
    KVR_RETURN_IF_ERROR(device.Synchronize(stream_));
    for (void* data : memory) device.Free(data);
    return outputs;
  }

  Outputs Launch(const Problem& problem) {
    absl::StatusOr<Outputs> outputs = TryLaunch(problem);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : Outputs(2);
  }

  // Every element within the bound of the reference for the same bytes.
  void ExpectRight(const Problem& problem) {
    const Outputs outputs = Launch(problem);
    const std::vector<ReferenceOutput> references = problem.Reference();
    for (int o : {kOutput, kLse}) {
      ASSERT_FALSE(outputs[o].empty());
      const DType dtype = op().spec().outputs[o].dtype;
      for (size_t i = 0; i < references[o].expected.size(); ++i) {
        const double value = LoadAsDouble(outputs[o].data(), dtype, i);
        const double expected = references[o].expected[i];
        const bool right = std::isinf(expected)
                               ? value == expected
                               : std::abs(value - expected) <= references[o].bound[i];
        ASSERT_TRUE(right) << op().spec().outputs[o].name << "[" << i << "] is " << value
                           << ", not " << expected << " to " << references[o].bound[i];
      }
    }
  }

  std::unique_ptr<Runtime> runtime_;
  Stream stream_;
};

TEST_P(MlaFp8Launch, TakesAbsentTensors) {
  for (uint64_t seed : {2, 4}) {
    Problem problem = Draw(seed);
    for (int input : {kTopkLength, kSink, kExtraKvCache, kExtraIndices, kExtraTopkLength}) {
      problem.inputs[input].data = nullptr;
    }
    for (int axis : {kExtraPageSize, kExtraNumPages, kExtraTopk}) problem.axes[axis] = 0;
    ExpectRight(problem);
  }
}

TEST_P(MlaFp8Launch, TakesASecondCacheWithoutLengths) {
  Problem problem = Draw(2, 21);
  for (int input : {kTopkLength, kExtraTopkLength}) problem.inputs[input].data = nullptr;
  ExpectRight(problem);
}

TEST_P(MlaFp8Launch, TakesWhatBothSeedsDrawWithASecondCache) {
  for (uint64_t seed : {1, 2, 3, 5}) ExpectRight(Draw(seed, 21));
}

TEST_P(MlaFp8Launch, ReadsTheSecondListAloneWhereTheFirstIsEmpty) {
  Problem problem = Draw(2, 21);
  for (int32_t& length : problem.Input<int32_t>(kTopkLength)) length = 0;
  for (int32_t& slot : problem.Input<int32_t>(kSparseIndices)) slot = 1 << 30;
  ExpectRight(problem);
}

TEST_P(MlaFp8Launch, AnInfiniteSinkTakesAllOfTheOutputAndNothingOfLse) {
  Problem problem = Draw(2);
  problem.Input<float>(kSink)[1] = static_cast<float>(kInfinity);
  ExpectRight(problem);
}

// Dims with a large scale have no part in the scores, which would else be one-hot.
TEST_P(MlaFp8Launch, ScalesMayBeOfAnySize) {
  if (GetParam().variant == "wide" && !is_v4()) {
    GTEST_SKIP() << "it asks for scales of a row near each other (the op's README)";
  }
  constexpr int kExponents[] = {60, -60, 9, -30, 20, 0, -9};
  Problem problem = Draw(2);
  uint8_t* const cache = problem.Input<uint8_t>(kKvCache).data();
  for (int64_t slot = 1; slot < 128; ++slot) {
    const Row<uint8_t> row = RowOf(layout(), cache, 16, slot);
    for (int group = 0; group < layout().groups(); ++group) {
      const int exponent = kExponents[group] + static_cast<int>(slot % 3);
      const float scale = std::ldexp(1.25f, exponent);
      if (row.scales[group] == 0xff) continue;  // of a row that nobody may read
      if (is_v4()) {
        row.scales[group] = static_cast<uint8_t>(127 + exponent);
      } else {
        std::memcpy(row.scales + group * sizeof(float), &scale, sizeof(float));
      }
    }
  }
  auto q = problem.Input<uint16_t>(kQ);
  for (size_t i = 0; i < q.size(); ++i) {
    const int dim = static_cast<int>(i % layout().key_dims());
    if (dim < layout().codes && kExponents[dim / layout().group] > -9) q[i] = 0;
  }
  ExpectRight(problem);
}

TEST_P(MlaFp8Launch, EveryCodeHasItsValue) {
  Problem problem = Draw(2);
  for (int64_t slot = 1; slot < 128; ++slot) {
    const Row<uint8_t> row = RowOf(layout(), problem.Input<uint8_t>(kKvCache).data(), 16, slot);
    for (int dim = 0; dim < layout().codes; ++dim) {
      const int code = (dim + 7 * static_cast<int>(slot)) % 256;
      row.codes[dim] = static_cast<uint8_t>(code % 128 == 127 ? 0x7e : code);
    }
  }
  // One entry: the output is the row, each value within 2^-7 of itself.
  for (int32_t& length : problem.Input<int32_t>(kTopkLength)) length = 1;
  for (float& sink : problem.Input<float>(kSink)) sink = static_cast<float>(-kInfinity);
  ExpectRight(problem);
}

TEST_P(MlaFp8Launch, WhereAPageLiesDoesNotMatter) {
  Problem problem = Draw(3);
  const Outputs before = Launch(problem);
  constexpr int kPlace[] = {5, 2, 7, 0, 3, 6, 1, 4};  // of each of the 8 pages
  const size_t page_bytes = 16 * layout().token_bytes;
  uint8_t* const cache = problem.Input<uint8_t>(kKvCache).data();
  const std::vector<uint8_t> old(cache, cache + 8 * page_bytes);
  for (int page = 0; page < 8; ++page) {
    std::copy_n(old.data() + page * page_bytes, page_bytes, cache + kPlace[page] * page_bytes);
  }
  for (int32_t& slot : problem.Input<int32_t>(kSparseIndices)) {
    if (slot >= 0 && slot < 128) slot = kPlace[slot / 16] * 16 + slot % 16;
  }
  EXPECT_EQ(Launch(problem), before);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MlaFp8Launch);
INSTANTIATE_TEST_SUITE_P(, MlaFp8Launch, ::testing::ValuesIn(Subjects()), [](const auto& subject) {
  return subject.param.op + "__" + subject.param.variant;
});

}  // namespace
}  // namespace kvr::mla_fp8
