// SPDX-License-Identifier: Apache-2.0
//
// kvr.h: captures and what they end in; streams and graphs of the device.
#include <utility>

#include "api/kvr_c.h"
#include "api/metrics.h"

using namespace kvr;     // NOLINT(google-build-using-namespace)
using namespace kvr::c;  // NOLINT(google-build-using-namespace)

namespace {

constexpr size_t kCaptureV1 = offsetof(kvr_capture_options, keeps_graph) + sizeof(int32_t);
constexpr size_t kAppliedV1 = sizeof(kvr_applied);

absl::Status GiveDigest(const Fingerprint& digest, char* out) {
  if (out == nullptr) return NullArgument("digest");
  CopyText(digest.Hex(), out, KVR_DIGEST_SIZE);
  return absl::OkStatus();
}

void Tell(OpenRuntime& kvr, const Applied& applied) {
  const std::lock_guard<std::mutex> lock(kvr.live_mutex);
  if (kvr.live != nullptr) {
    kvr.live->CountApplied(applied);
  } else if (applied.outcome != Applied::kUnchanged) {
    kvr.runtime->metrics().CountApplied(applied);
  }
}

Device& DeviceOf(const RuntimePtr& kvr) { return kvr->runtime->device(); }

}  // namespace

// --- captures ------------------------------------------------------------------------------------

kvr_code kvr_capture_open(kvr_runtime* runtime, void* stream, const kvr_capture_options* options,
                          kvr_scope** scope) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (scope == nullptr) return NullArgument("scope");
    kvr_capture_options given{};
    KVR_RETURN_IF_ERROR(ReadStruct(options, "kvr_capture_options", kCaptureV1, &given));
    if (given.spare_nodes < 0) {
      return Error(absl::StatusCode::kInvalidArgument, StrCat(given.spare_nodes, " spare nodes"),
                   "ask for 0 or more");
    }
    KVR_ASSIGN_OR_RETURN(
        std::unique_ptr<CaptureScope> opened,
        kvr->runtime->OpenCapture(Stream{stream}, {.pool = std::string(Text(given.pool)),
                                                   .spare_nodes = given.spare_nodes,
                                                   .keeps_graph = given.keeps_graph != 0}));
    return Make(scope, kvr, std::move(opened));
  });
}

kvr_code kvr_capture_finish(kvr_scope* scope, kvr_binding** binding) {
  return Guard([&]() -> absl::Status {
    KVR_ASSIGN_OR_RETURN(const std::unique_ptr<OpenScope> open, Take(scope));
    if (binding == nullptr) return NullArgument("binding");
    KVR_ASSIGN_OR_RETURN(GraphBinding finished, open->scope->Finish());
    return Make(binding, open->kvr, std::move(finished));
  });
}

kvr_code kvr_capture_drop(kvr_scope* scope) { return Close(scope); }

kvr_code kvr_binding_apply(kvr_binding* binding, void* exec, const char* digest,
                           kvr_applied* applied) {
  return With(binding, [&](OpenBinding& handle) -> absl::Status {
    if (applied != nullptr) {
      KVR_RETURN_IF_ERROR(
          CheckSize("kvr_applied", applied->struct_size, kAppliedV1, sizeof(kvr_applied)));
    }
    absl::StatusOr<Applied> done;
    if (digest == nullptr) {
      done = handle.binding.Apply(GraphExec{exec});
    } else {
      KVR_ASSIGN_OR_RETURN(const Fingerprint wanted, Fingerprint::FromHex(digest));
      done = handle.binding.Apply(GraphExec{exec}, wanted);
    }
    KVR_RETURN_IF_ERROR(done.status());
    Tell(*handle.kvr, *done);
    if (applied == nullptr) {
      if (done->outcome != Applied::kNeedsRecapture) return absl::OkStatus();
      return Error(absl::StatusCode::kFailedPrecondition, done->reason,
                   "capture this graph again; until then it runs what it ran");
    }
    kvr_applied out{};
    out.outcome = done->outcome;
    out.nodes = done->nodes;
    out.whole_graph = done->whole_graph ? 1 : 0;
    out.microseconds = done->microseconds;
    CopyText(done->digest.Hex(), out.digest, sizeof out.digest);
    CopyText(done->reason, out.reason, sizeof out.reason);
    return WriteStruct(out, "kvr_applied", kAppliedV1, applied);
  });
}

