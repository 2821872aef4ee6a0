// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/suite.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr::bench {
namespace {

// A cache slot: its row, and what lies apart from it.
struct RowBytes {
  std::string_view op;
  int64_t token, side;
};
constexpr RowBytes kRows[] = {
    {"mla_sparse_decode", 1152, 128},  // ckv, and kpe in a tensor of its own
    {"mla_sparse_decode_fp8", 584, 8},
    {"mla_sparse_decode_fp8_v32", 656, 0},
};
constexpr std::string_view kMoe = "moe_decode", kMoeFp8 = "moe_decode_fp8";

// The cache has so many slots for each one that a batch names: most rows are then read by one token
// only, as in serving, where requests share little.
constexpr int64_t kSlotsForEach = 8;
constexpr int64_t kPageSize = 64, kLeastPages = 256;

KernelShape DecodeShape(int64_t heads, int64_t topk, int64_t tokens) {
  const int64_t pages = (kSlotsForEach * tokens * topk + kPageSize - 1) / kPageSize;
  return {.axes = {{"num_qo_heads", heads},
                   {"topk", topk},
                   {"num_tokens", tokens},
                   {"num_pages", std::max(kLeastPages, pages)}}};
}

std::vector<KernelShape> DecodeShapes() {
  constexpr int64_t kShort[] = {1, 8, 16, 32, 64, 96, 128}, kLong[] = {1, 16, 64, 128};
  std::vector<KernelShape> shapes;
  for (const int64_t heads : {16, 64}) {
    for (const int64_t tokens : kShort) shapes.push_back(DecodeShape(heads, 512, tokens));
    for (const int64_t tokens : kLong) shapes.push_back(DecodeShape(heads, 2048, tokens));
  }
  return shapes;
}

std::vector<KernelShape> QuickDecodeShapes() {
  std::vector<KernelShape> shapes;
  for (const int64_t tokens : {1, 2}) {
    shapes.push_back(DecodeShape(2, 10, tokens));
    shapes.back().axes["num_pages"] = 4;
  }
  return shapes;
}

// `experts` may be fewer than the model's, where all of them would not fit beside each other's
// copies on host and device: what is timed depends on the active ones alone.
struct Model {
  std::string_view name;
  int64_t experts, of_model, top_k, hidden, inner;
  int64_t scoring = 0, n_group = 1, topk_group = 1;  // 0 softmax, 1 sigmoid, 2 sqrt(softplus)
};
constexpr Model kModels[] = {
    {"qwen3-30b-a3b", 128, 128, 8, 2048, 768},
    {"qwen3-235b-a22b", 128, 128, 8, 4096, 1536},
    {"deepseek-v3", 32, 256, 8, 7168, 2048, 1, 8, 4},
    {"deepseek-v4-flash", 48, 256, 6, 4096, 2048, 2},
};

// As alike as the routers that the operations' generator is calibrated to.
constexpr int64_t kCalibrated = 675;

KernelShape MoeShape(const Model& model, int64_t tokens, int64_t correlation) {
  KernelShape shape{.axes = {{"num_tokens", tokens},
                             {"num_experts", model.experts},
                             {"top_k", model.top_k},
                             {"hidden", model.hidden},
                             {"inner", model.inner},
                             {"gate_up", 2 * model.inner},
                             {"scoring", model.scoring},
                             {"n_group", model.n_group},
                             {"topk_group", model.topk_group},
                             {"correlation", correlation}},
                    .model = std::string(model.name)};
  if (model.experts < model.of_model) {
    shape.scaled = StrCat(model.experts, " of ", model.of_model, " experts");
  }
  return shape;
}

std::vector<KernelShape> MoeShapes() {
  // They make a batch of the same size activate more and fewer experts than kCalibrated does.
  constexpr int64_t kLess = 450, kMore = 850;
  std::vector<KernelShape> shapes;
  for (const Model& model : kModels) {
    for (const int64_t tokens : {1, 8, 16, 32, 64}) shapes.push_back(MoeShape(model, tokens, 0));
    shapes.push_back(MoeShape(model, 16, kCalibrated));
  }
  for (const int64_t correlation : {kLess, kMore}) {
    shapes.push_back(MoeShape(kModels[0], 16, correlation));
  }
  return shapes;
}

std::vector<KernelShape> QuickMoeShapes() {
  constexpr Model kTiny = {"tiny", 8, 8, 2, 64, 32};
  return {MoeShape(kTiny, 1, 0), MoeShape(kTiny, 3, 0)};
}

// One rank of eight of DeepSeek-V3, as FlashInfer-Bench has it: 32 of 256 experts.
KernelShape MoeFp8Shape(int64_t tokens, int64_t correlation) {
  constexpr int64_t kBlock = 128, kHidden = 7168, kInner = 2048;
  return {.axes = {{"seq_len", tokens},
                   {"num_experts", 256},
                   {"top_k", 8},
                   {"n_group", 8},
                   {"topk_group", 4},
                   {"num_local_experts", 32},
                   {"hidden_size", kHidden},
                   {"intermediate_size", kInner},
                   {"gemm1_out_size", 2 * kInner},
                   {"num_hidden_blocks", kHidden / kBlock},
                   {"num_intermediate_blocks", kInner / kBlock},
                   {"num_gemm1_out_blocks", 2 * kInner / kBlock},
                   {"correlation", correlation}},
          .model = "deepseek-v3",
          .scaled = "32 of 256 experts: one rank of eight"};
}

std::vector<KernelShape> MoeFp8Shapes() {
  std::vector<KernelShape> shapes;
  for (const int64_t tokens : {1, 8, 16, 32, 64}) shapes.push_back(MoeFp8Shape(tokens, 0));
  shapes.push_back(MoeFp8Shape(16, kCalibrated));
  return shapes;
}

std::vector<KernelShape> QuickMoeFp8Shapes() {
  return {{.axes = {{"seq_len", 1}}, .model = "tiny"}, {.axes = {{"seq_len", 3}}, .model = "tiny"}};
}

}  // namespace

