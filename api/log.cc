// SPDX-License-Identifier: Apache-2.0
#include "api/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/thread.h"
#include "registry/dispatcher.h"

namespace kvr {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::chrono::seconds kMissPeriod{1};

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

absl::Status UnknownLevel(std::string_view level) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("KVR_LOG is ", Quoted(level)),
               "give info or debug; leave it unset for no log");
}

}  // namespace

struct Log::Impl {
  Impl(spdlog::sink_ptr sink, spdlog::level::level_enum level) : logger("kvr", std::move(sink)) {
    logger.set_level(level);
    logger.set_pattern("%v");
    logger.flush_on(level);
    logger.set_error_handler([](const std::string&) {});
  }

  void Write(spdlog::level::level_enum level, std::string_view event, Json fields) {
    if (!logger.should_log(level)) return;
    const spdlog::string_view_t name = spdlog::level::to_string_view(level);
    Json line = {{"time", Now()},
                 {"level", std::string(name.data(), name.size())},
                 {"event", std::string(event)}};
    line.update(fields);
    logger.log(level, line.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void TellMisses() {
    for (const Miss& miss : misses()) {
      const std::string key = JoinPairs(miss.key);
      if (!told.insert(StrCat(miss.op, " ", key)).second) continue;
      Write(spdlog::level::warn, "miss",
            {{"op", miss.op},
             {"key", key},
             {"reason", StrCat(MissReasonName(miss.reason))},
             {"count", miss.count}});
    }
  }

  void Watch() {
    std::unique_lock lock(mutex);
    do {
      wake.wait_for(lock, kMissPeriod, [this] { return ending; });
      TellMisses();
    } while (!ending);
  }

  spdlog::logger logger;
  std::function<std::vector<Miss>()> misses;
  std::set<std::string> told;
  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false;
  std::thread watcher;
};

absl::StatusOr<std::unique_ptr<Log>> Log::FromEnvironment() {
  const char* level = std::getenv("KVR_LOG");
  if (level == nullptr || *level == '\0') return nullptr;
  const char* file = std::getenv("KVR_LOG_FILE");
  return Open(level, file == nullptr ? "" : file);
}

absl::StatusOr<std::unique_ptr<Log>> Log::Open(std::string_view level, const std::string& file) {
  if (level != "info" && level != "debug") return UnknownLevel(level);
  spdlog::sink_ptr sink;
  try {
    if (file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    }
  } catch (const spdlog::spdlog_ex& failure) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("the log file ", Quoted(file), " cannot be written: ", failure.what()),
                 "let KVR_LOG_FILE name a file that can be, or leave it unset for standard error");
  }
  return std::unique_ptr<Log>(new Log(std::make_unique<Impl>(
      std::move(sink), level == "debug" ? spdlog::level::debug : spdlog::level::info)));
}

Log::Log(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Log::~Log() { StopWatching(); }

void Log::StopWatching() {
  if (!impl_->watcher.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->wake.notify_one();
  impl_->watcher.join();
}

void Log::Boot(std::string_view device, std::string_view selection_file, std::string_view digest) {
  impl_->Write(spdlog::level::info, "boot",
               {{"device", std::string(device)},
                {"selection_file", std::string(selection_file)},
                {"digest", std::string(digest)}});
}

void Log::Load(std::string_view op, const LoadReport& report, double milliseconds) {
  Json failed = Json::array();
  int compiled = 0;
  for (const LoadItem& item : report.items) {
    if (item.status.ok()) {
      if (item.is_compiled && !item.cache_hit) ++compiled;
      continue;
    }
    failed.push_back(StrCat(JoinPairs(item.key), ": ", What(item.status)));
  }
  const bool ready = report.ready();
  impl_->Write(ready ? spdlog::level::info : spdlog::level::warn, "load",
               {{"op", std::string(op)},
                {"keys", report.items.size()},
                {"compiled", compiled},
                {"ready", ready},
                {"failed", std::move(failed)},
                {"workspace_bytes", report.workspace_bytes},
                {"ms", milliseconds}});
}

void Log::Publish(const PublicationRecord& record) {
  impl_->Write(record.outcome == "published" ? spdlog::level::info : spdlog::level::warn, "publish",
               {{"trigger", record.trigger},
                {"who", record.who},
                {"before", record.before},
                {"after", record.after},
                {"changes", record.changes},
                {"outcome", record.outcome},
                {"reason", record.reason},
                {"prepare_ms", record.prepare_ms}});
}

void Log::Apply(const Applied& applied) {
  if (applied.outcome == Applied::kUnchanged) return;
  if (applied.outcome == Applied::kNeedsRecapture) {
    impl_->Write(spdlog::level::warn, "recapture", {{"reason", applied.reason}});
    return;
  }
  impl_->Write(spdlog::level::debug, "apply",
               {{"digest", applied.digest.Hex()},
                {"nodes", applied.nodes},
                {"way", applied.whole_graph ? "graph" : "node"},
                {"us", applied.microseconds}});
}

absl::Status Log::WatchMisses(std::function<std::vector<Miss>()> misses) {
  impl_->misses = std::move(misses);
  impl_->ending = false;
  KVR_ASSIGN_OR_RETURN(impl_->watcher, StartThread([impl = impl_.get()] { impl->Watch(); }));
  return absl::OkStatus();
}

}  // namespace kvr
