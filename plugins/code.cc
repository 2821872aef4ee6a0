// SPDX-License-Identifier: Apache-2.0
#include "plugins/code.h"

#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/c_call.h"

namespace kvr {
namespace {

using LibraryPtr = std::shared_ptr<const PluginLibrary>;

std::string Names(const std::vector<std::string>& names) {
  return names.empty() ? "it has none" : StrCat("it has ", StrJoin(names, ", "));
}

// The functions of one variant of one library, found once.
class VariantEntry {
 public:
  VariantEntry(std::string op, bundle::CodeEntry entry)
      : library_(std::move(entry.library)), op_(std::move(op)), variant_(entry.variant) {}

  // Null with *status set: there are none.
  const kvr_variant* Find(absl::Status* status) const {
    const kvr_variant* found = found_.load(std::memory_order_acquire);
    if (found != nullptr) return found;
    absl::StatusOr<const kvr_variant*> looked_up = LookUp();
    if (!looked_up.ok()) {
      *status = looked_up.status();
      return nullptr;
    }
    found_.store(*looked_up, std::memory_order_release);
    return *looked_up;
  }

  bool exists() const { return library_ != nullptr; }
  const LibraryPtr& library() const { return library_; }
  std::string Function(std::string_view kind) const {
    return StrCat("the ", kind, " function of ", op_, "/", variant_);
  }
  absl::Status Missing(std::string_view kind) const {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(library_->Label(), ": ", Function(kind), " is null"),
                 "set it in the kvr_variant: its manifest asks for it");
  }

 private:
  absl::StatusOr<const kvr_variant*> LookUp() const {
    KVR_ASSIGN_OR_RETURN(const PluginModule* module, library_->Load());
    if (const kvr_variant* variant = module->FindVariant(op_, variant_)) return variant;
    std::vector<std::string> names;
    for (const kvr_variant& v : module->code().variants) names.push_back(StrCat(v.op, "/", v.name));
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(library_->Label(), " has no code for variant ", op_, "/", variant_,
                        ", and its manifest asks for it"),
                 StrCat("add a kvr_variant of this op and name; ", Names(names)));
  }

  LibraryPtr library_;
  std::string op_, variant_;
  mutable std::atomic<const kvr_variant*> found_ = nullptr;
};

class PluginLaunchFunction final : public LaunchFunction {
 public:
  // Takes what `open` made.
  PluginLaunchFunction(std::shared_ptr<const VariantEntry> entry, const kvr_variant& variant,
                       void* state)
      : entry_(std::move(entry)), variant_(variant), state_(state) {}

  ~PluginLaunchFunction() override {
    if (variant_.close == nullptr) return;
    CallC(
        *entry_->library(), [] { return ""; },
        [this](char*, size_t) {
          variant_.close(state_);
          return KVR_OK;
        })
        .IgnoreError();  // nobody is left to be told
  }

  absl::Status Launch(const FunctionLaunch& launch) const override {
    kvr_tensor tensors[kMaxTensors];
    for (size_t i = 0; i < launch.tensors.size(); ++i) tensors[i] = ToC(launch.tensors[i]);
    const kvr_launch_request request = {sizeof(kvr_launch_request),
                                        static_cast<uint32_t>(launch.axes.size()),
                                        static_cast<uint32_t>(launch.tensors.size()),
                                        static_cast<uint32_t>(launch.workspace.size()),
                                        launch.axes.data(),
                                        tensors,
                                        launch.workspace.data(),
                                        launch.workspace_bytes.data(),
                                        launch.stream};
    return CallC(
        *entry_->library(), [this] { return entry_->Function("launch"); },
        [&](char* error, size_t size) { return variant_.launch(state_, &request, error, size); });
  }

 private:
  std::shared_ptr<const VariantEntry> entry_;  // holds the library
  const kvr_variant& variant_;
  void* state_;
};

class PluginVariantCode final : public VariantCode {
 public:
  PluginVariantCode(const std::string& op, bundle::CodeEntry plan, bundle::CodeEntry launch)
      : plan_(op, std::move(plan)),
        launch_(std::make_shared<const VariantEntry>(op, std::move(launch))) {}

  absl::Status Load() const override {
    absl::Status status;
    if (plan_.exists()) {
      const kvr_variant* variant = plan_.Find(&status);
      if (variant == nullptr) return status;
      if (variant->plan == nullptr) return plan_.Missing("plan");
    }
    if (launch_->exists()) {
      const kvr_variant* variant = launch_->Find(&status);
      if (variant == nullptr) return status;
      if (variant->launch == nullptr) return launch_->Missing("launch");
    }
    return absl::OkStatus();
  }

