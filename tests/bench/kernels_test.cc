// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "bench/kernels/active.h"
#include "bench/kernels/entrants.h"
#include "bench/kernels/result.h"
#include "bench/kernels/suite.h"
#include "core/install_layout.h"
#include "core/status.h"
#include "plugins/scan.h"
#include "tuner/worker/ring.h"

namespace kvr::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Everything that a machine with the benchmark has.
const Catalog& Everything() {
  static const auto* const catalog = [] {
    const std::string roots[] = {InstallPath("lib/kvr/plugins"), InstallPath("lib/kvr/rooflines")};
    Scan scan = ScanPlugins(roots);
    auto created = Catalog::Create(std::move(scan.operations));
    EXPECT_TRUE(created.ok()) << created.status();
    auto* all = new Catalog(*std::move(created));
    for (VariantPtr& variant : scan.variants) EXPECT_TRUE(all->Admit(std::move(variant)).ok());
    return all;
  }();
  return *catalog;
}

const Catalog::Op& OpNamed(const std::string& name) {
  const absl::StatusOr<const Catalog::Op*> op = Everything().FindOp(name);
  EXPECT_TRUE(op.ok()) << op.status();
  return **op;
}

Axes AllAxes(const std::string& op, const Axes& given) {
  const OpSpec& spec = OpNamed(op).spec();
  const absl::StatusOr<AxisVector> axes = ResolveAxes(spec, given);
  EXPECT_TRUE(axes.ok()) << axes.status();
  return axes.ok() ? NamedAxes(spec, *axes) : Axes();
}

TEST(Suite, ShapesAreOfTheirOperationAndDistinct) {
  for (const std::string& name : SuiteOps()) {
    for (const bool quick : {false, true}) {
      const absl::StatusOr<Suite> suite = SuiteOf(name, quick);
      ASSERT_TRUE(suite.ok()) << suite.status();
      std::set<Axes> seen;
      for (const KernelShape& shape : suite->shapes) {
        EXPECT_TRUE(seen.insert(AllAxes(name, shape.axes)).second) << AxesText(shape.axes);
      }
      EXPECT_GE(seen.size(), 2u);
    }
  }
}

TEST(Suite, HasTheShapesThatGoalsAreStatedFor) {
  const absl::StatusOr<Suite> decode = SuiteOf("mla_sparse_decode_fp8", false);
  ASSERT_TRUE(decode.ok());
  std::set<std::vector<int64_t>> shapes;
  for (const KernelShape& shape : decode->shapes) {
    shapes.insert(
        {shape.axes.at("topk"), shape.axes.at("num_tokens"), shape.axes.at("num_qo_heads")});
  }
  EXPECT_THAT(shapes, SizeIs(2 * (7 + 4)));
  EXPECT_EQ(shapes.count({512, 96, 16}), 1u);
  EXPECT_EQ(shapes.count({2048, 128, 64}), 1u);

  const absl::StatusOr<Suite> moe = SuiteOf("moe_decode", false);
  ASSERT_TRUE(moe.ok());
  const absl::StatusOr<Suite> model = Restricted(*moe, {{"correlation", 0}}, "qwen3-30b-a3b");
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<int64_t> tokens;
  for (const KernelShape& shape : model->shapes) tokens.push_back(shape.axes.at("num_tokens"));
  EXPECT_THAT(tokens, ElementsAre(1, 8, 16, 32, 64));
  for (const KernelShape& shape : moe->shapes) {
    const bool whole = shape.model == "qwen3-30b-a3b" || shape.model == "qwen3-235b-a22b";
    EXPECT_EQ(shape.scaled.empty(), whole) << shape.model;
  }
}

