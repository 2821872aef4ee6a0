// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/server.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/quality.h"
#include "core/status.h"
#include "jit/cache.h"

namespace kvr {
namespace {

absl::StatusOr<BinaryPtr> ReadBinary(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  std::shared_ptr<Binary> binary = DecodeEntry(bytes.str(), nullptr);
  if (binary == nullptr) {
    return Error(absl::StatusCode::kDataLoss, absl::StrCat(path, " holds no whole binary"),
                 "check that the temporary directory has space, then run again");
  }
  return BinaryPtr(std::move(binary));
}

int Threads(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

WorkerServer::WorkerServer(Device& device, const Catalog& catalog,
                           const WorkerServerOptions& options,
                           std::function<void(const Message&)> write)
    : catalog_(catalog),
      replacements_(options.replacements),
      write_(std::move(write)),
      bench_{device, Stream{}, MemoryBudget{options.memory_limit, 0},
             [this](Stage stage, int subject, const std::string& doing) {
               Message message;
               message.kind = Message::Kind::kStage;
               message.id = request_id_;
               message.stage = stage;
               message.subject = subject;
               message.doing = doing;
               write_(message);
             }},
      inputs_(Threads(options.threads),
              [this](const std::string& doing) { bench_.at(Stage::kPrepare, -1, doing); }) {}

WorkerServer::~WorkerServer() {
  session_.reset();
  if (bench_.stream.handle != nullptr) bench_.device.DestroyStream(bench_.stream);
}

absl::Status WorkerServer::Start() {
  KVR_ASSIGN_OR_RETURN(bench_.stream, bench_.device.CreateStream());
  return absl::OkStatus();
}

Message WorkerServer::Hello() const {
  Message hello;
  hello.kind = Message::Kind::kHello;
  hello.protocol = kProtocol;
  hello.device = bench_.device.info();
  return hello;
}

void WorkerServer::Handle(const Request& request) {
  request_id_ = request.id;
  Message reply;
  reply.id = request.id;
  reply.error = Dispatch(request, &reply);
  // A job that failed by the device's fault leaves it in doubt; memory and mistakes do not.
  if (reply.error.code() == absl::StatusCode::kInternal) reply.unusable = true;
  write_(reply);
}

absl::Status WorkerServer::Dispatch(const Request& request, Message* reply) {
  if (request.job == Job::kSample) return Sample(request, reply);
  if (request.job == Job::kCheck) return Check(request, reply);
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog_.FindOp(request.op));
  KVR_ASSIGN_OR_RETURN(const AxisVector axes, ResolveAxes(op->spec(), request.axes));
  // Any other job gives the session's memory back first.
  session_.reset();
  session_items_.clear();
  KVR_RETURN_IF_ERROR(CheckRoom(op->spec(), axes));
  return request.job == Job::kVerify ? Verify(request, *op, axes, reply)
                                     : OpenSession(request, *op, axes, reply);
}

absl::Status WorkerServer::CheckRoom(const OpSpec& op, const AxisVector& axes) {
  std::vector<int64_t> sizes;
  for (const TensorView& tensor : TensorShapes(op, axes)) sizes.push_back(tensor.bytes());
  return Arena::Create(bench_.device, bench_.memory, sizes, /*fence=*/0).status();
}

absl::StatusOr<VariantPtr> WorkerServer::FindVariant(const Catalog::Op& op,
                                                     const WorkItem& item) const {
  for (const VariantPtr& variant : replacements_) {
    if (variant->op == op.name() && variant->name == item.variant &&
        variant->fingerprint == item.fingerprint) {
      return variant;
    }
  }
  KVR_ASSIGN_OR_RETURN(VariantPtr variant, catalog_.Find(op.name(), item.variant));
  if (variant->fingerprint == item.fingerprint) return variant;
  return Error(absl::StatusCode::kAborted,
               absl::StrCat("variant ", item.variant, " has changed on disk since it was compiled"),
               "run the command again");
}

absl::StatusOr<PreparedPtr> WorkerServer::LoadItem(const Catalog::Op& op, const WorkItem& item) {
  KVR_ASSIGN_OR_RETURN(const VariantPtr variant, FindVariant(op, item));
  KVR_ASSIGN_OR_RETURN(BinaryPtr binary, ReadBinary(item.binary_path));
  return Prepare(bench_.device, op.spec(), variant, item.config, std::move(binary));
}

absl::StatusOr<std::vector<OwnReference>> WorkerServer::OwnReferences(
    absl::Span<const InputSetPtr> sets, const Prepared& prepared, int subject) {
  const Variant& variant = prepared.variant();
  std::vector<OwnReference> own;
  if (variant.semantics == Semantics::kExact) return own;
  bench_.at(Stage::kPrepare, subject,
            absl::StrCat("computing the reference of ", variant.op, "/", variant.name));
  for (const InputSetPtr& set : sets) {
    KVR_ASSIGN_OR_RETURN(own.emplace_back(), inputs_.Own(*set, variant, prepared.config()));
  }
  return own;
}

absl::Status WorkerServer::Verify(const Request& request, const Catalog::Op& op,
                                  const AxisVector& axes, Message* reply) {
  if (request.items.size() != 1 || request.seeds.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "verify needs one item and a seed",
                 "send items:[{...}] and seeds:[...]");
  }
  Finding worst;
  std::vector<InputSetPtr> sets;
  for (uint64_t seed : request.seeds) {
    KVR_ASSIGN_OR_RETURN(sets.emplace_back(), inputs_.Get(*op.operation, axes, seed));
  }
  // Loading runs the binary's own initialisation on some devices: from here on it is to blame.
  bench_.at(Stage::kLaunch, 0, absl::StrCat("loading ", request.items[0].variant));
  const absl::StatusOr<PreparedPtr> prepared = LoadItem(op, request.items[0]);
  absl::StatusOr<std::vector<OwnReference>> own =
      prepared.ok() ? OwnReferences(sets, **prepared, /*subject=*/0)
                    : absl::StatusOr<std::vector<OwnReference>>(prepared.status());
  if (!own.ok()) {
    if (absl::IsAborted(own.status())) return own.status();
    worst.status = TrialStatus::kRuntimeError;
    worst.reason = std::string(What(own.status()));
    reply->findings.push_back(worst);
    return absl::OkStatus();
  }
  QualityMean quality;
  for (size_t round = 0; round < sets.size(); ++round) {
    KVR_ASSIGN_OR_RETURN(
        const Outcome outcome,
        VerifyRound(bench_, *op.operation, axes, *sets[round], **prepared, static_cast<int>(round),
                    own->empty() ? nullptr : own->at(round)));
    worst.max_abs = std::max(worst.max_abs, outcome.finding.max_abs);
    worst.max_rel = std::max(worst.max_rel, outcome.finding.max_rel);
    reply->unusable |= outcome.damaged;
    if (outcome.finding.status != TrialStatus::kPassed) {
      worst.status = outcome.finding.status;
      worst.reason = absl::StrCat(outcome.finding.reason, " (seed ", request.seeds[round], ")");
      break;
    }
    quality.Add(outcome.finding.quality);
  }
  if (worst.status == TrialStatus::kPassed) worst.quality = quality.mean();
  reply->findings.push_back(worst);
  return absl::OkStatus();
}

absl::Status WorkerServer::CheckSubjects(const Request& request, size_t count) const {
  const bool loaded_only = request.job == Job::kSample || request.job == Job::kCheck;
  for (int subject : request.subjects) {
    if (subject < 0 || static_cast<size_t>(subject) >= count ||
        (loaded_only && session_items_[subject] == nullptr)) {
      return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("no subject ", subject),
                   "name subjects that the session loaded");
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerServer::OpenSession(const Request& request, const Catalog::Op& op,
                                       const AxisVector& axes, Message* reply) {
  KVR_RETURN_IF_ERROR(CheckSubjects(request, request.items.size()));
  std::vector<InputSetPtr> sets;
  for (uint64_t seed : request.seeds) {
    KVR_ASSIGN_OR_RETURN(sets.emplace_back(), inputs_.Get(*op.operation, axes, seed));
  }
  std::vector<PreparedPtr> prepared(request.items.size());
  std::vector<std::vector<OwnReference>> own(request.items.size());
  for (int subject : request.subjects) {
    bench_.at(Stage::kLaunch, subject, absl::StrCat("loading ", request.items[subject].variant));
    absl::StatusOr<PreparedPtr> loaded = LoadItem(op, request.items[subject]);
    if (loaded.ok()) {
      absl::StatusOr<std::vector<OwnReference>> computed = OwnReferences(sets, **loaded, subject);
      if (computed.ok()) {
        own[subject] = *std::move(computed);
        prepared[subject] = *std::move(loaded);
        continue;
      }
      loaded = computed.status();
    }
    if (absl::IsAborted(loaded.status())) return loaded.status();
    Finding& finding = reply->findings.emplace_back();
    finding.subject = subject;
    finding.status = TrialStatus::kRuntimeError;
    finding.reason = std::string(What(loaded.status()));
  }
  bench_.at(Stage::kPrepare, -1, "opening the measuring session");
  std::unique_ptr<Sentinel> sentinel;
  if (!request.session.sentinel_path.empty()) {
    KVR_ASSIGN_OR_RETURN(BinaryPtr binary, ReadBinary(request.session.sentinel_path));
    KVR_ASSIGN_OR_RETURN(sentinel, Sentinel::Load(bench_.device, bench_.memory, std::move(binary)));
  }
  session_items_ = prepared;
  KVR_ASSIGN_OR_RETURN(session_, MeasureSession::Open(bench_, *op.operation, axes, std::move(sets),
                                                      std::move(prepared), request.session,
                                                      std::move(sentinel), std::move(own)));
  reply->session = session_->TakeInfo();
  return absl::OkStatus();
}

absl::Status WorkerServer::Sample(const Request& request, Message* reply) {
  if (session_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "no measuring session", "open one first");
  }
  KVR_RETURN_IF_ERROR(CheckSubjects(request, session_items_.size()));
  Outcome fault;
  KVR_ASSIGN_OR_RETURN(reply->samples, session_->Sample(request.subjects, request.rounds, &fault));
  reply->session = session_->TakeInfo();
  if (fault.finding.status != TrialStatus::kPassed) {
    reply->fault_subject = fault.finding.subject;
    reply->unusable = fault.damaged;
    reply->findings.push_back(fault.finding);
  }
  return absl::OkStatus();
}

absl::Status WorkerServer::Check(const Request& request, Message* reply) {
  if (session_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "no measuring session", "open one first");
  }
  KVR_RETURN_IF_ERROR(CheckSubjects(request, session_items_.size()));
  for (int subject : request.subjects) {
    KVR_ASSIGN_OR_RETURN(const Outcome outcome, session_->Check(subject));
    reply->findings.push_back(outcome.finding);
    if (outcome.damaged) {
      reply->fault_subject = subject;
      reply->unusable = true;
      reply->findings = {outcome.finding};
      break;
    }
  }
  return absl::OkStatus();
}

struct LineSource::State {
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<std::string> lines;
};

LineSource::LineSource(int in) : state_(std::make_shared<State>()) {
  std::thread([state = state_, in] {
    std::string buffer;
    char chunk[65536];
    for (;;) {
      const ssize_t n = read(in, chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) _exit(0);
      buffer.append(chunk, static_cast<size_t>(n));
      for (size_t end; (end = buffer.find('\n')) != std::string::npos;) {
        const std::lock_guard<std::mutex> lock(state->mutex);
        state->lines.push_back(buffer.substr(0, end));
        state->ready.notify_one();
        buffer.erase(0, end + 1);
      }
    }
  }).detach();
}

std::string LineSource::Next() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->ready.wait(lock, [this] { return !state_->lines.empty(); });
  std::string line = std::move(state_->lines.front());
  state_->lines.pop_front();
  return line;
}

}  // namespace kvr
