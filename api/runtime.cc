// SPDX-License-Identifier: Apache-2.0
#include "api/runtime.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "api/log.h"
#include "api/metrics.h"
#include "api/platform.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/cuda/cuda.h"

namespace kvr {
namespace {

// Counts and logs what the journal is told.
class ObservedJournal : public PublicationSink {
 public:
  ObservedJournal(std::shared_ptr<Metrics> metrics, std::shared_ptr<Log> log,
                  std::shared_ptr<RecentPublications> recent, std::shared_ptr<PublicationSink> next)
      : metrics_(std::move(metrics)),
        log_(std::move(log)),
        recent_(std::move(recent)),
        next_(std::move(next)) {}
  void Record(const PublicationRecord& record) override {
    recent_->Add(record);
    metrics_->CountPublication(record);
    if (log_ != nullptr) log_->Publish(record);
    if (next_ != nullptr) next_->Record(record);
  }
  uint64_t lost() const override { return next_ == nullptr ? 0 : next_->lost(); }

 private:
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<Log> log_;
  const std::shared_ptr<RecentPublications> recent_;
  const std::shared_ptr<PublicationSink> next_;
};

// The journal that the options name. Only one that was asked for must be there.
absl::StatusOr<std::unique_ptr<PublicationSink>> OpenJournal(const RuntimeOptions& options) {
  const bool asked = !options.journal.empty();
  if (options.journal == "none" || (!asked && options.selection_file.empty())) return nullptr;
  absl::StatusOr<std::unique_ptr<PublicationSink>> journal =
      OpenPublicationFile(asked ? options.journal : StrCat(options.selection_file, ".journal"));
  if (!asked && !journal.ok()) return nullptr;
  return journal;
}

}  // namespace

Runtime::Runtime()
    : metrics_(std::make_shared<Metrics>()),
      publications_(std::make_shared<RecentPublications>()) {}

// In this order: who asks a dispatcher, what it holds, then its device, then what built both.
Runtime::~Runtime() {
  if (log_ != nullptr) log_->StopWatching();
  dispatcher_.reset();
  device_.reset();
  platform_.reset();
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Open(const RuntimeOptions& options) {
  std::unique_ptr<Runtime> runtime(new Runtime());
  KVR_ASSIGN_OR_RETURN(runtime->log_, Log::FromEnvironment());
  KVR_ASSIGN_OR_RETURN(runtime->platform_, Platform::Open({.plugin_roots = options.plugin_roots,
                                                           .cache_dir = options.cache_dir,
                                                           .cache_layers = options.cache_layers,
                                                           .compilers = options.compilers,
                                                           .warn = options.warn}));
  Platform& platform = *runtime->platform_;
  if (options.cuda_context != nullptr) {
    KVR_ASSIGN_OR_RETURN(runtime->device_, OpenCudaContext(options.cuda_context));
  } else {
    KVR_ASSIGN_OR_RETURN(runtime->device_, platform.OpenDevice(options.device));
  }

  DispatcherOptions dispatch{.miss_policy = options.miss_policy,
                             .approximate = options.approximate};
  const Catalog& catalog = platform.catalog();
  KVR_RETURN_IF_ERROR(CheckOptIns(catalog, options.approximate));
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
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<PublicationSink> journal, OpenJournal(options));
  runtime->SetJournal(std::move(journal));
  if (!options.selection_file.empty()) {
    KVR_ASSIGN_OR_RETURN(
        LoadedSelections selections,
        ReadSelectionFile(options.selection_file, catalog, runtime->device_->info()));
    runtime->dropped_ = std::move(selections.dropped);
    KVR_RETURN_IF_ERROR(runtime->dispatcher_
                            ->Publish(std::move(selections.generation),
                                      {.trigger = "boot", .reason = options.selection_file})
                            .status());
  }
  if (Log* log = runtime->log()) {
    const GenerationPtr generation = runtime->generation();
    log->Boot(runtime->device_->info().name, options.selection_file,
              generation == nullptr ? "" : generation->digest().Hex());
    KVR_RETURN_IF_ERROR(
        log->WatchMisses([&dispatcher = *runtime->dispatcher_] { return dispatcher.misses(); }));
  }
  return runtime;
}

absl::StatusOr<LoadReport> Runtime::Load(std::string_view op, absl::Span<const Axes> shapes) {
  const absl::Time start = absl::Now();
  KVR_ASSIGN_OR_RETURN(LoadReport report, dispatcher().Load(op, shapes));
  const absl::Duration took = absl::Now() - start;
  metrics_->CountLoad(absl::ToDoubleSeconds(took), report.ready());
  if (log_ != nullptr) log_->Load(op, report, absl::ToDoubleMilliseconds(took));
  return report;
}

void RecentPublications::Add(const PublicationRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  records_.push_front(record);
  if (records_.size() > kMost) records_.pop_back();
}

std::vector<PublicationRecord> RecentPublications::Read() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {records_.begin(), records_.end()};
}

void Runtime::SetJournal(std::shared_ptr<PublicationSink> journal) {
  dispatcher().SetJournal(
      std::make_shared<ObservedJournal>(metrics_, log_, publications_, std::move(journal)));
}

}  // namespace kvr