// An H200's L2 cache, and two input sets: what rotates is then as much as makes launches cold, and
// lies beside the roofline kernel's on the device, and once on the host.
TEST(Suite, EveryShapeRotatesColdAndFits) {
  constexpr int64_t kL2 = int64_t{60} << 20, kSets = 2;
  constexpr int64_t kDevice = int64_t{60} << 30, kHost = int64_t{40} << 30;
  struct Need {
    RingSize ring;
    int64_t set = 0;
  };
  const auto need = [&](const std::string& name, const Axes& given, int64_t sets) {
    const Operation& op = *OpNamed(name).operation;
    const absl::StatusOr<AxisVector> axes = ResolveAxes(op.spec(), given);
    EXPECT_TRUE(axes.ok()) << axes.status();
    Need found;
    for (const TensorView& tensor : TensorShapes(op.spec(), *axes)) found.set += tensor.bytes();
    found.ring = SizeRing(kL2, op.MinimumBytes(*axes), found.set, sets);
    return found;
  };
  for (const std::string& name : SuiteOps()) {
    const absl::StatusOr<Suite> suite = SuiteOf(name, false);
    ASSERT_TRUE(suite.ok()) << suite.status();
    for (const KernelShape& shape : suite->shapes) {
      ASSERT_TRUE(OpNamed(name).operation->Load().ok());
      ASSERT_TRUE(OpNamed("roofline_stream").operation->Load().ok());
      const Need own = need(name, shape.axes, kSets);
      EXPECT_GE(own.ring.sets, own.ring.cold) << name << " " << AxesText(shape.axes);
      Need roofline;
      if (FindMoe(name) != nullptr) {
        const auto experts = shape.axes.find("num_local_experts");
        const int64_t most =
            experts != shape.axes.end() ? experts->second : shape.axes.at("num_experts");
        const absl::StatusOr<Axes> stream = StreamAxes(name, AllAxes(name, shape.axes), most);
        ASSERT_TRUE(stream.ok()) << stream.status();
        roofline = need("roofline_stream", *stream, 1);
        EXPECT_GE(roofline.ring.sets, roofline.ring.cold) << name << " " << AxesText(shape.axes);
      }
      EXPECT_LE((own.ring.sets + 1) * own.set + (roofline.ring.sets + 1) * roofline.set, kDevice)
          << name << " " << AxesText(shape.axes);
      EXPECT_LE(kSets * own.set + roofline.set, kHost) << name << " " << AxesText(shape.axes);
    }
  }
}

TEST(Suite, SaysWhichOperationsItKnowsAndThatNothingIsLeft) {
  const absl::Status unknown = SuiteOf("null", false).status();
  EXPECT_THAT(Fix(unknown), HasSubstr("moe_decode"));
  const absl::StatusOr<Suite> decode = SuiteOf("mla_sparse_decode", false);
  EXPECT_FALSE(Restricted(*decode, {{"num_tokens", 3}}, "").ok());
  EXPECT_FALSE(Restricted(*decode, {}, "qwen3-30b-a3b").ok());
}

TEST(Suite, RooflinesReadWhatTheOperationsRead) {
  for (const auto& [op, bytes] : {std::pair{"mla_sparse_decode", 1152},
                                  {"mla_sparse_decode_fp8", 584},
                                  {"mla_sparse_decode_fp8_v32", 656}}) {
    const Axes axes = AllAxes(op, {{"num_tokens", 3}, {"topk", 37}, {"num_pages", 1024}});
    const absl::StatusOr<Axes> gather = GatherAxes(op, axes);
    ASSERT_TRUE(gather.ok()) << gather.status();
    EXPECT_EQ(gather->at("token_bytes"), bytes);
    EXPECT_EQ(gather->at("groups"), 10);
    AllAxes("roofline_gather", *gather);
  }
  const Axes axes = AllAxes("moe_decode", {{"hidden", 2048}, {"inner", 768}, {"gate_up", 1536}});
  const absl::StatusOr<Axes> stream = StreamAxes("moe_decode", axes, 52);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto bytes = [](const Axes& of) {
    const Axes all = AllAxes("roofline_stream", of);
    return all.at("num_blocks") * all.at("block_chunks") * all.at("chunk_words") * 4;
  };
  EXPECT_EQ(bytes(*stream), 52 * 9437184);
  const absl::StatusOr<Suite> fp8 = SuiteOf("moe_decode_fp8", false);
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  const absl::StatusOr<Axes> one = StreamAxes("moe_decode_fp8", fp8->shapes.front().axes, 1);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(bytes(*one), 3 * 7168 * 2048);
  EXPECT_FALSE(StreamAxes("null", axes, 1).ok());
}

TEST(Active, CountsDifferentExpertsAndNoPadding) {
  EXPECT_EQ(DistinctExperts({}), 0);
  const double ids[] = {3, 1, -1, 3, 0, -1};
  EXPECT_EQ(DistinctExperts(ids), 3);
}

