// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "tuner/worker/bench.h"

namespace kvr {
namespace {

constexpr int kMostLaunches = 4096;  // of an epoch, however short a launch
constexpr int64_t kMostBufferSets = 64;

Outcome RuntimeError(int subject, const absl::Status& status) {
  Outcome outcome;
  outcome.verdict.subject = subject;
  outcome.verdict.status = TrialStatus::kRuntimeError;
  outcome.verdict.reason = std::string(What(status));
  outcome.damaged = true;
  return outcome;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeasureSession>> MeasureSession::Open(
    Bench& bench, const Operation& op, const AxisVector& axes, std::vector<InputSetPtr> sets,
    std::vector<PreparedPtr> subjects, double epoch_us) {
  if (sets.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "a measuring session without inputs",
                 "give at least one seed");
  }
  std::unique_ptr<MeasureSession> session(new MeasureSession(bench, op));
  session->sets_ = std::move(sets);
  session->epoch_us_ = epoch_us;
  Device& device = bench.device;
  KVR_ASSIGN_OR_RETURN(session->start_, device.CreateEvent());
  KVR_ASSIGN_OR_RETURN(session->stop_, device.CreateEvent());

  int64_t workspace_bytes = 0;
  for (PreparedPtr& prepared : subjects) {
    Subject& subject = session->subjects_.emplace_back();
    if (prepared == nullptr) continue;
    KVR_RETURN_IF_ERROR(prepared->Plan(axes, &subject.plan));
    workspace_bytes = std::max(workspace_bytes, subject.plan.workspace_bytes);
    subject.prepared = std::move(prepared);
  }
  KVR_ASSIGN_OR_RETURN(session->workspace_,
                       Arena::Create(device, bench.memory, {workspace_bytes}, /*fence=*/0));

  // As many buffer sets as make the ring exceed the L2 cache twice; two at least, if they fit.
  const std::vector<TensorView> shapes = TensorShapes(op.spec(), axes);
  std::vector<int64_t> sizes;
  for (const TensorView& shape : shapes) sizes.push_back(shape.bytes());
  const int64_t bytes =
      std::max<int64_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 1);
  const int64_t cold_sets = (2 * device.info().l2_bytes + bytes - 1) / bytes;
  const int64_t wanted =
      std::clamp<int64_t>(cold_sets, static_cast<int64_t>(session->sets_.size()), kMostBufferSets);
  for (int64_t i = 0; i < wanted; ++i) {
    auto arena = Arena::Create(device, bench.memory, sizes, /*fence=*/0);
    if (!arena.ok()) {
      if (session->buffers_.empty()) return arena.status();
      break;
    }
    BufferSet& buffers = session->buffers_.emplace_back();
    buffers.arena = *std::move(arena);
    buffers.tensors = shapes;
    for (size_t t = 0; t < shapes.size(); ++t) {
      buffers.tensors[t].data = buffers.arena->at(static_cast<int>(t));
    }
    KVR_RETURN_IF_ERROR(session->Upload(buffers, static_cast<size_t>(i) % session->sets_.size()));
  }
  session->cold_ = cold_sets > 0 && static_cast<int64_t>(session->buffers_.size()) >= cold_sets;
  return session;
}

MeasureSession::~MeasureSession() {
  if (start_.handle != nullptr) bench_.device.DestroyEvent(start_);
  if (stop_.handle != nullptr) bench_.device.DestroyEvent(stop_);
}

SessionInfo MeasureSession::info() const {
  SessionInfo info;
  info.input_sets = static_cast<int>(sets_.size());
  info.buffer_sets = static_cast<int>(buffers_.size());
  info.cold = cold_;
  return info;
}

absl::Status MeasureSession::Upload(BufferSet& buffers, size_t input_set) {
  const InputSet& set = *sets_[input_set];
  for (size_t i = 0; i < set.inputs.size(); ++i) {
    if (set.inputs[i].rank == 0) {
      buffers.tensors[i].data = set.inputs[i].data;
    } else if (set.inputs[i].bytes() > 0) {
      KVR_RETURN_IF_ERROR(bench_.device.CopyToDevice(buffers.tensors[i].data, set.inputs[i].data,
                                                     set.inputs[i].bytes(), bench_.stream));
    }
  }
  buffers.input_set = input_set;
  return bench_.device.Synchronize(bench_.stream);
}

absl::StatusOr<double> MeasureSession::TimeEpoch(const Subject& subject, int launches,
                                                 size_t first) {
  void* const workspace = workspace_->at(0);
  const auto launch = [&](size_t i) {
    return subject.prepared->Launch(subject.plan, buffers_[(first + i) % buffers_.size()].tensors,
                                    workspace, bench_.stream);
  };
  // Untimed, on the last of the ring: while it runs, the first timed launch is being enqueued.
  // Where launches are no cheaper than kernels there is nothing to hide.
  if (bench_.device.info().kind == "cuda") KVR_RETURN_IF_ERROR(launch(buffers_.size() - 1));
  KVR_RETURN_IF_ERROR(bench_.device.Record(start_, bench_.stream));
  for (int i = 0; i < launches; ++i) KVR_RETURN_IF_ERROR(launch(static_cast<size_t>(i)));
  KVR_RETURN_IF_ERROR(bench_.device.Record(stop_, bench_.stream));
  KVR_ASSIGN_OR_RETURN(const double us, bench_.device.ElapsedUs(start_, stop_));
  KVR_RETURN_IF_ERROR(bench_.device.Synchronize(bench_.stream));
  return us / launches;
}

absl::Status MeasureSession::Calibrate(Subject& subject) {
  int launches = 1;
  for (;;) {
    KVR_ASSIGN_OR_RETURN(const double us, TimeEpoch(subject, launches, 0));
    if (us * launches >= epoch_us_ || launches >= kMostLaunches) break;
    const double wanted = us > 0 ? 1.2 * epoch_us_ / us : kMostLaunches;
    launches = std::clamp(static_cast<int>(std::min<double>(wanted, kMostLaunches)), 2 * launches,
                          kMostLaunches);
  }
  subject.launches = launches;
  return absl::OkStatus();
}

absl::StatusOr<SampleTable> MeasureSession::Sample(absl::Span<const int> subjects, int rounds,
                                                   Outcome* fault) {
  SampleTable table;
  std::vector<size_t> order(subjects.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random_);
    const size_t first = random_() % buffers_.size();
    std::vector<double>& row =
        table.emplace_back(subjects.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t position : order) {
      const int index = subjects[position];
      Subject& subject = subjects_[index];
      bench_.at(Stage::kLaunch, index);
      if (subject.launches == 0) {
        if (absl::Status status = Calibrate(subject); !status.ok()) {
          *fault = RuntimeError(index, status);
          return table;
        }
      }
      const absl::StatusOr<double> us = TimeEpoch(subject, subject.launches, first);
      if (!us.ok()) {
        *fault = RuntimeError(index, us.status());
        return table;
      }
      row[position] = *us;
    }
  }
  return table;
}

