// SPDX-License-Identifier: Apache-2.0
//
// The code of compiled plugins: called as the ABI says, and contained where it does not keep it.
#include "plugins/code.h"

#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "tests/plugins/plugin_fixture.h"

namespace kvr {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr AxisVector kAxes = {3, 5};

class Code : public PluginTest {
 protected:
  static std::vector<int64_t> Values(const Variant& variant, int64_t step) {
    std::vector<int64_t> values(2);
    const DeviceInfo device = {.target = "sm_90a", .sms = 7};
    const absl::Status status =
        variant.code->Values({kAxes.data(), 2}, {step}, device, absl::MakeSpan(values));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }
};

TEST_F(Code, OperationGeneratesAndRefers) {
  const Scan scan = ScanDemo();
  const Operation& op = *scan.operations[0];
  Inputs inputs(op.spec(), kAxes);
  ASSERT_TRUE(op.Generate(kAxes, 10, inputs.views).ok());
  EXPECT_EQ(static_cast<float*>(inputs.views[0].data)[4], 14.0f);
  const auto reference = op.Reference(kAxes, inputs.views, 2);
  ASSERT_TRUE(reference.ok()) << reference.status();
  ASSERT_EQ(reference->size(), 1u);
  EXPECT_EQ((*reference)[0].expected.size(), 15u);
  EXPECT_EQ((*reference)[0].expected[4], 28.0);
  EXPECT_EQ((*reference)[0].bound[14], 0.5);
  EXPECT_EQ(op.MinimumBytes(kAxes), 15 * 4 + 4 + 15 * 4);  // it does not say: all tensors
}

TEST_F(Code, PlanValuesReachTheExpressions) {
  const Scan scan = ScanDemo();
  const Variant& planned = *FindVariant(scan, "planned");
  EXPECT_THAT(Values(planned, 1), ElementsAre(3, 7));
  LaunchPlan plan;
  const DeviceInfo device = {.target = "sm_90a", .sms = 7};
  ASSERT_TRUE(planned.plan.Evaluate(kAxes, std::vector<int64_t>{1}, device, &plan).ok());
  ASSERT_EQ(plan.kernel_count, 1);
  EXPECT_EQ(plan.kernels[0].grid.x, 3u);
  EXPECT_EQ(plan.kernels[0].block.x, 7u);
  const absl::Status refused = planned.plan.Evaluate(kAxes, std::vector<int64_t>{2}, device, &plan);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(What(refused)),
      AllOf(HasSubstr("plugin 'kvr_test_demo'"),
            HasSubstr("the plan function of scale_rows/planned: STEP=2 does not fit sm_90a")));
  EXPECT_EQ(Fix(refused), "take STEP=1");
}

TEST_F(Code, LaunchFunctionIsOpenedLaunchedAndClosed) {
  const Scan scan = ScanDemo();
  const Variant& launched = *FindVariant(scan, "launched");
  ASSERT_TRUE(launched.code->Load().ok());
  auto function = launched.code->Open({.target = "host"}, {3});
  ASSERT_TRUE(function.ok()) << function.status();
  std::vector<float> x = {1, 2, 3, 4}, y(4), scratch(2);
  float factor = 1;
  const std::vector<TensorView> tensors = {{x.data(), DType::kF32, 2, {2, 2}},
                                           {&factor, DType::kF32, 0, {}},
                                           {y.data(), DType::kF32, 2, {2, 2}}};
  const int64_t axes[] = {2, 2};
  void* const workspace[] = {scratch.data()};
  int64_t bytes[] = {8};
  ASSERT_TRUE((*function)->Launch({axes, tensors, workspace, bytes, nullptr}).ok());
  EXPECT_THAT(y, ElementsAre(3, 6, 9, 12));
  bytes[0] = 4;
  EXPECT_THAT(
      std::string((*function)->Launch({axes, tensors, workspace, bytes, nullptr}).message()),
      HasSubstr("the launch function of scale_rows/launched: the workspace is not"));
}

TEST_F(Code, LaunchFunctionOutlivesTheScan) {
  std::unique_ptr<LaunchFunction> function;
  {
    const Scan scan = ScanDemo();
    auto opened = FindVariant(scan, "launched")->code->Open({.target = "host"}, {1});
    ASSERT_TRUE(opened.ok());
    function = *std::move(opened);
  }
  const int64_t axes[] = {0, 0};
  const std::vector<TensorView> tensors(3);
  EXPECT_FALSE(function->Launch({axes, tensors, {}, {}, nullptr}).ok());  // says so itself
}

