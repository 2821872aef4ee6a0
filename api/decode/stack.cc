// SPDX-License-Identifier: Apache-2.0
#include "api/decode/stack.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <utility>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr int64_t kBlockBytes = int64_t{64} << 20;
constexpr uint8_t kPoison = 0xFF;   // NaN in every float type
constexpr uint8_t kPadding = 0xFF;  // -1 in every integer

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

struct DecodeStack::Known {
  std::string_view op, tensor;
  Share share;
};

const DecodeStack::Known* DecodeStack::Find(std::string_view op, std::string_view tensor) {
  static constexpr Known kKnown[] = {
      {kDecodeAttention, "q_nope", Share::kSet},
      {kDecodeAttention, "q_pe", Share::kSet},
      {kDecodeAttention, "ckv_cache", Share::kLayer},
      {kDecodeAttention, "kpe_cache", Share::kLayer},
      {kDecodeAttention, "sparse_indices", Share::kLayerOfSet},
      {kDecodeAttention, "sm_scale", Share::kScalar},
      {kDecodeAttention, "output", Share::kLayer},
      {kDecodeAttention, "lse", Share::kLayer},
      {kDecodeMoe, "x", Share::kSet},
      {kDecodeMoe, "router_logits", Share::kLayerOfSet},
      {kDecodeMoe, "w13", Share::kLayer},
      {kDecodeMoe, "w2", Share::kLayer},
      {kDecodeMoe, "num_valid_tokens", Share::kAll},
      {kDecodeMoe, "bias", Share::kLayerOfSet},
      {kDecodeMoe, "scoring", Share::kScalar},
      {kDecodeMoe, "renormalize", Share::kScalar},
      {kDecodeMoe, "n_group", Share::kScalar},
      {kDecodeMoe, "topk_group", Share::kScalar},
      {kDecodeMoe, "routed_scaling_factor", Share::kScalar},
      {kDecodeMoe, "out", Share::kLayer},
      {kDecodeMoe, "expert_ids", Share::kLayer},
      {kDecodeMoe, "expert_weights", Share::kLayer},
  };
  const auto* const found =
      std::find_if(std::begin(kKnown), std::end(kKnown),
                   [&](const Known& known) { return known.op == op && known.tensor == tensor; });
  return found == std::end(kKnown) ? nullptr : found;
}

absl::StatusOr<std::unique_ptr<DecodeStack>> DecodeStack::Create(
    const Catalog& catalog, Device& device, const DecodeStackOptions& options) {
  std::unique_ptr<DecodeStack> stack(new DecodeStack(device, options));
  KVR_RETURN_IF_ERROR(stack->Resolve(catalog));
  return stack;
}

DecodeStack::~DecodeStack() {
  if (stream_.handle != nullptr) (void)device_.Synchronize(stream_);
  for (const auto& [place, memory] : memory_) device_.Free(memory);
  if (stream_.handle != nullptr) device_.DestroyStream(stream_);
}

Axes DecodeStack::AxesOf(std::string_view op, int64_t num_tokens) const {
  Axes axes = options_.shape.of(op);
  axes["num_tokens"] = num_tokens;
  if (op == kDecodeAttention) {
    axes["num_pages"] = CeilDiv(options_.rows * options_.shape.context, axes["page_size"]);
  }
  return axes;
}

int64_t DecodeStack::BytesOf(std::string_view op_name) const {
  int64_t bytes = 0;
  for (const char* tensor : {"ckv_cache", "kpe_cache", "w13", "w2"}) {
    if (Find(op_name, tensor) != nullptr) {
      bytes += op(op_name).shapes[static_cast<size_t>(TensorOf(op_name, tensor))].bytes();
    }
  }
  return bytes;
}

int DecodeStack::TensorOf(std::string_view op_name, std::string_view tensor) const {
  return op(op_name).operation->spec().TensorIndex(tensor);
}

DecodeStack::Place DecodeStack::PlaceOf(std::string_view op_name, int tensor, int layer,
                                        int set) const {
  switch (Find(op_name, op(op_name).operation->spec().tensor(tensor).name)->share) {
    case Share::kLayer:
      return {op_name, tensor, layer, -1};
    case Share::kSet:  // another one for each layer
      return {op_name, tensor, -1, (set + layer) % options_.input_sets};
    case Share::kLayerOfSet:
      return {op_name, tensor, layer, set};
    case Share::kAll:
    case Share::kScalar:
      break;
  }
  return {op_name, tensor, -1, -1};
}

int DecodeStack::Places(Share share, int layers) const {
  switch (share) {
    case Share::kLayer:
      return layers;
    case Share::kSet:
      return options_.input_sets;
    case Share::kLayerOfSet:
      return layers * options_.input_sets;
    case Share::kAll:
      return 1;
    case Share::kScalar:
      break;
  }
  return 0;
}

