// SPDX-License-Identifier: Apache-2.0
//
// What the sources of kvr.h share: what handles stand for, and the way in: every function of kvr.h
// is one call of Guard, With or Close, so nothing throws and every failure is remembered.
//
//   kvr_code kvr_freeze(kvr_runtime* runtime) {
//     return With(runtime, [](RuntimePtr& kvr) { kvr->runtime->Freeze(); return absl::OkStatus();
//     });
//   }
//
// Threading: the last error is the thread's own. Ownership: what is made of a runtime holds it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/kvr.h"
#include "api/kvr_c_handles.h"
#include "api/live.h"
#include "api/runtime.h"
#include "api/swap.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/status.h"
#include "core/strings.h"
#include "nlohmann/json_fwd.hpp"

namespace kvr::c {

using Json = nlohmann::ordered_json;

struct OpenRuntime {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::unique_ptr<Runtime> runtime;
  std::vector<std::string> plugin_roots;

  std::mutex mutex;
  std::unique_ptr<Swapper> swapper;  // made when first asked for: it has a thread
  absl::StatusOr<Swapper*> GetSwapper();

  std::mutex live_mutex;
  Live* live = nullptr;  // is told what is applied
};
using RuntimePtr = std::shared_ptr<OpenRuntime>;

// Members end in reverse order, the runtime last.
struct OpenBound {
  RuntimePtr kvr;
  const OpSpec* op;
  std::vector<TensorView> shapes;  // as bound; data is not looked at
  BoundLaunch launch;
};
struct OpenScope {
  RuntimePtr kvr;
  std::unique_ptr<CaptureScope> scope;
};
struct OpenBinding {
  RuntimePtr kvr;
  GraphBinding binding;
};
struct OpenLive {
  RuntimePtr kvr;
  std::unique_ptr<Live> live;

  OpenLive(RuntimePtr of, std::unique_ptr<Live> started);
  ~OpenLive();
};
struct OpenGraph {
  RuntimePtr kvr;
  std::unique_ptr<Graph> graph;
};

template <typename Handle>
struct HandleTraits;
#define KVR_HANDLE(type, object, handle_kind, text)                \
  template <>                                                      \
  struct HandleTraits<type> {                                      \
    using Object = object;                                         \
    static constexpr HandleKind kKind = HandleKind::handle_kind;   \
    static constexpr std::string_view kName = #type, kFrom = text; \
  }
KVR_HANDLE(kvr_runtime, RuntimePtr, kRuntime, "kvr_open");
KVR_HANDLE(kvr_bound, OpenBound, kBound, "kvr_bind");
KVR_HANDLE(kvr_scope, OpenScope, kScope, "kvr_capture_open");
KVR_HANDLE(kvr_binding, OpenBinding, kBinding, "kvr_capture_finish");
KVR_HANDLE(kvr_live, OpenLive, kLive, "kvr_live_start");
KVR_HANDLE(kvr_graph, OpenGraph, kGraph, "kvr_stream_end_capture");
#undef KVR_HANDLE

// Remembers `status` as the thread's last error.
kvr_code Fail(const absl::Status& status) noexcept;
absl::Status NoSuchHandle(const void* handle, std::string_view type, std::string_view from);
absl::Status NullArgument(std::string_view name);

template <typename Body>
kvr_code Guard(Body&& body) noexcept {
  try {
    const absl::Status status = body();
    return status.ok() ? KVR_CODE_OK : Fail(status);
  } catch (const std::bad_alloc&) {
    return Fail(absl::ResourceExhaustedError("out of host memory"));
  } catch (const std::exception& error) {
    return Fail(absl::InternalError(error.what()));
  } catch (...) {
    return Fail(absl::InternalError("an exception of unknown type"));
  }
}

template <typename Handle, typename Body>
kvr_code With(Handle* handle, Body&& body) noexcept {
  using Traits = HandleTraits<Handle>;
  return Guard([&]() -> absl::Status {
    void* object = FindHandle(Traits::kKind, handle);
    if (object == nullptr) return NoSuchHandle(handle, Traits::kName, Traits::kFrom);
    return body(*static_cast<typename Traits::Object*>(object));
  });
}

// The object, which has no handle any more.
template <typename Handle>
absl::StatusOr<std::unique_ptr<typename HandleTraits<Handle>::Object>> Take(Handle* handle) {
  using Traits = HandleTraits<Handle>;
  void* object = TakeHandle(Traits::kKind, handle);
  if (object == nullptr) return NoSuchHandle(handle, Traits::kName, Traits::kFrom);
  return std::unique_ptr<typename Traits::Object>(static_cast<typename Traits::Object*>(object));
}

template <typename Handle>
kvr_code Close(Handle* handle) noexcept {
  if (handle == nullptr) return KVR_CODE_OK;
  return Guard([&] { return Take(handle).status(); });
}

template <typename Handle, typename... Parts>
absl::Status Make(Handle** handle, Parts&&... parts) {
  using Traits = HandleTraits<Handle>;
  std::unique_ptr<typename Traits::Object> object(
      new typename Traits::Object{std::forward<Parts>(parts)...});
  void* made = MakeHandle(Traits::kKind, object.get());
  if (made == nullptr) {
    return Error(absl::StatusCode::kResourceExhausted, StrCat("too many handles are open"),
                 "close those that are not used any more");
  }
  static_cast<void>(object.release());
  *handle = static_cast<Handle*>(made);
  return absl::OkStatus();
}

// Structs. `oldest` is the size of the first version; what the caller does not know stays 0.
absl::Status CheckSize(std::string_view name, size_t size, size_t oldest, size_t known);

template <typename T>
absl::Status ReadStruct(const T* given, std::string_view name, size_t oldest, T* out) {
  if (given == nullptr) return absl::OkStatus();
  KVR_RETURN_IF_ERROR(CheckSize(name, given->struct_size, oldest, sizeof(T)));
  std::memcpy(out, given, given->struct_size);
  return absl::OkStatus();
}

template <typename T>
absl::Status WriteStruct(T from, std::string_view name, size_t oldest, T* out) {
  KVR_RETURN_IF_ERROR(CheckSize(name, out->struct_size, oldest, sizeof(T)));
  from.struct_size = out->struct_size;
  std::memcpy(out, &from, out->struct_size);
  return absl::OkStatus();
}

// "num_tokens=1..96,topk=512;..."
absl::StatusOr<std::vector<Axes>> ParseShapes(std::string_view text);
// What a C string says; "" for NULL.
inline std::string_view Text(const char* text) { return text == nullptr ? "" : text; }
std::vector<std::string> TextList(const char* const* list);  // ends with NULL
// Cut to the buffer.
void CopyText(std::string_view text, char* buffer, size_t size);

// Text for the caller, who may not want it.
absl::Status Give(std::string_view text, char** out);
absl::Status GiveJson(const Json& json, char** out);

// kvr_c_report.cc
Json ErrorJson(const absl::Status& status);
Json ReportJson(const LoadReport& report);
Json ScanJson(const Runtime& runtime);
Json DroppedJson(const std::vector<DroppedSelection>& dropped);
// The first thing of the report that failed.
absl::Status FirstFailure(const LoadReport& report);

}  // namespace kvr::c
