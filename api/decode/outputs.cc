// SPDX-License-Identifier: Apache-2.0
//
// What is right of a step's outputs without knowing them: rows of requests are finite and have an
// expert, rows of padding have nothing.
#include <cmath>
#include <limits>
#include <set>

#include "api/decode/stack.h"
#include "core/dtype.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

// Of padding: no expert, no slot, no values.
double Empty(std::string_view tensor) {
  if (tensor == "expert_ids") return -1;
  if (tensor == "lse") return -std::numeric_limits<double>::infinity();
  return 0;
}

// Empty, or what is wrong with a row of a tensor.
std::string WrongIn(std::string_view tensor, const TensorView& view, int64_t row, bool padding,
                    int64_t experts) {
  const int64_t width = view.shape[0] > 0 ? view.elements() / view.shape[0] : 0;
  for (int64_t i = 0; i < width; ++i) {
    const double value = LoadAsDouble(view.data, view.dtype, row * width + i);
    const bool is_id = tensor == "expert_ids";
    // A token may have fewer experts than top_k, but has one.
    const double least = i == 0 ? 0 : -1;
    const bool right = padding ? value == Empty(tensor)
                       : is_id ? value >= least && value < static_cast<double>(experts)
                               : std::isfinite(value);
    if (!right) {
      return StrCat(tensor, " of row ", row, padding ? ", which is padding," : "", " is ", value);
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<DecodeOutputs> DecodeStack::Outputs(int64_t bucket, int64_t batch) {
  DecodeOutputs outputs;
  std::set<int64_t> wrong;
  const int64_t experts = options_.shape.moe.at("num_experts");
  for (const auto& [name, of] : ops_) {
    const OpSpec& spec = of.operation->spec();
    for (int layer = 0; layer < options_.layers; ++layer) {
      const std::vector<TensorView> tensors = Tensors(name, layer, 0, bucket);
      for (size_t i = spec.inputs.size(); i < tensors.size(); ++i) {
        TensorView view = tensors[i];
        const size_t at = outputs.bytes.size();
        outputs.bytes.resize(at + static_cast<size_t>(view.bytes()));
        KVR_RETURN_IF_ERROR(
            device_.CopyToHost(outputs.bytes.data() + at, view.data, view.bytes(), stream_));
        KVR_RETURN_IF_ERROR(device_.Synchronize(stream_));
        view.data = outputs.bytes.data() + at;
        const std::string& tensor = spec.tensor(static_cast<int>(i)).name;
        for (int64_t row = 0; row < bucket; ++row) {
          const std::string what = WrongIn(tensor, view, row, row >= batch, experts);
          if (what.empty()) continue;
          if (wrong.empty()) outputs.what = StrCat(name, ", layer ", layer, ": ", what);
          wrong.insert(row);
        }
        if (tensor != "expert_ids") continue;
        std::set<double> active;
        for (int64_t id = 0; id < view.elements(); ++id) {
          const double expert = LoadAsDouble(view.data, view.dtype, id);
          if (expert >= 0) active.insert(expert);
        }
        outputs.active_experts += static_cast<double>(active.size()) / options_.layers;
      }
    }
  }
  outputs.wrong_rows = static_cast<int64_t>(wrong.size());
  return outputs;
}

}  // namespace kvr
