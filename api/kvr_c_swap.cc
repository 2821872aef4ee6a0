// SPDX-License-Identifier: Apache-2.0
//
// kvr.h: what serves, and how that changes: publishing, swaps, live control.
#include <utility>

#include "api/kvr_c.h"
#include "api/live_protocol.h"
#include "api/live_status.h"
#include "core/axes.h"
#include "nlohmann/json.hpp"

namespace kvr::c {

absl::StatusOr<Swapper*> OpenRuntime::GetSwapper() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (swapper == nullptr) {
    KVR_ASSIGN_OR_RETURN(swapper, OpenSwapper(*runtime, {.plugin_roots = plugin_roots}));
  }
  return swapper.get();
}

OpenLive::OpenLive(RuntimePtr of, std::unique_ptr<Live> started)
    : kvr(std::move(of)), live(std::move(started)) {
  const std::lock_guard<std::mutex> lock(kvr->live_mutex);
  kvr->live = live.get();
}

OpenLive::~OpenLive() {
  const std::lock_guard<std::mutex> lock(kvr->live_mutex);
  if (kvr->live == live.get()) kvr->live = nullptr;
}

}  // namespace kvr::c

using namespace kvr;     // NOLINT(google-build-using-namespace)
using namespace kvr::c;  // NOLINT(google-build-using-namespace)

namespace {

constexpr size_t kSwapV1 = offsetof(kvr_swap_options, who) + sizeof(void*);
constexpr size_t kLiveV1 = offsetof(kvr_live_options, name) + sizeof(void*);

absl::StatusOr<SwapRequest> RequestOf(const kvr_swap_options& given) {
  SwapRequest request;
  request.selection_file = Text(given.selection_file);
  request.op = Text(given.op);
  request.variant = Text(given.variant);
  request.bundle = Text(given.bundle);
  request.rollback = Text(given.rollback);
  const int named = !request.selection_file.empty() + !request.variant.empty() +
                    !request.bundle.empty() + !request.rollback.empty();
  if (named != 1 || request.op.empty() == !request.variant.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "a swap to nothing, or to more than one thing",
                 "give one of selection_file, bundle, rollback, or variant together with op");
  }
  if (given.keys != nullptr) {
    KVR_ASSIGN_OR_RETURN(request.keys, ParseShapes(given.keys));
  }
  request.verify = given.no_verify == 0;
  request.canary = given.canary != 0;
  request.who = Text(given.who);
  return request;
}

absl::Status Watch(OpenRuntime& kvr, const char* place,
                   absl::Status (Swapper::*watch)(const std::string&)) {
  if (place == nullptr) return NullArgument("path");
  KVR_ASSIGN_OR_RETURN(Swapper* const swapper, kvr.GetSwapper());
  return (swapper->*watch)(place);
}

// What was published, with what the file selects that could not be taken over.
absl::Status GiveReport(const absl::StatusOr<LoadReport>& report,
                        const std::vector<DroppedSelection>& dropped, char** out) {
  KVR_RETURN_IF_ERROR(report.status());
  Json json = ReportJson(*report);
  json["dropped"] = DroppedJson(dropped);
  return GiveJson(json, out);
}

}  // namespace

kvr_code kvr_publish_file(kvr_runtime* runtime, const char* selection_file, char** report) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (selection_file == nullptr) return NullArgument("selection_file");
    Runtime& own = *kvr->runtime;
    KVR_ASSIGN_OR_RETURN(LoadedSelections selections,
                         ReadSelectionFile(selection_file, own.catalog(), own.device().info()));
    return GiveReport(
        own.Publish(std::move(selections.generation),
                    {.trigger = "selection-file", .reason = std::string(selection_file)}),
        selections.dropped, report);
  });
}

kvr_code kvr_rollback(kvr_runtime* runtime, const char* digest, char** report) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    return GiveReport(kvr->runtime->Rollback(Text(digest), {.trigger = "rollback"}), {}, report);
  });
}

kvr_code kvr_swap(kvr_runtime* runtime, const kvr_swap_options* options, uint64_t* id) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (options == nullptr) return NullArgument("options");
    if (id == nullptr) return NullArgument("id");
    kvr_swap_options given{};
    KVR_RETURN_IF_ERROR(ReadStruct(options, "kvr_swap_options", kSwapV1, &given));
    KVR_ASSIGN_OR_RETURN(SwapRequest request, RequestOf(given));
    KVR_ASSIGN_OR_RETURN(Swapper* const swapper, kvr->GetSwapper());
    *id = swapper->Request(std::move(request));
    return absl::OkStatus();
  });
}

kvr_code kvr_swap_wait(kvr_runtime* runtime, uint64_t id, char** result) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    const RuntimePtr held = kvr;  // minutes, in which another thread may close the handle
    KVR_ASSIGN_OR_RETURN(Swapper* const swapper, held->GetSwapper());
    KVR_ASSIGN_OR_RETURN(const SwapResult done, swapper->Wait(id));
    KVR_RETURN_IF_ERROR(GiveJson(SwapJson(done), result));
    return done.status;
  });
}

kvr_code kvr_watch_bundles(kvr_runtime* runtime, const char* directory) {
  return With(runtime,
              [&](RuntimePtr& kvr) { return Watch(*kvr, directory, &Swapper::WatchBundles); });
}

kvr_code kvr_watch_selection_file(kvr_runtime* runtime, const char* path) {
  return With(runtime,
              [&](RuntimePtr& kvr) { return Watch(*kvr, path, &Swapper::WatchSelectionFile); });
}

kvr_code kvr_status(kvr_runtime* runtime, char** status) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    const std::chrono::duration<double> up = std::chrono::steady_clock::now() - kvr->start;
    const auto no_steps = std::make_unique<StepCounts>();  // kvr_live counts them
    const std::lock_guard<std::mutex> lock(kvr->mutex);
    return GiveJson(LiveStatusJson(*kvr->runtime, kvr->swapper.get(), *no_steps,
                                   {.uptime_s = up.count()}, /*selections=*/false),
                    status);
  });
}

kvr_code kvr_live_start(kvr_runtime* runtime, const kvr_live_options* options, kvr_live** live) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (live == nullptr) return NullArgument("live");
    kvr_live_options given{};
    KVR_RETURN_IF_ERROR(ReadStruct(options, "kvr_live_options", kLiveV1, &given));
    if (given.socket == nullptr) return NullArgument("options->socket");
    KVR_ASSIGN_OR_RETURN(Swapper* const swapper, kvr->GetSwapper());
    KVR_ASSIGN_OR_RETURN(std::unique_ptr<Live> started,
                         Live::Start(*kvr->runtime, swapper,
                                     {.socket = given.socket,
                                      .metrics = std::string(Text(given.metrics)),
                                      .name = std::string(Text(given.name))}));
    return Make(live, kvr, std::move(started));
  });
}

kvr_code kvr_live_begin_step(kvr_live* live, const char* bucket) {
  return With(live, [&](OpenLive& handle) { return handle.live->BeginStep(Text(bucket)); });
}

kvr_code kvr_live_end_step(kvr_live* live, const char* bucket, double microseconds) {
  return With(live, [&](OpenLive& handle) {
    handle.live->EndStep(Text(bucket), microseconds);
    return absl::OkStatus();
  });
}

kvr_code kvr_live_count_error(kvr_live* live) {
  return With(live, [](OpenLive& handle) {
    handle.live->CountError();
    return absl::OkStatus();
  });
}

kvr_code kvr_live_close(kvr_live* live) { return Close(live); }