int64_t DecodeStack::Needs(int layers) const {
  int64_t bytes = 0;
  for (const auto& [name, of] : ops_) {
    for (size_t i = 0; i < of.shapes.size(); ++i) {
      const std::string& tensor = of.operation->spec().tensor(static_cast<int>(i)).name;
      bytes += Places(Find(name, tensor)->share, layers) * of.shapes[i].bytes();
    }
  }
  return bytes;
}

absl::Status DecodeStack::GoOn() const {
  if (options_.cancel == nullptr || !options_.cancel->load()) return absl::OkStatus();
  return absl::CancelledError("interrupted while the stack was filled");
}

absl::StatusOr<void*> DecodeStack::Allocate(const Place& place) {
  KVR_RETURN_IF_ERROR(GoOn());
  const Op& of = op(place.op);
  const int64_t bytes = of.shapes[static_cast<size_t>(place.tensor)].bytes();
  const absl::StatusOr<void*> memory = device_.Allocate(std::max<int64_t>(bytes, 1));
  if (!memory.ok()) {
    return Error(memory.status().code(),
                 StrCat(of.operation->spec().tensor(place.tensor).name, " of layer ", place.layer,
                        ": ", What(memory.status())),
                 "ask for fewer --layers, or a smaller --shape");
  }
  memory_[place] = *memory;
  if (options_.progress != nullptr) {
    options_.progress->Update({.phase = Phase::kFill,
                               .done = static_cast<int>(memory_.size()),
                               .total = places_,
                               .current = of.operation->spec().tensor(place.tensor).name});
  }
  return *memory;
}

absl::Status DecodeStack::Upload(const Place& place, const void* from) {
  KVR_ASSIGN_OR_RETURN(void* memory, Allocate(place));
  return device_.CopyToDevice(
      memory, from, op(place.op).shapes[static_cast<size_t>(place.tensor)].bytes(), stream_);
}

absl::StatusOr<DecodeStack::Drawing> DecodeStack::Draw(std::string_view op_name, const Axes& given,
                                                       uint64_t seed) const {
  const Operation& operation = *op(op_name).operation;
  KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(operation.spec(), given));
  std::vector<TensorView> views = TensorShapes(operation.spec(), axes);
  views.resize(operation.spec().inputs.size());
  Drawing drawing;
  for (TensorView& view : views) {
    drawing.emplace_back(static_cast<size_t>(view.bytes()));
    view.data = drawing.back().data();
  }
  KVR_RETURN_IF_ERROR(operation.Generate(axes, seed, absl::MakeSpan(views)));
  return drawing;
}

void DecodeStack::KeepScalars(std::string_view op_name, const Drawing& drawing) {
  Op& of = ops_.find(op_name)->second;
  const OpSpec& spec = of.operation->spec();
  of.scalars.assign(static_cast<size_t>(spec.tensor_count()), 0);
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i].is_scalar) {
      std::memcpy(&of.scalars[i], drawing[i].data(), drawing[i].size());
    }
  }
}

absl::Status DecodeStack::Resolve(const Catalog& catalog) {
  for (const char* name : {kDecodeAttention, kDecodeMoe}) {
    KVR_ASSIGN_OR_RETURN(const Catalog::Op* found, catalog.FindOp(name));
    const OpSpec& spec = found->spec();
    for (int i = 0; i < spec.tensor_count(); ++i) {
      if (Find(name, spec.tensor(i).name) != nullptr) continue;
      return Error(
          absl::StatusCode::kUnimplemented,
          StrCat("nobody knows how to fill tensor ", Quoted(spec.tensor(i).name), " of ", name),
          "use the operations that this kvr comes with");
    }
    KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(spec, AxesOf(name, options_.rows)));
    ops_[name] = {found->operation.get(), TensorShapes(spec, axes), {}};
  }
  KVR_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  return absl::OkStatus();
}

