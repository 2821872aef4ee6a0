// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/c_call.h"
#include "plugins/code.h"
#include "plugins/reference_call.h"

namespace kvr {
namespace {

using LibraryPtr = std::shared_ptr<const PluginLibrary>;

class PluginOperation final : public Operation {
 public:
  PluginOperation(OpSpec spec, LibraryPtr library)
      : spec_(std::move(spec)), library_(std::move(library)) {}

  const OpSpec& spec() const override { return spec_; }
  std::string Origin() const override { return library_->Label(); }
  absl::Status Load() const override { return Code().status(); }

  absl::Status Generate(const AxisVector& axes, uint64_t seed,
                        absl::Span<const TensorView> inputs) const override {
    KVR_ASSIGN_OR_RETURN(const kvr_operation* code, Code());
    const std::vector<kvr_tensor> tensors = ToC(inputs);
    return CallC(
        *library_, [this] { return Function("generate"); },
        [&](char* error, size_t size) {
          return code->generate(axes.data(), AxisCount(), seed, tensors.data(),
                                static_cast<uint32_t>(tensors.size()), error, size);
        });
  }

  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector& axes,
                                                         absl::Span<const TensorView> inputs,
                                                         int threads) const override {
    KVR_ASSIGN_OR_RETURN(const kvr_operation* code, Code());
    const std::vector<kvr_tensor> tensors = ToC(inputs);
    return Referred(*library_, Function("reference"), spec_, axes,
                    [&](kvr_expected* outputs, uint32_t count, char* error, size_t size) {
                      return code->reference(axes.data(), AxisCount(), tensors.data(),
                                             static_cast<uint32_t>(tensors.size()),
                                             static_cast<uint32_t>(threads), outputs, count, error,
                                             size);
                    });
  }

  absl::StatusOr<std::vector<QualityMeasure>> Quality(
      const AxisVector& axes, absl::Span<const TensorView> inputs,
      absl::Span<const TensorView> outputs,
      absl::Span<const ReferenceOutput> exact) const override {
    KVR_ASSIGN_OR_RETURN(const kvr_operation* code, Code());
    if (code->quality == nullptr) return std::vector<QualityMeasure>();
    const std::vector<kvr_tensor> c_inputs = ToC(inputs), c_outputs = ToC(outputs);
    std::vector<kvr_expected> c_exact;
    for (const ReferenceOutput& output : exact) {
      // The ABI's struct serves both ways; the function reads it.
      c_exact.push_back({const_cast<double*>(output.expected.data()),
                         const_cast<double*>(output.bound.data()), output.cosine_limit});
    }
    std::vector<double> values(code->quality_count);
    KVR_RETURN_IF_ERROR(CallC(
        *library_, [this] { return Function("quality"); },
        [&](char* error, size_t size) {
          return code->quality(axes.data(), AxisCount(), c_inputs.data(),
                               static_cast<uint32_t>(c_inputs.size()), c_outputs.data(),
                               c_exact.data(), static_cast<uint32_t>(c_exact.size()), values.data(),
                               error, size);
        }));
    std::vector<QualityMeasure> measures;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        return Refuse(
            StrCat(Function("quality"), ": measure '", code->quality_names[i], "' is ", values[i]),
            "give a finite value for whatever a kernel may have written");
      }
      measures.push_back({code->quality_names[i], values[i]});
    }
    return measures;
  }

  // All tensors whole where the plugin does not say, or says nonsense.
  int64_t MinimumBytes(const AxisVector& axes) const override {
    if (absl::StatusOr<const kvr_operation*> code = Code();
        code.ok() && (*code)->minimum_bytes != nullptr) {
      int64_t bytes = -1;
      const absl::Status status = CallC(
          *library_, [this] { return Function("minimum_bytes"); },
          [&](char*, size_t) {
            bytes = (*code)->minimum_bytes(axes.data(), AxisCount());
            return KVR_OK;
          });
      if (status.ok() && bytes >= 0) return bytes;
    }
    int64_t bytes = 0;
    for (const TensorView& view : TensorShapes(spec_, axes)) bytes += view.bytes();
    return bytes;
  }

 private:
  uint32_t AxisCount() const { return static_cast<uint32_t>(spec_.axes.size()); }
  std::string Function(std::string_view kind) const {
    return StrCat("the ", kind, " function of operation ", spec_.name);
  }
  absl::Status Refuse(std::string_view what, std::string_view fix) const {
    return Error(absl::StatusCode::kInvalidArgument, StrCat(library_->Label(), ": ", what), fix);
  }

  absl::StatusOr<const kvr_operation*> Code() const {
    KVR_ASSIGN_OR_RETURN(const PluginModule* module, library_->Load());
    const kvr_operation* code = module->FindOperation(spec_.name);
    if (code == nullptr) {
      std::vector<std::string> names;
      for (const kvr_operation& each : module->code().operations) names.push_back(each.name);
      return Refuse(StrCat("no code for operation ", spec_.name),
                    StrCat("add a kvr_operation of this name; ", ItHas(names)));
    }
    for (const auto& [kind, missing] : {std::pair("generate", code->generate == nullptr),
                                        std::pair("reference", code->reference == nullptr)}) {
      if (missing) {
        return Refuse(StrCat(Function(kind), " is null"), "set it in the kvr_operation");
      }
    }
    return code;
  }

  const OpSpec spec_;
  const LibraryPtr library_;
};

}  // namespace

std::unique_ptr<Operation> MakePluginOperation(OpSpec spec, LibraryPtr library) {
  return std::make_unique<PluginOperation>(std::move(spec), std::move(library));
}

}  // namespace kvr
