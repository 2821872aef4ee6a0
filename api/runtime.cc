// SPDX-License-Identifier: Apache-2.0
#include "api/runtime.h"

#include <utility>

#include "api/platform.h"
#include "core/names.h"
#include "core/status.h"

namespace kvr {

Runtime::Runtime() = default;

// In this order: what a dispatcher holds, then its device, then what built both.
Runtime::~Runtime() {
  dispatcher_.reset();
  device_.reset();
  platform_.reset();
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Open(const RuntimeOptions& options) {
  std::unique_ptr<Runtime> runtime(new Runtime());
  KVR_ASSIGN_OR_RETURN(runtime->platform_, Platform::Open({.plugin_roots = options.plugin_roots,
                                                           .cache_dir = options.cache_dir,
                                                           .cache_layers = options.cache_layers,
                                                           .compilers = options.compilers}));
  Platform& platform = *runtime->platform_;
  KVR_ASSIGN_OR_RETURN(runtime->device_, platform.OpenDevice(options.device));

  DispatcherOptions dispatch{.miss_policy = options.miss_policy,
                             .approximate = options.approximate};
  const Catalog& catalog = platform.catalog();
  if (options.environment) {
    KVR_ASSIGN_OR_RETURN(dispatch.overrides, Overrides::FromEnvironment(catalog));
  }
  if (const ForcedOp& forced = options.forced; !forced.op.empty()) {
    if (!forced.variant.empty()) {
      KVR_RETURN_IF_ERROR(dispatch.overrides.Force(catalog, forced.op, forced.variant));
    }
    for (const std::string& text : forced.tunables) {
      KVR_ASSIGN_OR_RETURN(const auto assignments,
                           ParseAssignments(text, "tunable", /*negative=*/true));
      for (const auto& [name, value] : assignments) {
        KVR_RETURN_IF_ERROR(dispatch.overrides.Set(catalog, forced.op, name, value));
      }
    }
  }
  runtime->dispatcher_ =
      std::make_unique<Dispatcher>(catalog, *runtime->device_, platform.jit(), std::move(dispatch));
  if (!options.selection_file.empty()) {
    KVR_ASSIGN_OR_RETURN(
        LoadedSelections selections,
        ReadSelectionFile(options.selection_file, catalog, runtime->device_->info()));
    runtime->dropped_ = std::move(selections.dropped);
    KVR_RETURN_IF_ERROR(runtime->dispatcher_->Publish(std::move(selections.generation)).status());
  }
  return runtime;
}

}  // namespace kvr