static_assert(KVR_UNCHANGED == static_cast<int>(Applied::kUnchanged) &&
              KVR_APPLIED == static_cast<int>(Applied::kApplied) &&
              KVR_NEEDS_RECAPTURE == static_cast<int>(Applied::kNeedsRecapture));

kvr_code kvr_binding_digest(kvr_binding* binding, void* exec, char digest[KVR_DIGEST_SIZE]) {
  return With(binding, [&](OpenBinding& handle) {
    return GiveDigest(handle.binding.digest(GraphExec{exec}), digest);
  });
}

kvr_code kvr_binding_forget(kvr_binding* binding, void* exec) {
  return With(binding, [&](OpenBinding& handle) {
    handle.binding.Forget(GraphExec{exec});
    return absl::OkStatus();
  });
}

kvr_code kvr_binding_close(kvr_binding* binding) { return Close(binding); }

kvr_code kvr_generation(kvr_runtime* runtime, int64_t* number, char digest[KVR_DIGEST_SIZE]) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    const GenerationPtr generation = kvr->runtime->generation();
    if (digest != nullptr) KVR_RETURN_IF_ERROR(GiveDigest(generation->digest(), digest));
    if (number != nullptr) *number = generation->number();
    return absl::OkStatus();
  });
}

// --- streams and graphs --------------------------------------------------------------------------

kvr_code kvr_stream_create(kvr_runtime* runtime, void** stream) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (stream == nullptr) return NullArgument("stream");
    KVR_ASSIGN_OR_RETURN(const Stream made, DeviceOf(kvr).CreateStream());
    *stream = made.handle;
    return absl::OkStatus();
  });
}

kvr_code kvr_stream_destroy(kvr_runtime* runtime, void* stream) {
  return With(runtime, [&](RuntimePtr& kvr) {
    if (stream != nullptr) DeviceOf(kvr).DestroyStream(Stream{stream});
    return absl::OkStatus();
  });
}

kvr_code kvr_stream_synchronize(kvr_runtime* runtime, void* stream) {
  return With(runtime, [&](RuntimePtr& kvr) { return DeviceOf(kvr).Synchronize(Stream{stream}); });
}

kvr_code kvr_stream_wait(kvr_runtime* runtime, void* stream, void* earlier) {
  return With(runtime,
              [&](RuntimePtr& kvr) { return DeviceOf(kvr).Wait(Stream{stream}, Stream{earlier}); });
}

kvr_code kvr_stream_begin_capture(kvr_runtime* runtime, void* stream) {
  return With(runtime, [&](RuntimePtr& kvr) {
    return DeviceOf(kvr).BeginCapture(Stream{stream}, CaptureMode::kThreadLocal);
  });
}

kvr_code kvr_stream_end_capture(kvr_runtime* runtime, void* stream, int32_t keep_graph,
                                kvr_graph** graph) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    // Whatever follows, the capture ends.
    KVR_ASSIGN_OR_RETURN(std::unique_ptr<Graph> ended,
                         DeviceOf(kvr).EndCapture(Stream{stream}, keep_graph != 0));
    if (graph == nullptr) return NullArgument("graph");
    return Make(graph, kvr, std::move(ended));
  });
}

kvr_code kvr_graph_exec(kvr_graph* graph, void** exec) {
  return With(graph, [&](OpenGraph& handle) -> absl::Status {
    if (exec == nullptr) return NullArgument("exec");
    *exec = handle.graph->exec().handle;
    return absl::OkStatus();
  });
}

kvr_code kvr_graph_launch(kvr_graph* graph, void* stream) {
  return With(graph, [&](OpenGraph& handle) { return handle.graph->Launch(Stream{stream}); });
}

kvr_code kvr_graph_close(kvr_graph* graph) { return Close(graph); }