// The size of an expert does not enter the routing: what is counted with small ones is what the
// input set of the large ones activates.
TEST(Active, IsThatOfTheInputSetItself) {
  const Operation& op = *OpNamed("moe_decode").operation;
  for (const int64_t scoring : {0, 1, 2}) {
    const Axes axes = AllAxes("moe_decode", {{"num_tokens", 5},
                                             {"num_experts", 32},
                                             {"hidden", 64},
                                             {"inner", 24},
                                             {"gate_up", 48},
                                             {"scoring", scoring},
                                             {"n_group", 4},
                                             {"topk_group", 2},
                                             {"correlation", 300}});
    for (uint64_t seed = 8; seed < 11; ++seed) {
      const absl::StatusOr<AxisVector> resolved = ResolveAxes(op.spec(), [&] {
        Axes given = axes;
        given.erase("one");
        return given;
      }());
      ASSERT_TRUE(resolved.ok()) << resolved.status();
      std::vector<TensorView> inputs = TensorShapes(op.spec(), *resolved);
      inputs.resize(op.spec().inputs.size());
      std::vector<std::vector<char>> memory;
      for (TensorView& input : inputs) {
        memory.emplace_back(input.bytes() + 8);
        input.data = memory.back().data();
      }
      ASSERT_TRUE(op.Generate(*resolved, seed, inputs).ok());
      const auto outputs = op.Reference(*resolved, inputs, 1);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const absl::StatusOr<std::optional<int64_t>> counted =
          ActiveExperts(op, axes, seed, /*candidate=*/nullptr);
      ASSERT_TRUE(counted.ok()) << counted.status();
      EXPECT_EQ(*counted, DistinctExperts((*outputs)[1].expected)) << scoring << " " << seed;
    }
  }
}

TEST(Active, ExpertsOfOtherRanksAreNotCounted) {
  const Operation& op = *OpNamed("moe_decode_fp8").operation;
  const auto count = [&](int64_t offset, int64_t local) {
    const Axes axes =
        AllAxes("moe_decode_fp8", {{"local_expert_offset", offset}, {"num_local_experts", local}});
    const absl::StatusOr<std::optional<int64_t>> active = ActiveExperts(op, axes, 4, nullptr);
    EXPECT_TRUE(active.ok()) << active.status();
    return active.ok() ? active->value_or(-1) : -1;
  };
  EXPECT_GT(count(0, 16), 0);
  EXPECT_EQ(count(0, 16) + count(16, 16), count(0, 32));
  EXPECT_EQ(count(32, 32), 0);
}

TEST(Active, AnApproximateVariantActivatesWhatItsOwnReferenceChooses) {
  const Operation& op = *OpNamed("moe_decode").operation;
  const absl::StatusOr<VariantPtr> oea = Everything().Find("moe_decode", "oea");
  ASSERT_TRUE(oea.ok()) << oea.status();
  const Axes axes = AllAxes("moe_decode", {{"num_tokens", 16}, {"num_experts", 128}, {"top_k", 8}});
  const auto count = [&](const Candidate* candidate) {
    const absl::StatusOr<std::optional<int64_t>> active = ActiveExperts(op, axes, 4, candidate);
    EXPECT_TRUE(active.ok()) << active.status();
    return active.ok() ? active->value_or(-1) : -1;
  };
  Candidate few{*oea, DefaultConfig((*oea)->tunables)}, all = few;
  few.config["K0"] = 3;
  all.config["K0"] = 8;
  EXPECT_LT(count(&few), count(nullptr));
  EXPECT_EQ(count(&all), count(nullptr));
}

TEST(Active, ABatchWithPaddingIsNotOfItsShape) {
  const Operation& op = *OpNamed("moe_decode").operation;
  const Axes axes = AllAxes("moe_decode", {{"num_tokens", 4}});
  int padded = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const absl::StatusOr<std::optional<int64_t>> counted = ActiveExperts(op, axes, seed, nullptr);
    ASSERT_TRUE(counted.ok()) << counted.status();
    padded += counted->has_value() ? 0 : 1;
  }
  EXPECT_EQ(padded, 2);
}

TEST(Active, TypicalSeedsAllActivateTheMedian) {
  const auto count = [](uint64_t seed) -> absl::StatusOr<std::optional<int64_t>> {
    if (seed % 5 == 0) return std::nullopt;
    return static_cast<int64_t>(40 + seed % 3);
  };
  const absl::StatusOr<TypicalSeeds> typical = FindTypicalSeeds(100, 3, 9, count);
  ASSERT_TRUE(typical.ok()) << typical.status();
  EXPECT_EQ(typical->active, 41);
  EXPECT_THAT(typical->seeds, ElementsAre(103, 106, 109));
  const auto unlike = [](uint64_t seed) -> absl::StatusOr<std::optional<int64_t>> {
    return static_cast<int64_t>(seed);
  };
  EXPECT_FALSE(FindTypicalSeeds(0, 2, 9, unlike).ok());
}

