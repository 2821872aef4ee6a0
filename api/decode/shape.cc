// SPDX-License-Identifier: Apache-2.0
#include "api/decode/shape.h"

#include <algorithm>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

const std::vector<DecodeShape>& Known() {
  // Scoring: 0 softmax, 1 sigmoid, 2 square root of softplus.
  static const std::vector<DecodeShape> kKnown = {
      {.name = "qwen3-30b-a3b",
       .description = "experts of Qwen3-30B-A3B; as many heads, over a sparse latent cache",
       .attention = {{"num_qo_heads", 32}, {"page_size", 64}, {"topk", 512}},
       .moe = {{"num_experts", 128},
               {"top_k", 8},
               {"hidden", 2048},
               {"inner", 768},
               {"scoring", 0},
               {"correlation", 675}},
       .context = 2048},
      {.name = "deepseek-v4-flash",
       .description = "all experts of DeepSeek-V4-Flash; the heads of one rank of four",
       .attention = {{"num_qo_heads", 16}, {"page_size", 64}, {"topk", 512}},
       .moe = {{"num_experts", 256},
               {"top_k", 6},
               {"hidden", 4096},
               {"inner", 2048},
               {"scoring", 2},
               {"correlation", 675}},
       .context = 2048},
      {.name = "tiny",
       .description = "for tests and the host device",
       .attention = {{"num_qo_heads", 2}, {"page_size", 8}, {"topk", 8}},
       .moe = {{"num_experts", 8},
               {"top_k", 2},
               {"hidden", 64},
               {"inner", 32},
               {"scoring", 0},
               {"correlation", 675}},
       .context = 16},
  };
  return kKnown;
}

}  // namespace

std::vector<std::string_view> DecodeShapeNames() {
  std::vector<std::string_view> names;
  for (const DecodeShape& shape : Known()) names.push_back(shape.name);
  return names;
}

absl::StatusOr<DecodeShape> FindDecodeShape(std::string_view name) {
  for (DecodeShape shape : Known()) {
    if (shape.name != name) continue;
    shape.moe["gate_up"] = 2 * shape.moe["inner"];
    return shape;
  }
  return UnknownName("shape", name, DecodeShapeNames());
}

absl::Status ChangeDecodeAxes(std::string_view text, DecodeShape* shape) {
  const size_t slash = text.find('/');
  const std::string_view op = text.substr(0, slash);
  if (slash == std::string_view::npos) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("--axes ", Quoted(text), " does not say of which operation"),
                 StrCat("as in ", kDecodeMoe, "/correlation=0,inner=512"));
  }
  if (op != kDecodeMoe && op != kDecodeAttention) {
    return UnknownName("operation of the stack", op, {kDecodeAttention, kDecodeMoe});
  }
  KVR_ASSIGN_OR_RETURN(const Axes changed, ParseAxes(text.substr(slash + 1)));
  Axes& axes = op == kDecodeMoe ? shape->moe : shape->attention;
  for (const auto& [name, value] : changed) {
    if (name == "num_tokens" || name == "num_pages") {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("--axes ", Quoted(text), " gives ", name, ", which the batch gives"),
                   "leave it out, or give another --concurrency");
    }
    axes[name] = value;
  }
  if (changed.contains("inner") && !changed.contains("gate_up")) {
    axes["gate_up"] = 2 * axes["inner"];
  }
  shape->context = std::max(shape->context, shape->attention["topk"]);  // slots are distinct
  return absl::OkStatus();
}

}  // namespace kvr