TEST_F(Code, RebuiltLibraryAtTheSamePathLivesBesideTheOld) {
  const Scan old = ScanDemo();
  EXPECT_THAT(Values(*FindVariant(old, "planned"), 1), ElementsAre(3, 7));
  // As `cp` does: the same file is overwritten in place.
  const std::string rebuilt = ReadFile(FixturePlugin("kvr_test_rebuilt"));
  const int fd = open(Path("p/plugin.so").c_str(), O_WRONLY | O_TRUNC);
  ASSERT_EQ(write(fd, rebuilt.data(), rebuilt.size()), static_cast<ssize_t>(rebuilt.size()));
  close(fd);
  const Scan renewed = ScanAll({"p"});
  ASSERT_NE(FindVariant(renewed, "planned"), nullptr);
  EXPECT_THAT(Values(*FindVariant(renewed, "planned"), 1), ElementsAre(30, 7));
  EXPECT_THAT(Values(*FindVariant(old, "planned"), 1), ElementsAre(3, 7));
  EXPECT_NE(FindVariant(old, "planned")->fingerprint, FindVariant(renewed, "planned")->fingerprint);
  EXPECT_EQ(FindVariant(old, "sources")->fingerprint, FindVariant(renewed, "sources")->fingerprint);
}

TEST_F(Code, ChangedBeforeItsFirstUseIsToBeScannedAgain) {
  const Scan scan = ScanDemo();
  Copy("kvr_test_rebuilt", "p/plugin.so");
  const absl::Status status = FindVariant(scan, "planned")->code->Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("has changed since it was scanned"), HasSubstr("scan again")));
}

TEST_F(Code, LoadLeavesNoFilesBehindAndManyThreadsLoadOnce) {
  const std::filesystem::path temporary = dir_ / "tmp";
  std::filesystem::create_directory(temporary);
  setenv("TMPDIR", temporary.c_str(), 1);
  const Scan scan = ScanDemo();
  const Variant& planned = *FindVariant(scan, "planned");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_THAT(Values(planned, 1), ElementsAre(3, 7)); });
  }
  for (std::thread& thread : threads) thread.join();
  unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

TEST_F(Code, NowhereToCopyToIsSaidAndRemembered) {
  const Scan scan = ScanDemo();
  setenv("TMPDIR", "/proc/nothing", 1);
  const absl::Status status = FindVariant(scan, "planned")->code->Load();
  unsetenv("TMPDIR");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Fix(status)), HasSubstr("TMPDIR"));
  EXPECT_EQ(FindVariant(scan, "launched")->code->Load(), status);
}

TEST_F(Code, CheckThatRefusesIsAskedOnceAndNothingIsLoaded) {
  const std::string path = Copy("kvr_test_faulty", "p/x.so");
  int asked = 0;
  const Scan scan = ScanAll({"p"}, {.check_load = [&](const std::string& asked_for) {
                              EXPECT_EQ(asked_for, path);
                              ++asked;
                              return Error(absl::StatusCode::kFailedPrecondition, "no", "never");
                            }});
  EXPECT_EQ(asked, 0);
  setenv("KVR_TEST_FAULT", "abort", 1);
  EXPECT_EQ(What(FindVariant(scan, "planned")->code->Load()), "no");
  EXPECT_EQ(What(FindVariant(scan, "launched")->code->Load()), "no");
  unsetenv("KVR_TEST_FAULT");
  EXPECT_EQ(asked, 1);
}

