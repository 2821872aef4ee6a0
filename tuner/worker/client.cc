// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/client.h"

#include <unistd.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/install_layout.h"
#include "core/status.h"
#include "core/throttle.h"

namespace kvr {
namespace {

// The last few lines, on one.
std::string LastWords(const std::string& stderr_text) {
  const std::vector<std::string> lines = absl::StrSplit(stderr_text, '\n', absl::SkipWhitespace());
  std::string words;
  for (size_t i = lines.size() > 3 ? lines.size() - 3 : 0; i < lines.size(); ++i) {
    absl::StrAppend(&words, words.empty() ? "" : " | ", lines[i].substr(0, 200));
  }
  return words;
}

// A death that is no item's.
absl::Status CannotPrepare(const Finding& finding) {
  return Error(absl::StatusCode::kUnavailable, finding.reason,
               "choose smaller axes if host memory is short, else correct that code");
}

}  // namespace

absl::StatusOr<std::string> FindWorker() {
  KVR_ASSIGN_OR_RETURN(const std::string worker,
                       FindPart({"kvr-worker", "KVR_WORKER", "bin/kvr-worker", "",
                                 "install kvr-worker there, or name it in KVR_WORKER"}));
  if (access(worker.c_str(), X_OK) == 0) return worker;
  return Error(absl::StatusCode::kPermissionDenied, absl::StrCat(worker, " cannot be run"),
               absl::StrCat("chmod a+x ", worker));
}

absl::StatusOr<std::unique_ptr<WorkerClient>> WorkerClient::Start(WorkerOptions options) {
  std::unique_ptr<WorkerClient> client(new WorkerClient(std::move(options)));
  client->executable_ = client->options_.executable;
  if (client->executable_.empty()) {
    KVR_ASSIGN_OR_RETURN(client->executable_, FindWorker());
  }
  KVR_RETURN_IF_ERROR(client->Spawn());
  return client;
}

WorkerClient::~WorkerClient() = default;

absl::Status WorkerClient::Spawn() {
  std::vector<std::string> arguments = {"--device", options_.device, "--parent",
                                        absl::StrCat(getpid())};
  if (options_.memory_bytes > 0) {
    arguments.insert(arguments.end(), {"--memory", absl::StrCat(options_.memory_bytes)});
  }
  for (const std::string& root : options_.plugin_roots) {
    arguments.insert(arguments.end(), {"--plugins", root});
  }
  for (const std::string& place : options_.replacements) {
    arguments.insert(arguments.end(), {"--replace", place});
  }
  KVR_ASSIGN_OR_RETURN(process_, ChildProcess::Spawn(executable_, arguments));
  ++respawns_;
  ++process_number_;
  calls_of_process_ = 0;
  std::string line;
  const absl::Time deadline = absl::Now() + absl::Seconds(options_.prepare_timeout_s);
  const ChildProcess::Read read = process_->ReadLine(&line, deadline, options_.cancel);
  if (read == ChildProcess::Read::kCancelled) return absl::CancelledError("cancelled");
  if (read != ChildProcess::Read::kLine) {
    const std::string how =
        read == ChildProcess::Read::kTimeout ? "did not start in time" : process_->End();
    const std::string words = LastWords(process_->StderrTail());
    process_.reset();
    return Error(absl::StatusCode::kUnavailable,
                 absl::StrCat("kvr-worker ", how, words.empty() ? "" : ": ", words),
                 "run `kvr doctor` to see what this machine lacks");
  }
  absl::StatusOr<Message> hello = DecodeMessage(line);
  if (hello.ok() && hello->error.ok() && hello->protocol != kProtocol) {
    hello = Error(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat(executable_, " speaks protocol ", hello->protocol, ", this is ", kProtocol),
        "use kvr and kvr-worker of one build");
  }
  const absl::Status status = hello.ok() ? hello->error : hello.status();
  if (!status.ok()) {
    process_.reset();
    return WithContext("kvr-worker", status);
  }
  device_ = hello->device;
  return absl::OkStatus();
}

absl::Status WorkerClient::Restart() {
  process_.reset();
  KVR_RETURN_IF_ERROR(Spawn());
  --respawns_;  // it was not brought down
  return absl::OkStatus();
}

absl::StatusOr<WorkerClient::Answer> WorkerClient::Death(const std::string& how, TrialStatus status,
                                                         const Message& last) {
  const std::string words = LastWords(process_->StderrTail());
  process_.reset();
  std::string reason = absl::StrCat("worker ", how, last.doing.empty() ? "" : " while ", last.doing,
                                    words.empty() ? "" : "; it said: ", words);
  Answer answer;
  answer.died = true;
  answer.timed_out = status == TrialStatus::kTimeout;
  answer.reply.fault_subject = last.subject;
  Finding& finding = answer.reply.findings.emplace_back();
  finding.subject = last.subject;
  finding.status = status;
  finding.reason = std::move(reason);
  return answer;
}

absl::StatusOr<WorkerClient::Answer> WorkerClient::Call(Request request) {
  if (process_ == nullptr) KVR_RETURN_IF_ERROR(Spawn());
  request.id = next_id_++;
  ++calls_of_process_;
  Message last;  // the stage it is in
  last.stage = Stage::kPrepare;
  if (!process_->Send(EncodeRequest(request))) {
    return Death(process_->End(), TrialStatus::kRuntimeError, last);
  }
  for (;;) {
    const double patience =
        last.stage == Stage::kLaunch ? options_.launch_timeout_s : options_.prepare_timeout_s;
    std::string line;
    switch (process_->ReadLine(&line, absl::Now() + absl::Seconds(patience), options_.cancel)) {
      case ChildProcess::Read::kLine:
        break;
      case ChildProcess::Read::kCancelled:
        process_.reset();
        return absl::CancelledError("cancelled");
      case ChildProcess::Read::kTimeout:
        process_->End();
        return Death(absl::StrCat("killed after ", patience, " s"), TrialStatus::kTimeout, last);
      case ChildProcess::Read::kGone:
        return Death(process_->End(), TrialStatus::kRuntimeError, last);
    }
    absl::StatusOr<Message> message = DecodeMessage(line);
    if (!message.ok() || message->kind == Message::Kind::kHello || message->id != request.id) {
      process_->End();
      return Death("killed: it spoke out of turn", TrialStatus::kRuntimeError, last);
    }
    if (message->kind == Message::Kind::kStage) {
      last = *std::move(message);
      continue;
    }
    if (message->unusable) process_.reset();
    KVR_RETURN_IF_ERROR(message->error);
    Answer answer;
    answer.reply = *std::move(message);
    return answer;
  }
}

absl::StatusOr<Finding> WorkerClient::Verify(const WorkShape& shape, const WorkItem& item) {
  Request request;
  request.job = Job::kVerify;
  request.op = shape.op;
  request.axes = shape.axes;
  request.seeds = shape.seeds;
  request.items = {item};
  for (bool last_try = false;; last_try = true) {
    const bool fresh = process_ == nullptr || calls_of_process_ == 0;
    KVR_ASSIGN_OR_RETURN(const Answer answer, Call(request));
    const Finding& finding = answer.reply.findings.at(0);
    if (!answer.died) return finding;
    const bool of_item = answer.reply.fault_subject >= 0;
    if (of_item && (fresh || last_try || answer.timed_out)) return finding;
    if (!of_item && (last_try || answer.timed_out)) {
      return CannotPrepare(finding);
    }
  }
}

absl::StatusOr<std::unique_ptr<WorkerSampler>> WorkerSampler::Open(WorkerClient& client,
                                                                   WorkShape shape,
                                                                   std::vector<WorkItem> items,
                                                                   SessionOptions options) {
  std::unique_ptr<WorkerSampler> sampler(new WorkerSampler(client));
  sampler->shape_ = std::move(shape);
  sampler->items_ = std::move(items);
  sampler->findings_.resize(sampler->items_.size());
  sampler->acquitted_.resize(sampler->items_.size());
  if (options.epoch_us < 0) options.epoch_us = client.device().kind == "cuda" ? 100 : 0;
  sampler->options_ = std::move(options);
  KVR_RETURN_IF_ERROR(sampler->Reopen());
  return sampler;
}

void WorkerSampler::Learn(const SessionInfo& session) {
  info_ = Merge(info_, session);
  std::string trouble;
  if (client_.device().kind == "cuda") {
    for (size_t i = 0; i < session.sentinel_us.size() && i < session.lead_us.size(); ++i) {
      client_.watch_.Add(session.sentinel_us[i], session.lead_us[i]);
    }
    trouble = client_.watch_.TakeTrouble();
  }
  if ((session.throttle_bits & kThrottleMask) != 0) {
    trouble = absl::StrCat("the device was throttled: ", ThrottleText(session.throttle_bits));
  }
  if (trouble_.empty()) trouble_ = std::move(trouble);
}

bool WorkerSampler::open() const {
  return client_.process_ != nullptr && open_in_ == client_.process_number_;
}

std::vector<int> WorkerSampler::Alive(absl::Span<const int> subjects) const {
  std::vector<int> alive;
  for (int subject : subjects) {
    if (findings_[subject].status == TrialStatus::kPassed) alive.push_back(subject);
  }
  return alive;
}

void WorkerSampler::Condemn(const Message& reply) {
  for (const Finding& finding : reply.findings) {
    if (finding.subject >= 0 && finding.subject < subjects()) findings_[finding.subject] = finding;
  }
}

absl::StatusOr<WorkerClient::Answer> WorkerSampler::OpenOnce(std::vector<int> subjects) {
  Request request;
  request.job = Job::kOpen;
  request.op = shape_.op;
  request.axes = shape_.axes;
  request.seeds = shape_.seeds;
  request.items = items_;
  request.subjects = std::move(subjects);
  request.session = options_;
  return client_.Call(std::move(request));
}

absl::Status WorkerSampler::Blame(const WorkerClient::Answer& answer, Job job) {
  open_in_ = 0;
  const int suspect = answer.reply.fault_subject;
  const Finding& finding = answer.reply.findings.at(0);
  if (suspect < 0) {
    if (answer.timed_out || ++stray_deaths_ > 1) {
      return CannotPrepare(finding);
    }
    return absl::OkStatus();
  }
  if (suspect >= subjects()) return absl::InternalError("a fault of no subject");
  if (answer.timed_out) {
    Condemn(answer.reply);
    return absl::OkStatus();
  }
  if (acquitted_[suspect]) {
    findings_[suspect] = finding;
    absl::StrAppend(&findings_[suspect].reason, " (among others, again; alone it runs)");
    return absl::OkStatus();
  }
  // Alone, in a fresh worker, as far as it had come.
  for (bool retried = false;; retried = true) {
    client_.process_.reset();
    KVR_ASSIGN_OR_RETURN(WorkerClient::Answer alone, OpenOnce({suspect}));
    if (!alone.died && alone.reply.findings.empty() && job != Job::kOpen) {
      Request request;
      request.job = job;
      request.subjects = {suspect};
      request.rounds = 1;
      KVR_ASSIGN_OR_RETURN(alone, client_.Call(std::move(request)));
    }
    if (alone.died && alone.reply.fault_subject < 0) {
      if (!retried && !alone.timed_out) continue;
      return CannotPrepare(alone.reply.findings.at(0));
    }
    Condemn(alone.reply);
    acquitted_[suspect] = true;
    return absl::OkStatus();
  }
}

absl::Status WorkerSampler::Reopen() {
  std::vector<int> all(items_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  while (!open()) {
    KVR_ASSIGN_OR_RETURN(const WorkerClient::Answer answer, OpenOnce(Alive(all)));
    if (answer.died) {
      KVR_RETURN_IF_ERROR(Blame(answer, Job::kOpen));
      continue;
    }
    Condemn(answer.reply);
    Learn(answer.reply.session);
    open_in_ = client_.process_number_;
  }
  return absl::OkStatus();
}

absl::StatusOr<SampleTable> WorkerSampler::Sample(absl::Span<const int> subjects, int rounds) {
  for (;;) {
    if (!open()) KVR_RETURN_IF_ERROR(Reopen());
    Request request;
    request.job = Job::kSample;
    request.subjects = Alive(subjects);
    request.rounds = rounds;
    const std::vector<int> alive = request.subjects;
    if (alive.empty()) {
      return SampleTable(
          rounds, std::vector<double>(subjects.size(), std::numeric_limits<double>::quiet_NaN()));
    }
    KVR_ASSIGN_OR_RETURN(const WorkerClient::Answer answer, client_.Call(std::move(request)));
    if (answer.died || answer.reply.fault_subject >= 0) {
      KVR_RETURN_IF_ERROR(Blame(answer, Job::kSample));
      continue;
    }
    stray_deaths_ = 0;
    Learn(answer.reply.session);
    SampleTable table;
    for (const std::vector<double>& row : answer.reply.samples) {
      std::vector<double>& wide =
          table.emplace_back(subjects.size(), std::numeric_limits<double>::quiet_NaN());
      for (size_t i = 0, next = 0; i < subjects.size() && next < alive.size(); ++i) {
        if (subjects[i] == alive[next]) wide[i] = row.at(next++);
      }
    }
    return table;
  }
}

absl::Status WorkerSampler::Check(absl::Span<const int> subjects) {
  for (;;) {
    if (!open()) KVR_RETURN_IF_ERROR(Reopen());
    Request request;
    request.job = Job::kCheck;
    request.subjects = Alive(subjects);
    if (request.subjects.empty()) return absl::OkStatus();
    KVR_ASSIGN_OR_RETURN(const WorkerClient::Answer answer, client_.Call(std::move(request)));
    if (answer.died || answer.reply.fault_subject >= 0) {
      KVR_RETURN_IF_ERROR(Blame(answer, Job::kCheck));
      continue;
    }
    stray_deaths_ = 0;
    Condemn(answer.reply);
    return absl::OkStatus();
  }
}

}  // namespace kvr
