// SPDX-License-Identifier: Apache-2.0
#include "api/live.h"

#include <utility>

#include "api/live_commands.h"
#include "api/live_server.h"
#include "api/log.h"
#include "api/metrics.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {

class Live::Impl {
 public:
  Impl(Runtime& runtime, Swapper* swapper, std::string name)
      : runtime_(runtime), commands_(runtime, swapper, std::move(name)) {}

  absl::Status Start(const LiveOptions& options) {
    if (!options.metrics.empty()) {
      KVR_ASSIGN_OR_RETURN(metrics_, MetricsServer::Start(options.metrics, [this] {
                             return MetricsText(runtime_);
                           }));
    }
    if (!options.socket.empty()) {
      KVR_ASSIGN_OR_RETURN(
          server_,
          LiveServer::Start(options.socket, [this](const LiveRequest& request, LiveTalk& talk) {
            return commands_.Handle(request, talk);
          }));
    }
    return absl::OkStatus();
  }

  void BeginStep() { commands_.alternation().BeginStep(); }
  void EndStep(std::string_view bucket, double microseconds) {
    commands_.alternation().EndStep(bucket, microseconds);
    commands_.steps().Count(bucket, microseconds);
    if (metrics_ != nullptr) runtime_.metrics().CountStep(bucket, microseconds);
  }
  void CountError() {
    commands_.alternation().CountError();
    commands_.steps().CountError();
    runtime_.metrics().CountStepError();
  }
  void CountApplied(const Applied& applied) {
    commands_.alternation().CountApplied(applied);
    if (applied.outcome == Applied::kUnchanged) return;
    runtime_.metrics().CountApplied(applied);
    if (Log* log = runtime_.log()) log->Apply(applied);
  }
  std::string metrics_address() const { return metrics_ == nullptr ? "" : metrics_->address(); }

 private:
  Runtime& runtime_;
  LiveCommands commands_;
  // Last: their threads end before what they use.
  std::unique_ptr<MetricsServer> metrics_;
  std::unique_ptr<LiveServer> server_;
};

absl::StatusOr<std::unique_ptr<Live>> Live::Start(Runtime& runtime, Swapper* swapper,
                                                  LiveOptions options) {
  auto impl = std::make_unique<Impl>(runtime, swapper, options.name);
  KVR_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<Live>(new Live(std::move(impl)));
}

Live::Live(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Live::~Live() = default;

absl::Status Live::BeginStep(std::string_view bucket) {
  if (bucket.empty() || bucket.size() > StepCounts::kLongestBucket) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("a bucket's name has ", bucket.size(), " bytes"),
                 StrCat("give 1 to ", StepCounts::kLongestBucket, ", a batch size say"));
  }
  impl_->BeginStep();
  return absl::OkStatus();
}
void Live::EndStep(std::string_view bucket, double microseconds) {
  impl_->EndStep(bucket, microseconds);
}
void Live::CountError() { impl_->CountError(); }
void Live::CountApplied(const Applied& applied) { impl_->CountApplied(applied); }
std::string Live::metrics_address() const { return impl_->metrics_address(); }

}  // namespace kvr
