// SPDX-License-Identifier: Apache-2.0
//
// kvr.h: open, load and see; and what its other sources share.
#include "api/kvr_c.h"

#include <cstdlib>

#include "core/axes.h"
#include "core/config.h"
#include "core/names.h"
#include "nlohmann/json.hpp"

namespace kvr::c {
namespace {

// Plain pointers may be read whatever has happened; what they point at when memory is short is
// static.
struct LastError {
  std::string what, fix;
  const char* what_text = "";
  const char* fix_text = "";
};
thread_local LastError last_error;

constexpr size_t kOptionsV1 = offsetof(kvr_options, warn_context) + sizeof(void*);
constexpr size_t kCountersV1 = offsetof(kvr_counters, retired) + sizeof(uint64_t);

// Without being asked for, a ledger is no condition of serving.
void KeepInLedger(Runtime& runtime, const WarningSink& warn) {
  absl::StatusOr<std::unique_ptr<PublicationSink>> sink = OpenPublicationLedger(runtime);
  if (sink.ok()) {
    runtime.SetJournal(*std::move(sink));
  } else if (!absl::IsNotFound(sink.status())) {
    warn(StrCat("publications are not kept: ", What(sink.status()), "; ", Fix(sink.status())));
  }
}

absl::StatusOr<RuntimeOptions> OptionsOf(const kvr_options& given) {
  RuntimeOptions options;
  if (given.device != nullptr) options.device = given.device;
  options.cuda_context = given.cuda_context;
  options.plugin_roots = TextList(given.plugin_roots);
  options.selection_file = Text(given.selection_file);
  options.cache_dir = Text(given.cache_dir);
  options.cache_layers = TextList(given.cache_layers);
  if (given.miss_policy != nullptr) {
    KVR_ASSIGN_OR_RETURN(options.miss_policy, ParseMissPolicy(given.miss_policy));
  }
  options.compilers = given.no_compilers == 0;
  options.environment = given.no_environment == 0;
  options.forced = {.op = std::string(Text(given.forced_op)),
                    .variant = std::string(Text(given.forced_variant)),
                    .tunables = TextList(given.forced_tunables)};
  if (options.forced.op.empty() &&
      !(options.forced.variant.empty() && options.forced.tunables.empty())) {
    return Error(absl::StatusCode::kInvalidArgument, "something is forced, but forced_op is NULL",
                 "name the op that it is forced for");
  }
  for (const std::string& text : TextList(given.approximate)) {
    KVR_ASSIGN_OR_RETURN(options.approximate.emplace_back(), ParseOptIn(text));
  }
  options.warn = [warn = given.warn, context = given.warn_context](std::string_view text) {
    if (warn != nullptr) warn(context, std::string(text).c_str());
  };
  return options;
}

}  // namespace

kvr_code Fail(const absl::Status& status) noexcept {
  LastError& last = last_error;
  try {
    last.what = What(status);
    last.fix = Fix(status);
    last.what_text = last.what.c_str();
    last.fix_text = last.fix.c_str();
  } catch (...) {
    last.what_text = "out of host memory";
    last.fix_text = "";
  }
  return static_cast<kvr_code>(status.code());
}

absl::Status NoSuchHandle(const void* handle, std::string_view type, std::string_view from) {
  if (handle != nullptr && HandlesLostInFork()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat("this ", type, " was made before fork(), and this is the child"),
                 "open a runtime here, or fork before the first one is opened");
  }
  return Error(absl::StatusCode::kInvalidArgument,
               handle == nullptr ? StrCat("the ", type, "* is NULL")
                                 : StrCat("no open ", type, ": it was closed, or never one"),
               StrCat("pass what ", from, " gave, until it is closed"));
}

absl::Status NullArgument(std::string_view name) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("`", name, "` is NULL"),
               "kvr.h says what may be NULL");
}

absl::Status CheckSize(std::string_view name, size_t size, size_t oldest, size_t known) {
  if (size >= oldest && size <= known) return absl::OkStatus();
  if (size > known && size < 65536) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("this program's ", name, " has ", size, " bytes, and libkvr.so knows ",
                        known, ": the program was built with a newer kvr.h"),
                 "run it with the libkvr.so of that kvr.h, or a newer one");
  }
  return Error(absl::StatusCode::kInvalidArgument,
               StrCat(name, ".struct_size is ", size, ", and the struct has at least ", oldest),
               StrCat("zero the struct and set struct_size = sizeof(", name, ")"));
}

std::vector<std::string> TextList(const char* const* list) {
  std::vector<std::string> texts;
  for (; list != nullptr && *list != nullptr; ++list) texts.emplace_back(*list);
  return texts;
}

absl::StatusOr<std::vector<Axes>> ParseShapes(std::string_view text) {
  std::vector<Axes> shapes;
  for (std::string_view piece : Split(text, ';')) {
    if (Trim(piece).empty()) continue;
    KVR_ASSIGN_OR_RETURN(const std::vector<Axes> some, ExpandAxes(Trim(piece)));
    shapes.insert(shapes.end(), some.begin(), some.end());
  }
  return shapes;
}

