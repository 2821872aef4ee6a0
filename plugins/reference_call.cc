// SPDX-License-Identifier: Apache-2.0
#include "plugins/reference_call.h"

#include <cmath>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/c_call.h"

namespace kvr {
namespace {

// Errors complete "plugin 'p' (/p.so): the reference function of operation scale_rows: ".
absl::Status Check(const ReferenceOutput& output, std::string_view prefix, std::string_view name) {
  const auto refuse = [&](std::string_view what, double value, std::string_view fix) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(prefix, "output '", name, "': ", what, " ", value), fix);
  };
  if (!(output.cosine_limit >= 0 && output.cosine_limit <= 2)) {
    return refuse("cosine_limit is", output.cosine_limit, "give 0 (not checked) to 2");
  }
  for (size_t i = 0; i < output.bound.size(); ++i) {
    if (std::isnan(output.expected[i])) {
      return refuse(StrCat("element ", i, " is expected to be"), output.expected[i],
                    "give the value that a right result has");
    }
    if (!(output.bound[i] >= 0 && std::isfinite(output.bound[i]))) {
      return refuse(StrCat("element ", i, " has the bound"), output.bound[i],
                    "give a finite bound of 0 or more");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ReferenceOutput>> Referred(const PluginLibrary& library,
                                                      const std::string& function, const OpSpec& op,
                                                      const AxisVector& axes,
                                                      const CallReference& call) {
  const std::vector<TensorView> shapes = TensorShapes(op, axes);
  std::vector<ReferenceOutput> outputs(op.outputs.size());
  std::vector<kvr_expected> given;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto elements = static_cast<size_t>(shapes[op.inputs.size() + i].elements());
    outputs[i].expected.resize(elements);
    outputs[i].bound.resize(elements);
    // A copy of the pointers: those that come back are not looked at.
    given.push_back({outputs[i].expected.data(), outputs[i].bound.data(), 0});
  }
  KVR_RETURN_IF_ERROR(CallC(
      library, [&] { return function; },
      [&](char* error, size_t size) {
        return call(given.data(), static_cast<uint32_t>(given.size()), error, size);
      }));
  const std::string prefix = StrCat(library.Label(), ": ", function, ": ");
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].cosine_limit = given[i].cosine_limit;
    KVR_RETURN_IF_ERROR(Check(outputs[i], prefix, op.outputs[i].name));
  }
  return outputs;
}

}  // namespace kvr