const MoeOp* FindMoe(std::string_view op) {
  static const auto* const ops = new std::array<MoeOp, 2>{{
      {kMoe,
       "num_tokens",
       "hidden",
       "inner",
       "gate_up",
       2,
       {{"hidden", 8}, {"inner", 8}, {"gate_up", 16}}},
      {kMoeFp8,
       "seq_len",
       "hidden_size",
       "intermediate_size",
       "gemm1_out_size",
       1,
       {{"hidden_size", 128},
        {"intermediate_size", 128},
        {"gemm1_out_size", 256},
        {"num_hidden_blocks", 1},
        {"num_intermediate_blocks", 1},
        {"num_gemm1_out_blocks", 2}}},
  }};
  const auto found =
      std::find_if(ops->begin(), ops->end(), [&](const MoeOp& known) { return known.name == op; });
  return found == ops->end() ? nullptr : &*found;
}

std::string_view RooflineOp(Roofline roofline) {
  return roofline == Roofline::kGather ? "roofline_gather" : "roofline_stream";
}

std::string_view RooflineField(Roofline roofline) {
  return roofline == Roofline::kGather ? "gather_us" : "stream_us";
}

std::vector<std::string> SuiteOps() {
  std::vector<std::string> ops;
  for (const RowBytes& row : kRows) ops.emplace_back(row.op);
  ops.emplace_back(kMoe);
  ops.emplace_back(kMoeFp8);
  return ops;
}

absl::StatusOr<Suite> SuiteOf(std::string_view op, bool quick) {
  if (op == kMoe) {
    return Suite{std::string(op), Roofline::kStream, quick ? QuickMoeShapes() : MoeShapes()};
  }
  if (op == kMoeFp8) {
    return Suite{std::string(op), Roofline::kStream, quick ? QuickMoeFp8Shapes() : MoeFp8Shapes()};
  }
  const std::vector<std::string> known = SuiteOps();
  if (std::find(known.begin(), known.end(), op) == known.end()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("no shapes of operation '", op, "' are known here"),
                 StrCat("name one of ", StrJoin(known, ", ")));
  }
  return Suite{std::string(op), Roofline::kGather, quick ? QuickDecodeShapes() : DecodeShapes()};
}

absl::StatusOr<Suite> Restricted(Suite suite, const Axes& only, const std::string& model) {
  std::erase_if(suite.shapes, [&](const KernelShape& shape) {
    return (!model.empty() && shape.model != model) ||
           std::any_of(only.begin(), only.end(), [&](const auto& wanted) {
             const auto found = shape.axes.find(wanted.first);
             return found == shape.axes.end() || found->second != wanted.second;
           });
  });
  if (!suite.shapes.empty()) return suite;
  return Error(
      absl::StatusCode::kInvalidArgument,
      StrCat("no shape of ", suite.op, model.empty() ? "" : StrCat(" of model '", model, "'"),
             only.empty() ? " is known" : StrCat(" has ", AxesText(only))),
      "leave --only or --model out to measure all of them");
}

absl::StatusOr<Axes> GatherAxes(std::string_view op, const Axes& axes) {
  constexpr int64_t kGroup = 4;  // entries that roofline_gather sums up in one
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const RowBytes& known) { return known.op == op; });
  if (row == std::end(kRows)) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("operation '", op, "' reads no cache rows that are known here"),
                 "give a sparse decode operation");
  }
  Axes gather = {{"token_bytes", row->token}, {"side_bytes", row->side}};
  for (const char* name : {"num_tokens", "topk", "page_size", "num_pages"}) {
    gather[name] = axes.at(name);
  }
  gather["groups"] = (gather["topk"] + kGroup - 1) / kGroup;
  return gather;
}

absl::StatusOr<Axes> StreamAxes(std::string_view op, const Axes& axes, int64_t blocks) {
  constexpr int64_t kChunkBytes = 2048;
  const MoeOp* const moe = FindMoe(op);
  if (moe == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("operation '", op, "' has no experts that are known here"),
                 "give a moe operation");
  }
  const auto at = [&](std::string_view name) { return axes.at(std::string(name)); };
  const int64_t expert = moe->weight_bytes * at(moe->hidden) * (at(moe->gate_up) + at(moe->inner));
  if (expert % kChunkBytes != 0) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("an expert of ", expert, " bytes is no multiple of ", kChunkBytes),
                 "choose hidden and inner as multiples of 64");
  }
  return Axes{{"num_blocks", blocks}, {"block_chunks", expert / kChunkBytes}};
}

}  // namespace kvr::bench
