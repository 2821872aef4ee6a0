// SPDX-License-Identifier: Apache-2.0
//
// Random plans, the fast form against the plain one. Every plan of plan_test.cc is compared too
// (plan_builder.h).
#include "core/plan_code.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "core/strings.h"
#include "tests/core/plan_agreement.h"
#include "tests/core/plan_builder.h"
#include "tests/core/samples.h"

namespace kvr {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  size_t Pick(size_t n) { return random_() % n; }

  std::string Text(const std::vector<std::string>& names, int depth) {
    if (depth == 0 || Pick(4) == 0) {
      if (Pick(2) == 0) return names[Pick(names.size())];
      static const int64_t kEdges[] = {0, 1, 1, 2, 3, 4, 8, 32, 100, 1024, int64_t{1} << 33, kMax};
      return StrCat(kEdges[Pick(std::size(kEdges))]);
    }
    const auto a = [&] { return Text(names, depth - 1); };
    switch (Pick(16)) {
      case 0:
        return StrCat("(", a(), " + ", a(), ")");
      case 1:
        return StrCat("(", a(), " - ", a(), ")");
      case 2:
        return StrCat("(", a(), " * ", a(), ")");
      case 3:
      case 4:
        return StrCat("ceildiv(", a(), ", ", a(), ")");
      case 5:
        return StrCat("floordiv(", a(), ", ", a(), ")");
      case 6:
        return StrCat("mod(", a(), ", ", a(), ")");
      case 7:
        return StrCat("min(", a(), ", ", a(), ")");
      case 8:
        return StrCat("max(", a(), ", ", a(), ")");
      case 9:
      case 10:
      case 11:
        return StrCat("if(", a(), ", ", a(), ", ", a(), ")");
      case 12: {
        static const char* const kCompare[] = {"==", "!=", "<", "<=", ">", ">="};
        return StrCat("(", a(), " ", kCompare[Pick(6)], " ", a(), ")");
      }
      case 13:
        return StrCat("(", a(), Pick(2) ? " and " : " or ", a(), ")");
      case 14:
        return StrCat("pow2ceil(", a(), ")");
      default:
        return StrCat(Pick(2) ? "(-" : "(not ", a(), ")");
    }
  }

  int64_t Extent() {
    static const int64_t kEdges[] = {0, 1, 2, 7, 16, 64, 65535, 65536, 1000003, int64_t{1} << 40};
    return Pick(3) ? static_cast<int64_t>(1 + Pick(40)) : kEdges[Pick(std::size(kEdges))];
  }

 private:
  std::mt19937_64 random_;
};

PlanBuilder RandomPlan(Maker* maker) {
  PlanBuilder builder(SampleOp(), {{"WARPS", {4, 8}, 4, Scope::kCompile, ""},
                                   {"SPLITS", {0, 1, 2}, 2, Scope::kLaunch, ""}});
  std::vector<std::string> names = {"WARPS", "SPLITS", "sms", "smem_per_block"};
  for (const AxisSpec& axis : builder.op.axes) names.push_back(axis.name);
  for (size_t i = maker->Pick(5); i > 0; --i) {
    const std::string name = StrCat("let_", i);
    builder.Let(name, maker->Text(names, 3));
    names.push_back(name);
  }
  if (maker->Pick(3) == 0) builder.Constraint(maker->Text(names, 3));
  for (size_t i = maker->Pick(3); i > 0; --i) {
    builder.Region(StrCat("region_", i), i == 1 ? DType::kF32 : DType::kU8, maker->Text(names, 2));
  }
  for (size_t i = maker->Pick(4); i > 0; --i) {
    KernelSpec& kernel = builder.Kernel(
        StrCat("kernel_", i), {maker->Text(names, 2), maker->Pick(2) ? maker->Text(names, 1) : "1"},
        {maker->Pick(2) ? "32 * WARPS" : maker->Text(names, 1)},
        maker->Pick(2) ? "0" : maker->Text(names, 2));
    if (maker->Pick(3) == 0) kernel.when = builder.Parse(maker->Text(names, 2));
    if (maker->Pick(4) == 0) kernel.cluster[0] = builder.Parse(maker->Text(names, 1));
    for (size_t a = maker->Pick(3); a > 0; --a) {
      kernel.args.push_back(PlanBuilder::ValueArg(maker->Pick(2) ? DType::kI32 : DType::kI64,
                                                  builder.Parse(maker->Text(names, 2))));
    }
  }
  if (maker->Pick(4) == 0) {
    builder.program.tensor_maps.push_back(
        {.name = "map",
         .tensor = 0,
         .dtype = DType::kBF16,
         .shape = {builder.Parse(maker->Text(names, 2)), builder.Parse("64")},
         .box = {builder.Parse(maker->Text(names, 1)), builder.Parse("32")},
         .swizzle = 64});
  }
  return builder;
}

TEST(PlanCode, AgreesWithEvaluateOnRandomPlans) {
  Maker maker(20261130);
  DeviceInfo device = RtxPro6000();
  int planned = 0, unfit = 0, failed = 0;
  for (int i = 0; i < 20000; ++i) {
    PlanBuilder builder = RandomPlan(&maker);
    device.max_cluster_size = maker.Pick(2) ? 1 : 8;
    const std::vector<int64_t> tunables = {maker.Pick(2) ? 4 : 8,
                                           static_cast<int64_t>(maker.Pick(3))};
    for (int shape = 0; shape < 3; ++shape) {
      AxisVector axes{};
      for (size_t a = 0; a < builder.op.axes.size(); ++a) {
        const AxisSpec& axis = builder.op.axes[a];
        axes[a] = axis.is_const ? axis.value : maker.Extent();
      }
      LaunchPlan plan;
      const absl::Status status = builder.program.Evaluate(axes, tunables, device, &plan);
      ExpectAgreement(builder.program, builder.op, tunables, axes, device, status, plan);
      (status.ok() ? planned : absl::IsFailedPrecondition(status) ? unfit : failed) += 1;
    }
    if (HasFailure()) {
      for (const auto& let : builder.program.lets) ADD_FAILURE() << let.value.text();
      break;
    }
  }
  // Of each kind enough to mean something.
  EXPECT_GT(planned, 5000);
  EXPECT_GT(unfit, 5000);
  EXPECT_GT(failed, 2000);
}

TEST(PlanCode, EvaluatesAnExpressionOnceAndConstantsNotAtAll) {
  PlanBuilder builder(SampleOp(), {{"WARPS", {4, 8}, 4, Scope::kCompile, ""}});
  builder.Let("threads", "32 * WARPS").Let("rows", "num_tokens * num_qo_heads");
  builder.Kernel("k", {"num_tokens * num_qo_heads"}, {"threads"}, "threads * 4");
  const PlanCode code(builder.program, builder.op, {4}, RtxPro6000());
  // multiply; kernel, extent, jump where it is empty, done; finish
  EXPECT_EQ(code.size(), 6u);
}

TEST(PlanCode, AProgramTooLargeIsLeftToEvaluate) {
  PlanBuilder builder(SampleOp(), {});
  for (int i = 0; i < 8; ++i) {
    std::string sum = "num_tokens";
    for (int k = 1; k < 80; ++k) StrAppend(&sum, " + num_tokens * ", 100 * i + k);
    builder.Let(StrCat("let_", i), sum);
  }
  LaunchPlan plan;
  EXPECT_TRUE(builder.Evaluate({}, {}, RtxPro6000(), &plan).ok());
}

}  // namespace
}  // namespace kvr