TEST(Entrants, AreTheExactVariantsAndWhatIsOptedIn) {
  const Catalog::Op& op = OpNamed("mla_sparse_decode");
  DeviceInfo device;
  device.model = "nvidia-h200";
  EntrantOptions options;
  options.variants = {"baseline", "w8"};
  options.race = true;
  const absl::StatusOr<EntrantList> list = EntrantList::Create(Everything(), op, device, options);
  ASSERT_TRUE(list.ok()) << list.status();
  const absl::StatusOr<EntrantList::AtShape> at = list->At(AllAxes("mla_sparse_decode", {}));
  ASSERT_TRUE(at.ok()) << at.status();
  ASSERT_THAT(at->entrants, SizeIs(2));
  EXPECT_EQ(at->selected, -1);
  EXPECT_GT(at->entrants[0].configs.size(), 8u);
  EXPECT_EQ(at->entrants[1].configs.front().variant->name, "w8");

  options.approximate = {"w8"};
  EXPECT_FALSE(EntrantList::Create(Everything(), op, device, options).ok());
}

VariantPtr VariantNamed(const std::string& name, Semantics semantics = Semantics::kExact) {
  auto variant = std::make_shared<Variant>();
  variant->name = name;
  variant->semantics = semantics;
  return variant;
}

ShapeRecord DecodeRecord(int64_t tokens) {
  ShapeRecord record;
  record.axes = {{"topk", 512}, {"num_tokens", tokens}, {"num_qo_heads", 16}, {"num_pages", 256}};
  record.seeds = {2, 4};
  record.entrants = {{{}, "tune"}, {{}, "tune"}};
  record.selected = 1;
  record.roofline = {0, 0};
  ShapeResult& result = record.result;
  result.entrants = {{{VariantNamed("baseline"), {{"BLOCK_H", 16}}}, {10, 10, 10}, {}},
                     {{VariantNamed("fast"), {}}, {5, 5.2, 5.1}, {}}};
  result.twice = 1;
  result.again = {{VariantNamed("fast"), {}}, {5.1, 5.151, 5.2}, {}};
  result.rooflines = {{{VariantNamed("rows"), {{"WARPS", 1}}}, {2, 2, 2}, {}}};
  result.left_out = {{"w8", "WARPS=8", "does not fit"}};
  return record;
}

Json DocumentOf(const Suite& suite, const std::vector<ShapeRecord>& records) {
  Json rows = Json::array(), left_out = Json::array();
  for (const ShapeRecord& record : records) {
    for (Json& row : RowsOf(suite, record)) rows.push_back(std::move(row));
    for (Json& each : LeftOutOf(record)) left_out.push_back(std::move(each));
  }
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.target = "sm_90a";
  return {{"op", suite.op},
          {"environment", EnvironmentOf(device, "nvrtc", SessionInfo(), "2026-11-30")},
          {"rows", rows},
          {"left_out", left_out}};
}

TEST(Result, DecodeRowsBeginWithTheirContract) {
  const Suite suite{"mla_sparse_decode_fp8", Roofline::kGather, {}};
  const Json document = DocumentOf(suite, {DecodeRecord(8)});
  ASSERT_EQ(document["rows"].size(), 2u);
  const Json& row = document["rows"][1];
  EXPECT_EQ(row["topk"], 512);
  EXPECT_EQ(row["num_tokens"], 8);
  EXPECT_EQ(row["num_qo_heads"], 16);
  EXPECT_EQ(row["variant"], "fast");
  EXPECT_EQ(row["us"], 5.1);
  EXPECT_EQ(row["gather_us"], 2.0);
  EXPECT_EQ(row["selected"], true);
  EXPECT_EQ(row["aa"], 0.01);
  EXPECT_FALSE(document["rows"][0].contains("aa"));
  EXPECT_EQ(document["rows"][0]["config"], "BLOCK_H=16");
  EXPECT_EQ(document["left_out"][0]["reason"], "does not fit");
  EXPECT_EQ(document["environment"]["device"], "NVIDIA H200");
}

ShapeRecord MoeRecord() {
  ShapeRecord record;
  record.shape.model = "qwen3-30b-a3b";
  record.axes = {{"num_tokens", 16}, {"num_experts", 128}};
  record.entrants = {{{}, "default"}, {{}, "default"}};
  record.active = {84, 40.5};
  record.roofline = {0, 1};
  record.result.entrants = {
      {{VariantNamed("topk"), {}}, {216}, {}},
      {{VariantNamed("oea", Semantics::kApproximate), {{"K0", 4}}}, {100}, {{"mass_kept", 0.9}}}};
  record.result.twice = 0;
  record.result.session.cold = true;
  record.result.rooflines = {{{VariantNamed("chunks"), {}}, {170}, {}},
                             {{VariantNamed("chunks"), {}}, {84}, {}}};
  return record;
}