TEST_F(Code, DirectoryExtendsACompiledVariantAndUsesItsFunction) {
  Copy("kvr_test_demo", "p/plugin.so");
  Write("p/twice/variant.toml", R"(schema = 1
op = "scale_rows"
name = "twice"
version = "1.0.0"
extends = { variant = "planned", version = "1" }
[tunables.MORE]
values = [1]
default = 1
scope = "launch"
[let]
twice = "2 * blocks"
[[kernel]]
name = "scale"
grid = ["twice"]
block = [32]
)");
  const Scan scan = ScanAll({"p"});
  for (const Rejection& r : scan.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
  const Variant* twice = FindVariant(scan, "twice");
  ASSERT_NE(twice, nullptr);
  LaunchPlan plan;
  const DeviceInfo device = {.target = "sm_90a", .sms = 7};
  ASSERT_TRUE(twice->plan.Evaluate(kAxes, std::vector<int64_t>{1, 1}, device, &plan).ok());
  EXPECT_EQ(plan.kernels[0].grid.x, 6u);
}

struct Fault {
  const char* name;
  const char* says;
};

class FaultyCode : public Code, public testing::WithParamInterface<Fault> {
 protected:
  void SetUp() override {
    Code::SetUp();
    setenv("KVR_TEST_FAULT", GetParam().name, 1);
    scan_ = ScanDemo("kvr_test_faulty");
  }
  void TearDown() override {
    scan_ = Scan();
    unsetenv("KVR_TEST_FAULT");
    Code::TearDown();
  }
  Scan scan_;
};

std::string TestName(const testing::TestParamInfo<Fault>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

class FaultyGenerator : public FaultyCode {};
TEST_P(FaultyGenerator, IsContainedAndNamed) {
  const Operation& op = *scan_.operations[0];
  Inputs inputs(op.spec(), kAxes);
  const absl::Status status = op.Generate(kAxes, 1, inputs.views);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(GetParam().says), HasSubstr("plugin.so")));
}
constexpr Fault kGenerators[] = {
    {"throw", "the generate function of operation scale_rows throws: no luck"},
    {"throw int", "throws: an exception of its own"},
    {"unknown code", "(code 77, which is none)"},
    {"unterminated", "xxxxxxxx"},
    {"binary", "?[31m?"},
    {"silent", "fails without saying why"},
    {"null plugin", "it is null"},
    {"entry throws", "throws from kvr_plugin_v1"},
    {"other abi", "it is of plugin ABI 9.1, and its section of 1.1"},
    {"small", "size 12 is too small, version 1.0 has 40"},
    {"no code", "no code for operation scale_rows"},
    {"other operation", "it has other"},
    {"half operation", "the reference function of operation scale_rows is null"}};
INSTANTIATE_TEST_SUITE_P(Plugin, FaultyGenerator, testing::ValuesIn(kGenerators), TestName);

class FaultyReference : public FaultyCode {};
TEST_P(FaultyReference, IsRefused) {
  const Operation& op = *scan_.operations[0];
  Inputs inputs(op.spec(), kAxes);
  const auto reference = op.Reference(kAxes, inputs.views, 1);
  EXPECT_THAT(std::string(reference.status().message()),
              AllOf(HasSubstr(GetParam().says), HasSubstr("output 'y'")));
}
constexpr Fault kReferences[] = {{"nan bound", "element 3 has the bound nan"},
                                 {"negative bound", "element 0 has the bound -1"},
                                 {"infinite bound", "element 0 has the bound inf"},
                                 {"nan expected", "element 1 is expected to be nan"},
                                 {"negative cosine", "cosine_limit is -0.5"},
                                 {"nan cosine", "cosine_limit is nan"}};
INSTANTIATE_TEST_SUITE_P(Plugin, FaultyReference, testing::ValuesIn(kReferences), TestName);

class FaultyVariant : public FaultyCode {};
TEST_P(FaultyVariant, IsContained) {
  const Operation& op = *scan_.operations[0];
  EXPECT_EQ(op.MinimumBytes(kAxes), 124);  // neither -5 nor an exception
  Inputs inputs(op.spec(), kAxes);
  EXPECT_EQ(op.Reference(kAxes, inputs.views, 1)->at(0).expected.size(), 15u);
  std::vector<int64_t> values(2);
  EXPECT_THAT(std::string(FindVariant(scan_, "planned")
                              ->code->Values({kAxes.data(), 2}, {1}, {}, absl::MakeSpan(values))
                              .message()),
              HasSubstr("the plan function of scale_rows/planned throws: std::bad_alloc"));
  const auto opened = FindVariant(scan_, "launched")->code->Open({}, {1});
  if (std::string(GetParam().name) == "throw") {
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr("the open function"));
    return;
  }
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(std::string((*opened)->Launch({}).message()), HasSubstr("throws: launch"));
}
constexpr Fault kVariants[] = {{"throw", ""}, {"moved arrays", ""}};
INSTANTIATE_TEST_SUITE_P(Plugin, FaultyVariant, testing::ValuesIn(kVariants), TestName);