absl::Status DecodeStack::Fill() {
  for (const auto& [name, one] : ops_) {
    for (int i = 0; i < one.operation->spec().tensor_count(); ++i) {
      places_ += Places(Find(name, one.operation->spec().tensor(i).name)->share, options_.layers);
    }
  }
  batches_.assign(static_cast<size_t>(options_.input_sets), options_.rows);

  // The largest first: where memory does not suffice, it is said soon.
  const Axes moe = AxesOf(kDecodeMoe, 1), attention = AxesOf(kDecodeAttention, 1);
  const int64_t expert_bytes = 2 * (moe.at("gate_up") + moe.at("inner")) * moe.at("hidden");
  KVR_RETURN_IF_ERROR(FillLayers(
      kDecodeMoe,
      {{"num_tokens", 1},
       {"num_experts", std::clamp<int64_t>(kBlockBytes / expert_bytes, 1, moe.at("num_experts"))},
       {"top_k", 1},
       {"hidden", moe.at("hidden")},
       {"inner", moe.at("inner")},
       {"gate_up", moe.at("gate_up")}}));
  const int64_t page_bytes = BytesOf(kDecodeAttention) / attention.at("num_pages");
  KVR_RETURN_IF_ERROR(FillLayers(
      kDecodeAttention,
      {{"num_tokens", 1},
       {"num_qo_heads", 1},
       {"page_size", attention.at("page_size")},
       {"num_pages", std::clamp<int64_t>(kBlockBytes / page_bytes, 1, attention.at("num_pages"))},
       {"topk", 1}}));
  KVR_RETURN_IF_ERROR(FillSets());
  KVR_RETURN_IF_ERROR(FillRouters());
  KVR_RETURN_IF_ERROR(FillIndices());
  const int valid = TensorOf(kDecodeMoe, "num_valid_tokens");
  return Allocate(PlaceOf(kDecodeMoe, valid, 0, 0)).status();
}

absl::Status DecodeStack::FillLayers(std::string_view op_name, const Axes& block) {
  KVR_ASSIGN_OR_RETURN(const Drawing drawing, Draw(op_name, block, /*seed=*/1));
  const Op& of = op(op_name);
  for (int tensor = 0; tensor < static_cast<int>(of.shapes.size()); ++tensor) {
    if (Find(op_name, of.operation->spec().tensor(tensor).name)->share != Share::kLayer) continue;
    const int64_t bytes = of.shapes[static_cast<size_t>(tensor)].bytes();
    for (int layer = 0; layer < options_.layers; ++layer) {
      KVR_ASSIGN_OR_RETURN(void* memory, Allocate(PlaceOf(op_name, tensor, layer, 0)));
      if (static_cast<size_t>(tensor) >= drawing.size()) continue;  // an output
      const std::vector<char>& values = drawing[static_cast<size_t>(tensor)];
      const int64_t step = static_cast<int64_t>(values.size());
      for (int64_t at = 0; at < bytes; at += step) {
        KVR_RETURN_IF_ERROR(GoOn());
        KVR_RETURN_IF_ERROR(device_.CopyToDevice(static_cast<char*>(memory) + at, values.data(),
                                                 std::min(step, bytes - at), stream_));
      }
    }
  }
  return device_.Synchronize(stream_);  // `drawing` goes
}