  absl::Status Values(absl::Span<const int64_t> axes, absl::Span<const int64_t> tunable_values,
                      const DeviceInfo& device, absl::Span<int64_t> values) const override {
    absl::Status status;
    const kvr_variant* variant = plan_.Find(&status);
    if (variant == nullptr) return status;
    if (variant->plan == nullptr) return plan_.Missing("plan");
    const kvr_device c_device = ToC(device);
    const kvr_plan_request request = {sizeof(kvr_plan_request),
                                      static_cast<uint32_t>(axes.size()),
                                      static_cast<uint32_t>(tunable_values.size()),
                                      static_cast<uint32_t>(values.size()),
                                      axes.data(),
                                      tunable_values.data(),
                                      &c_device};
    for (int64_t& value : values) value = 0;
    return CallC(
        *plan_.library(), [this] { return plan_.Function("plan"); },
        [&](char* error, size_t size) {
          return variant->plan(&request, values.data(), error, size);
        });
  }

  absl::StatusOr<std::unique_ptr<LaunchFunction>> Open(
      const DeviceInfo& device, absl::Span<const int64_t> tunable_values) const override {
    KVR_RETURN_IF_ERROR(Load());
    absl::Status status;
    const kvr_variant* variant = launch_->exists() ? launch_->Find(&status) : nullptr;
    if (variant == nullptr) {
      return Error(absl::StatusCode::kInternal, "this variant has no launch function",
                   "open only what states launch_function = true");
    }
    void* state = nullptr;
    if (variant->open != nullptr) {
      const kvr_device c_device = ToC(device);
      KVR_RETURN_IF_ERROR(CallC(
          *launch_->library(), [this] { return launch_->Function("open"); },
          [&](char* error, size_t size) {
            return variant->open(&c_device, tunable_values.data(),
                                 static_cast<uint32_t>(tunable_values.size()), &state, error, size);
          }));
    }
    return std::make_unique<PluginLaunchFunction>(launch_, *variant, state);
  }

 private:
  VariantEntry plan_;
  std::shared_ptr<const VariantEntry> launch_;
};

std::vector<kvr_tensor> ToC(absl::Span<const TensorView> views) {
  std::vector<kvr_tensor> tensors;
  for (const TensorView& view : views) tensors.push_back(ToC(view));
  return tensors;
}

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
    const std::vector<TensorView> shapes = TensorShapes(spec_, axes);
    std::vector<ReferenceOutput> outputs(spec_.outputs.size());
    std::vector<kvr_expected> expected;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto elements = static_cast<size_t>(shapes[spec_.inputs.size() + i].elements());
      outputs[i].expected.resize(elements);
      outputs[i].bound.resize(elements);
      expected.push_back({outputs[i].expected.data(), outputs[i].bound.data(), 0});
    }
    // On copies of the pointers: those that come back are not looked at.
    std::vector<kvr_expected> given = expected;
    KVR_RETURN_IF_ERROR(CallC(
        *library_, [this] { return Function("reference"); },
        [&](char* error, size_t size) {
          return code->reference(axes.data(), AxisCount(), tensors.data(),
                                 static_cast<uint32_t>(tensors.size()),
                                 static_cast<uint32_t>(threads), given.data(),
                                 static_cast<uint32_t>(given.size()), error, size);
        }));
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].cosine_limit = given[i].cosine_limit;
      KVR_RETURN_IF_ERROR(Check(outputs[i], spec_.outputs[i].name));
    }
    return outputs;
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
                    StrCat("add a kvr_operation of this name; ", Names(names)));
    }
    for (const auto& [kind, missing] : {std::pair("generate", code->generate == nullptr),
                                        std::pair("reference", code->reference == nullptr)}) {
      if (missing) {
        return Refuse(StrCat(Function(kind), " is null"), "set it in the kvr_operation");
      }
    }
    return code;
  }

  absl::Status Check(const ReferenceOutput& output, std::string_view name) const {
    const auto refuse = [&](std::string_view what, double value, std::string_view fix) {
      return Refuse(StrCat(Function("reference"), ": output '", name, "': ", what, " ", value),
                    fix);
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

  const OpSpec spec_;
  const LibraryPtr library_;
};

}  // namespace

std::shared_ptr<const VariantCode> MakeVariantCode(std::string op, bundle::CodeEntry plan,
                                                   bundle::CodeEntry launch) {
  return std::make_shared<const PluginVariantCode>(op, std::move(plan), std::move(launch));
}

std::unique_ptr<Operation> MakePluginOperation(OpSpec spec, LibraryPtr library) {
  return std::make_unique<PluginOperation>(std::move(spec), std::move(library));
}

}  // namespace kvr