TEST_F(Code, PluginOfTheFirstAbiIsServedAsEver) {
  const Scan scan = ScanDemo("kvr_test_abi_1_0");
  const Operation& op = *scan.operations[0];
  Inputs inputs(op.spec(), kAxes);
  ASSERT_TRUE(op.Generate(kAxes, 1, inputs.views).ok());
  const auto exact = op.Reference(kAxes, inputs.views, 1);
  ASSERT_TRUE(exact.ok()) << exact.status();
  const auto measures = op.Quality(kAxes, inputs.views, {}, *exact);
  ASSERT_TRUE(measures.ok()) << measures.status();
  EXPECT_TRUE(measures->empty());
  EXPECT_THAT(Values(*FindVariant(scan, "planned"), 1), ElementsAre(3, 7));
  EXPECT_TRUE(FindVariant(scan, "launched")->code->Open({.target = "host"}, {3}).ok());
  EXPECT_EQ(FindVariant(scan, "planned")
                ->code->Reference(kAxes, std::vector<int64_t>{1}, inputs.views, 1)
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

class Approximate : public Code {
 protected:
  void SetUp() override {
    Code::SetUp();
    Copy("kvr_test_approximate", "p/plugin.so");
    scan_ = ScanAll({"p"});
    for (const Rejection& r : scan_.rejections) ADD_FAILURE() << r.path << "\n" << r.status;
    ASSERT_EQ(scan_.variants.size(), 4u);
    inputs_ = std::make_unique<Inputs>(op().spec(), kAxes);
    ASSERT_TRUE(op().Generate(kAxes, 3, inputs_->views).ok());
  }
  void TearDown() override {
    scan_ = Scan();
    Code::TearDown();
  }
  const Operation& op() const { return *scan_.operations[0]; }
  Scan scan_;
  std::unique_ptr<Inputs> inputs_;
};

TEST_F(Approximate, ReferenceIsOfTheConfigAndInheritedWithTheLibrary) {
  const auto exact = op().Reference(kAxes, inputs_->views, 1);
  ASSERT_TRUE(exact.ok());
  EXPECT_FALSE(FindVariant(scan_, "exact")->has_reference_function);
  for (const char* name : {"coarse", "fine"}) {
    const Variant& variant = *FindVariant(scan_, name);
    EXPECT_TRUE(variant.has_reference_function);
    EXPECT_EQ(variant.semantics, Semantics::kApproximate);
    for (const int64_t grains : {1, 8}) {
      const std::vector<int64_t> values = {grains, 0, 32};
      const auto own = variant.code->Reference(kAxes, values, inputs_->views, 2);
      ASSERT_TRUE(own.ok()) << own.status();
      ASSERT_EQ(own->size(), 1u);
      for (size_t i = 0; i < 15; ++i) {
        EXPECT_NEAR((*own)[0].expected[i], (*exact)[0].expected[i], 1.0 / grains);
        EXPECT_EQ((*own)[0].expected[i] * grains / 2,
                  std::round((*own)[0].expected[i] * grains / 2));
      }
    }
    setenv("KVR_TEST_FAULT", "own reference refuses", 1);
    const auto refused =
        variant.code->Reference(kAxes, std::vector<int64_t>{1, 0, 32}, inputs_->views, 1);
    unsetenv("KVR_TEST_FAULT");
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("the reference function of scale_rows/coarse: it does not know"),
                      HasSubstr("plugin 'kvr_test_approximate'")));
    // Values of a config, in the order of all tunables, of which the function sees a part.
    const auto few = variant.code->Reference(kAxes, std::vector<int64_t>{1}, inputs_->views, 1);
    EXPECT_THAT(std::string(few.status().message()), HasSubstr("1 values for 3 tunables"));
  }
}

TEST_F(Approximate, QualityIsMeasuredFromWhatAKernelWrote) {
  const auto exact = op().Reference(kAxes, inputs_->views, 1);
  ASSERT_TRUE(exact.ok());
  std::vector<float> y(15);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>((*exact)[0].expected[i]);
  const std::vector<TensorView> outputs = {{y.data(), DType::kF32, 2, {3, 5}}};
  const auto same = op().Quality(kAxes, inputs_->views, outputs, *exact);
  ASSERT_TRUE(same.ok()) << same.status();
  ASSERT_EQ(same->size(), 2u);
  EXPECT_EQ((*same)[0].name, "rows_changed");
  EXPECT_EQ((*same)[0].value, 0.0);
  y[7] += 1;
  EXPECT_EQ(op().Quality(kAxes, inputs_->views, outputs, *exact)->at(0).value, 1.0 / 3);
}

TEST_F(Code, FunctionsThatTheManifestAsksForMustNotBeNull) {
  setenv("KVR_TEST_FAULT", "null functions", 1);
  const Scan scan = ScanDemo("kvr_test_faulty");
  EXPECT_THAT(std::string(FindVariant(scan, "planned")->code->Load().message()),
              HasSubstr("the plan function of scale_rows/planned is null"));
  EXPECT_THAT(std::string(FindVariant(scan, "launched")->code->Open({}, {1}).status().message()),
              HasSubstr("the launch function of scale_rows/launched is null"));
  setenv("KVR_TEST_FAULT", "no code", 1);
  const Scan other = ScanDemo("kvr_test_faulty");
  EXPECT_THAT(std::string(FindVariant(other, "planned")->code->Load().message()),
              HasSubstr("has no code for variant scale_rows/planned"));
  unsetenv("KVR_TEST_FAULT");
}

}  // namespace
}  // namespace kvr
