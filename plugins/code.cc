// SPDX-License-Identifier: Apache-2.0
#include "plugins/code.h"

#include <atomic>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/c_call.h"
#include "plugins/reference_call.h"

namespace kvr {
namespace {

using LibraryPtr = std::shared_ptr<const PluginLibrary>;

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
                 StrCat("add a kvr_variant of this op and name; ", ItHas(names)));
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
  PluginVariantCode(OpSpec op, const std::vector<Tunable>& tunables, bundle::CodeEntry plan,
                    bundle::CodeEntry launch, bundle::CodeEntry reference)
      : op_(std::move(op)),
        plan_(op_.name, std::move(plan)),
        launch_(std::make_shared<const VariantEntry>(op_.name, std::move(launch))),
        reference_(op_.name, std::move(reference)) {
    for (const Tunable& tunable : tunables) {
      is_quality_.push_back(tunable.scope == Scope::kQuality);
    }
  }

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

  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector& axes,
                                                         absl::Span<const int64_t> tunable_values,
                                                         absl::Span<const TensorView> inputs,
                                                         int threads) const override {
    if (!reference_.exists()) return VariantCode::Reference(axes, tunable_values, inputs, threads);
    absl::Status status;
    const kvr_variant* variant = reference_.Find(&status);
    if (variant == nullptr) return status;
    if (variant->reference == nullptr) return reference_.Missing("reference");
    if (tunable_values.size() != is_quality_.size()) {
      return Error(absl::StatusCode::kInternal,
                   StrCat(tunable_values.size(), " values for ", is_quality_.size(), " tunables"),
                   "use Variant::TunableValues");
    }
    std::vector<int64_t> quality;
    for (size_t i = 0; i < tunable_values.size(); ++i) {
      if (is_quality_[i]) quality.push_back(tunable_values[i]);
    }
    const std::vector<kvr_tensor> tensors = ToC(inputs);
    return Referred(*reference_.library(), reference_.Function("reference"), op_, axes,
                    [&](kvr_expected* outputs, uint32_t count, char* error, size_t size) {
                      return variant->reference(
                          axes.data(), static_cast<uint32_t>(op_.axes.size()), quality.data(),
                          static_cast<uint32_t>(quality.size()), tensors.data(),
                          static_cast<uint32_t>(tensors.size()), static_cast<uint32_t>(threads),
                          outputs, count, error, size);
                    });
  }

 private:
  OpSpec op_;
  std::vector<bool> is_quality_;  // by tunable
  VariantEntry plan_;
  std::shared_ptr<const VariantEntry> launch_;
  VariantEntry reference_;
};

}  // namespace

std::shared_ptr<const VariantCode> MakeVariantCode(const OpSpec& op,
                                                   const std::vector<Tunable>& tunables,
                                                   bundle::CodeEntry plan, bundle::CodeEntry launch,
                                                   bundle::CodeEntry reference) {
  return std::make_shared<const PluginVariantCode>(op, tunables, std::move(plan), std::move(launch),
                                                   std::move(reference));
}

}  // namespace kvr