absl::StatusOr<Outcome> MeasureSession::Check(int index) {
  const Subject& subject = subjects_[index];
  const OpSpec& spec = op_.spec();
  const size_t chosen = random_() % buffers_.size();
  BufferSet& buffers = buffers_[chosen];
  KVR_RETURN_IF_ERROR(Upload(buffers, (buffers.input_set + 1) % sets_.size()));
  const uint8_t poison = PoisonByte(static_cast<int>(random_() % 2));
  for (size_t t = spec.inputs.size(); t < buffers.tensors.size(); ++t) {
    const TensorView& output = buffers.tensors[t];
    if (output.bytes() == 0) continue;
    KVR_RETURN_IF_ERROR(
        bench_.device.MemsetAsync(output.data, poison, output.bytes(), bench_.stream));
  }
  bench_.at(Stage::kLaunch, index);
  const absl::StatusOr<double> us = TimeEpoch(subject, std::max(subject.launches, 1), chosen);
  if (!us.ok()) return RuntimeError(index, us.status());

  std::vector<TensorView> outputs(buffers.tensors.begin() + spec.inputs.size(),
                                  buffers.tensors.end());
  std::vector<std::vector<unsigned char>> contents;
  for (TensorView& output : outputs) {
    const int64_t bytes = output.bytes();
    contents.emplace_back(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (bytes > 0) {
      KVR_RETURN_IF_ERROR(
          bench_.device.CopyToHost(contents.back().data(), output.data, bytes, bench_.stream));
    }
    output.data = contents.back().data();
  }
  KVR_RETURN_IF_ERROR(bench_.device.Synchronize(bench_.stream));
  Comparison comparison = Compare(spec, outputs, sets_[buffers.input_set]->reference, poison);
  Outcome outcome;
  outcome.verdict.subject = index;
  outcome.verdict.status = comparison.status;
  if (comparison.status != TrialStatus::kPassed) {
    outcome.verdict.reason = absl::StrCat("after timing: ", comparison.reason);
  }
  outcome.verdict.max_abs = comparison.max_abs;
  outcome.verdict.max_rel = comparison.max_rel;
  return outcome;
}

}  // namespace kvr