// Queries and hidden states; what else their generators draw is as small as it may be.
absl::Status DecodeStack::FillSets() {
  const Axes moe = AxesOf(kDecodeMoe, options_.rows);
  const Axes queries = {{"num_tokens", options_.rows},
                        {"num_qo_heads", options_.shape.attention.at("num_qo_heads")},
                        {"page_size", 1},
                        {"num_pages", 1},
                        {"topk", 1}};
  const Axes states = {{"num_tokens", options_.rows}, {"num_experts", 1}, {"top_k", 1},
                       {"hidden", moe.at("hidden")},  {"inner", 8},       {"gate_up", 16}};
  for (int set = 0; set < options_.input_sets; ++set) {
    const auto seed = static_cast<uint64_t>(100 + set);
    for (const auto& [name, axes] :
         {std::pair<std::string_view, Axes>(kDecodeAttention, queries), {kDecodeMoe, states}}) {
      KVR_ASSIGN_OR_RETURN(const Drawing drawing, Draw(name, axes, seed));
      for (const char* tensor : {"q_nope", "q_pe", "x"}) {
        if (Find(name, tensor) == nullptr) continue;
        const int index = TensorOf(name, tensor);
        KVR_RETURN_IF_ERROR(
            Upload({name, index, -1, set}, drawing[static_cast<size_t>(index)].data()));
      }
      if (set == 0) KeepScalars(name, drawing);
      KVR_RETURN_IF_ERROR(device_.Synchronize(stream_));
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeStack::FillRouters() {
  Axes axes = AxesOf(kDecodeMoe, options_.rows);
  axes["hidden"] = axes["inner"] = 8;
  axes["gate_up"] = 16;
  for (int set = 0; set < options_.input_sets; ++set) {
    for (int layer = 0; layer < options_.layers; ++layer) {
      const auto seed = static_cast<uint64_t>(1000 + set * options_.layers + layer);
      KVR_ASSIGN_OR_RETURN(const Drawing drawing, Draw(kDecodeMoe, axes, seed));
      for (const char* tensor : {"router_logits", "bias"}) {
        const int index = TensorOf(kDecodeMoe, tensor);
        KVR_RETURN_IF_ERROR(Upload(PlaceOf(kDecodeMoe, index, layer, set),
                                   drawing[static_cast<size_t>(index)].data()));
      }
      KeepScalars(kDecodeMoe, drawing);  // the same each time
      KVR_RETURN_IF_ERROR(device_.Synchronize(stream_));
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeStack::FillIndices() {
  const auto context = static_cast<int32_t>(options_.shape.context);
  const auto topk = static_cast<size_t>(options_.shape.attention.at("topk"));
  const int tensor = TensorOf(kDecodeAttention, "sparse_indices");
  std::mt19937_64 random(1);
  std::vector<int32_t> order(static_cast<size_t>(context));
  std::iota(order.begin(), order.end(), 0);
  slots_.resize(static_cast<size_t>(options_.input_sets));
  for (int set = 0; set < options_.input_sets; ++set) {
    auto& layers = slots_[static_cast<size_t>(set)];
    layers.resize(static_cast<size_t>(options_.layers));
    for (int layer = 0; layer < options_.layers; ++layer) {
      std::vector<int32_t>& slots = layers[static_cast<size_t>(layer)];
      for (int32_t row = 0; row < options_.rows; ++row) {
        for (size_t i = 0; i < topk; ++i) {
          std::swap(order[i], order[i + random() % (order.size() - i)]);
          slots.push_back(row * context + order[i]);
        }
      }
      KVR_RETURN_IF_ERROR(Upload(PlaceOf(kDecodeAttention, tensor, layer, set), slots.data()));
    }
  }
  return device_.Synchronize(stream_);
}

std::vector<TensorView> DecodeStack::Tensors(std::string_view op_name, int layer, int set,
                                             int64_t bucket) const {
  const Op& of = op(op_name);
  const OpSpec& spec = of.operation->spec();
  const int rows_axis = spec.AxisIndex("num_tokens");
  std::vector<TensorView> tensors = of.shapes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = spec.tensor(static_cast<int>(i));
    if (tensor.is_scalar) {
      tensors[i].data = const_cast<int64_t*>(&of.scalars[i]);
      continue;
    }
    tensors[i].data =
        memory_.at(PlaceOf(ops_.find(op_name)->first, static_cast<int>(i), layer, set));
    if (tensor.axes.front() == rows_axis) tensors[i].shape[0] = bucket;
  }
  return tensors;
}

absl::Status DecodeStack::SetBatch(int set, int64_t batch) {
  int64_t& had = batches_[static_cast<size_t>(set)];
  if (valid_ == batch && had == batch) return absl::OkStatus();
  if (valid_ != batch) {
    valid_ = static_cast<int32_t>(batch);
    const int tensor = TensorOf(kDecodeMoe, "num_valid_tokens");
    KVR_RETURN_IF_ERROR(device_.CopyToDevice(memory_.at(PlaceOf(kDecodeMoe, tensor, 0, 0)), &valid_,
                                             sizeof(valid_), stream_));
  }
  const int64_t row_bytes =
      options_.shape.attention.at("topk") * static_cast<int64_t>(sizeof(int32_t));
  const int tensor = TensorOf(kDecodeAttention, "sparse_indices");
  for (int layer = 0; layer < options_.layers && had != batch; ++layer) {
    char* const rows =
        static_cast<char*>(memory_.at(PlaceOf(kDecodeAttention, tensor, layer, set)));
    if (batch < had) {
      KVR_RETURN_IF_ERROR(device_.MemsetAsync(rows + batch * row_bytes, kPadding,
                                              (had - batch) * row_bytes, stream_));
    } else {
      const std::vector<int32_t>& slots =
          slots_[static_cast<size_t>(set)][static_cast<size_t>(layer)];
      const char* const from = reinterpret_cast<const char*>(slots.data());
      KVR_RETURN_IF_ERROR(device_.CopyToDevice(rows + had * row_bytes, from + had * row_bytes,
                                               (batch - had) * row_bytes, stream_));
    }
  }
  had = batch;
  return device_.Synchronize(stream_);
}

absl::Status DecodeStack::PoisonOutputs() {
  for (const auto& [name, of] : ops_) {
    const size_t inputs = of.operation->spec().inputs.size();
    for (int layer = 0; layer < options_.layers; ++layer) {
      for (size_t i = inputs; i < of.shapes.size(); ++i) {
        void* const memory = memory_.at(PlaceOf(name, static_cast<int>(i), layer, 0));
        KVR_RETURN_IF_ERROR(device_.MemsetAsync(memory, kPoison, of.shapes[i].bytes(), stream_));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace kvr