TEST(Result, MoeRowsHaveTheirOwnExpertsAndRoofline) {
  const Suite suite{"moe_decode", Roofline::kStream, {}};
  const Json document = DocumentOf(suite, {MoeRecord()});
  const Json& exact = document["rows"][0];
  const Json& approximate = document["rows"][1];
  EXPECT_EQ(exact["shape"], "qwen3-30b-a3b");
  EXPECT_EQ(exact["active_experts"], 84);
  EXPECT_EQ(exact["stream_us"], 170);
  EXPECT_EQ(approximate["semantics"], "approximate");
  EXPECT_EQ(approximate["active_experts"], 40.5);
  EXPECT_EQ(approximate["stream_us"], 84);
  EXPECT_EQ(approximate["quality"]["mass_kept"], 0.9);
  EXPECT_FALSE(exact.contains("quality"));
  // The table shows the fastest exact one: nobody opted in by looking at it.
  EXPECT_THAT(ShapeTable(document), HasSubstr("216.00"));
  EXPECT_THAT(RowTable(document), HasSubstr("K0=4"));
}

TEST(Result, AppendedRowsReplaceThoseOfTheSameShape) {
  const Suite suite{"mla_sparse_decode_fp8", Roofline::kGather, {}};
  const Json stored = DocumentOf(suite, {DecodeRecord(1), DecodeRecord(8)});
  Json fresh = DocumentOf(suite, {DecodeRecord(8), DecodeRecord(16)});
  fresh["environment"]["date"] = "2026-12-01";
  const absl::StatusOr<Json> merged = Merged(stored, fresh);
  ASSERT_TRUE(merged.ok()) << merged.status();
  std::vector<int64_t> tokens;
  for (const Json& row : (*merged)["rows"]) tokens.push_back(row["num_tokens"]);
  EXPECT_THAT(tokens, ElementsAre(1, 1, 8, 8, 16, 16));
  fresh["environment"]["driver"] = "another";
  EXPECT_FALSE(Merged(stored, fresh).ok());
}

TEST(Result, PlotsOneSeriesAVariantOverTheBatch) {
  const Suite suite{"mla_sparse_decode_fp8", Roofline::kGather, {}};
  const std::vector<Plot> plots = PlotsOf(DocumentOf(suite, {DecodeRecord(1), DecodeRecord(8)}));
  ASSERT_THAT(plots, SizeIs(1));
  EXPECT_EQ(plots[0].name, "mla_sparse_decode_fp8-h16-k512");
  EXPECT_THAT(plots[0].svg, HasSubstr("fast, num_tokens 8: 5.1"));
  EXPECT_THAT(plots[0].svg, HasSubstr("class=\"floor\""));
}

TEST(Result, AWholeModelIsPlottedApartFromOneMadeSmaller) {
  const Suite suite{"moe_decode", Roofline::kStream, {}};
  ShapeRecord whole = MoeRecord(), scaled = MoeRecord();
  scaled.shape.scaled = "64 of 128 experts";
  std::vector<std::string> names;
  for (const Plot& plot : PlotsOf(DocumentOf(suite, {whole, scaled}))) names.push_back(plot.name);
  EXPECT_THAT(names, ElementsAre("moe_decode-qwen3-30b-a3b", "moe_decode-qwen3-30b-a3b-scaled"));
}

TEST(Result, TimesOfAWarmCacheAreCalledThat) {
  const Suite suite{"mla_sparse_decode_fp8", Roofline::kGather, {}};
  ShapeRecord record = DecodeRecord(8);
  EXPECT_THAT(ShapeTable(DocumentOf(suite, {record})), HasSubstr("not cold"));
  record.result.session.cold = true;
  EXPECT_THAT(ShapeTable(DocumentOf(suite, {record})), ::testing::Not(HasSubstr("not cold")));
}

TEST(Result, ATableFitsATerminal) {
  const Suite suite{"moe_decode", Roofline::kStream, {}};
  const std::string table = ShapeTable(DocumentOf(suite, {MoeRecord()}));
  size_t begin = 0;
  for (size_t end; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 80u) << table;
  }
}

}  // namespace
}  // namespace kvr::bench