void CopyText(std::string_view text, char* buffer, size_t size) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(buffer, text.data(), length);
  buffer[length] = '\0';
}

absl::Status Give(std::string_view text, char** out) {
  if (out == nullptr) return absl::OkStatus();
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  CopyText(text, copy, text.size() + 1);
  *out = copy;
  return absl::OkStatus();
}

absl::Status GiveJson(const Json& json, char** out) {
  // File names and compiler output need not be UTF-8.
  return Give(json.dump(-1, ' ', false, Json::error_handler_t::replace), out);
}

}  // namespace kvr::c

// --- the functions -------------------------------------------------------------------------------

using namespace kvr;     // NOLINT(google-build-using-namespace)
using namespace kvr::c;  // NOLINT(google-build-using-namespace)

int32_t kvr_abi_version(void) { return KVR_API_VERSION; }
const char* kvr_version(void) { return KVR_VERSION; }
const char* kvr_last_error(void) { return last_error.what_text; }
const char* kvr_last_fix(void) { return last_error.fix_text; }
void kvr_free(char* text) { std::free(text); }

const char* kvr_code_name(kvr_code code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<unsigned>(code);
  return index < std::size(kNames) ? kNames[index] : "no such code";
}

kvr_code kvr_open(const kvr_options* options, kvr_runtime** runtime) {
  return Guard([&]() -> absl::Status {
    if (runtime == nullptr) return NullArgument("runtime");
    kvr_options given{};
    KVR_RETURN_IF_ERROR(ReadStruct(options, "kvr_options", kOptionsV1, &given));
    if (given.device != nullptr && given.cuda_context != nullptr) {
      return Error(absl::StatusCode::kInvalidArgument, "both device and cuda_context are given",
                   "give one of them");
    }
    KVR_ASSIGN_OR_RETURN(RuntimeOptions opened, OptionsOf(given));
    auto kvr = std::make_shared<OpenRuntime>();
    kvr->plugin_roots = opened.plugin_roots;
    const bool in_ledger = given.journal == nullptr;
    opened.journal = in_ledger ? "none" : given.journal;
    KVR_ASSIGN_OR_RETURN(kvr->runtime, Runtime::Open(opened));
    if (in_ledger) KeepInLedger(*kvr->runtime, opened.warn);
    return Make(runtime, std::move(kvr));
  });
}

kvr_code kvr_close(kvr_runtime* runtime) { return Close(runtime); }

kvr_code kvr_scan(kvr_runtime* runtime, char** report) {
  return With(runtime, [&](RuntimePtr& kvr) { return GiveJson(ScanJson(*kvr->runtime), report); });
}

kvr_code kvr_load(kvr_runtime* runtime, const char* op, const char* shapes, char** report) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (op == nullptr) return NullArgument("op");
    KVR_ASSIGN_OR_RETURN(const std::vector<Axes> parsed, ParseShapes(Text(shapes)));
    if (shapes != nullptr && parsed.empty()) {
      return Error(absl::StatusCode::kInvalidArgument, "`shapes` names no shape",
                   "give one, as in num_tokens=1..96,topk=512, or NULL");
    }
    KVR_ASSIGN_OR_RETURN(const LoadReport loaded, kvr->runtime->Load(op, parsed));
    KVR_RETURN_IF_ERROR(GiveJson(ReportJson(loaded), report));
    return FirstFailure(loaded);
  });
}

kvr_code kvr_freeze(kvr_runtime* runtime) {
  return With(runtime, [](RuntimePtr& kvr) {
    kvr->runtime->Freeze();
    return absl::OkStatus();
  });
}

kvr_code kvr_thaw(kvr_runtime* runtime) {
  return With(runtime, [](RuntimePtr& kvr) {
    kvr->runtime->Thaw();
    return absl::OkStatus();
  });
}

kvr_code kvr_prepare_stream(kvr_runtime* runtime, void* stream, const char* pool) {
  return With(runtime,
              [&](RuntimePtr& kvr) { return kvr->runtime->PrepareStream({stream}, Text(pool)); });
}

kvr_code kvr_collect(kvr_runtime* runtime) {
  return With(runtime, [](RuntimePtr& kvr) {
    kvr->runtime->Collect();
    return absl::OkStatus();
  });
}

kvr_code kvr_count(kvr_runtime* runtime, kvr_counters* counters) {
  return With(runtime, [&](RuntimePtr& kvr) -> absl::Status {
    if (counters == nullptr) return NullArgument("counters");
    const Counters now = kvr->runtime->counters();
    kvr_counters out{};
    out.misses = now.misses;
    out.baseline = now.baseline;
    out.refused = now.refused;
    out.loaded_in_launch = now.loaded_in_launch;
    out.captured = now.captured;
    out.unscoped = now.unscoped;
    out.generations = now.generations;
    out.failed = now.failed;
    out.rollbacks = now.rollbacks;
    out.applied = now.applied;
    out.recaptures = now.recaptures;
    out.retired = now.retired;
    return WriteStruct(out, "kvr_counters", kCountersV1, counters);
  });
}
