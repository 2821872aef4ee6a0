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
constexpr int64_t kMostBufferSets = 512;
constexpr int64_t kMostRingBytes = int64_t{12} << 30;
constexpr int64_t kColdFactor = 2;  // touched between two uses of a set, over the L2's size

Outcome RuntimeError(int subject, const absl::Status& status) {
  Outcome outcome;
  outcome.finding.subject = subject;
  outcome.finding.status = TrialStatus::kRuntimeError;
  outcome.finding.reason = std::string(What(status));
  outcome.damaged = true;
  return outcome;
}

std::string Running(const Prepared& prepared) {
  return absl::StrCat("running ", prepared.variant().name);
}

}  // namespace

RingSize SizeRing(int64_t l2_bytes, int64_t touched, int64_t allocated, int64_t input_sets) {
  allocated = std::max<int64_t>(allocated, 1);
  touched = std::clamp<int64_t>(touched, 1, allocated);
  RingSize ring;
  // The set itself, and those between its two uses.
  if (l2_bytes > 0) ring.cold = 1 + (kColdFactor * l2_bytes + touched - 1) / touched;
  const int64_t most = std::min(kMostBufferSets, kMostRingBytes / allocated);
  ring.sets = std::max(input_sets, std::min(ring.cold, most));
  // Whole turns over the inputs, so that the order holds where the ring closes.
  const int64_t rest = ring.sets % std::max<int64_t>(input_sets, 1);
  if (rest != 0) ring.sets += input_sets - rest;
  return ring;
}

absl::StatusOr<std::unique_ptr<MeasureSession>> MeasureSession::Open(
    Bench& bench, const Operation& op, const AxisVector& axes, std::vector<InputSetPtr> sets,
    std::vector<PreparedPtr> subjects, const SessionOptions& options) {
  if (sets.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "a measuring session without inputs",
                 "give at least one seed");
  }
  std::unique_ptr<MeasureSession> session(new MeasureSession(bench, op));
  session->sets_ = std::move(sets);
  session->epoch_us_ = options.epoch_us;
  session->mode_ = options.mode;
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

  const std::vector<TensorView> shapes = TensorShapes(op.spec(), axes);
  std::vector<int64_t> sizes;
  for (const TensorView& shape : shapes) sizes.push_back(shape.bytes());
  // Host timings rank nothing: no memory is spent on them.
  const int64_t l2_bytes = device.info().kind == "host" ? 0 : device.info().l2_bytes;
  const RingSize ring = SizeRing(l2_bytes, op.MinimumBytes(axes),
                                 std::accumulate(sizes.begin(), sizes.end(), int64_t{0}),
                                 static_cast<int64_t>(session->sets_.size()));
  for (int64_t i = 0; i < ring.sets; ++i) {
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
  std::vector<BufferSet>& buffers = session->buffers_;
  while (buffers.size() > session->sets_.size() && buffers.size() % session->sets_.size() != 0) {
    buffers.pop_back();
  }
  session->cold_ = ring.cold > 0 && static_cast<int64_t>(buffers.size()) >= ring.cold;
  return session;
}

MeasureSession::~MeasureSession() {
  if (start_.handle != nullptr) bench_.device.DestroyEvent(start_);
  if (stop_.handle != nullptr) bench_.device.DestroyEvent(stop_);
}

SessionInfo MeasureSession::info() const {
  SessionInfo info;
  info.mode = mode_;
  info.input_sets = static_cast<int>(sets_.size());
  info.buffer_sets = static_cast<int>(buffers_.size());
  info.cold = cold_;
  for (const Subject& subject : subjects_) {
    if (subject.launches == 0) continue;
    info.launches_least = info.launches_least == 0
                              ? subject.launches
                              : std::min(info.launches_least, subject.launches);
    info.launches_most = std::max(info.launches_most, subject.launches);
  }
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

size_t MeasureSession::Next(size_t phase) const {
  const size_t period = std::min(sets_.size(), buffers_.size());
  size_t first = cursor_ + 1;
  while (first % period != phase % period) ++first;
  return first % buffers_.size();
}

absl::StatusOr<double> MeasureSession::TimeEpoch(const Subject& subject, int launches,
                                                 size_t first) {
  void* const workspace = workspace_->at(0);
  const auto launch = [&](size_t i) {
    return subject.prepared->Launch(subject.plan, buffers_[(first + i) % buffers_.size()].tensors,
                                    workspace, bench_.stream);
  };
  // Untimed, on the one before: while it runs, the first timed launch is being enqueued.
  // Where launches are no cheaper than kernels there is nothing to hide.
  if (bench_.device.info().kind == "cuda") KVR_RETURN_IF_ERROR(launch(buffers_.size() - 1));
  KVR_RETURN_IF_ERROR(bench_.device.Record(start_, bench_.stream));
  for (int i = 0; i < launches; ++i) KVR_RETURN_IF_ERROR(launch(static_cast<size_t>(i)));
  KVR_RETURN_IF_ERROR(bench_.device.Record(stop_, bench_.stream));
  KVR_ASSIGN_OR_RETURN(const double us, bench_.device.ElapsedUs(start_, stop_));
  KVR_RETURN_IF_ERROR(bench_.device.Synchronize(bench_.stream));
  cursor_ = (first + static_cast<size_t>(launches)) % buffers_.size();
  return us / launches;
}

absl::Status MeasureSession::Calibrate(Subject& subject) {
  int launches = 1;
  for (;;) {
    KVR_ASSIGN_OR_RETURN(double us, TimeEpoch(subject, launches, Next(0)));
    // One hiccup must not pass for a long epoch: what ends the search is seen twice.
    if (epoch_us_ > 0 && us * launches >= epoch_us_) {
      KVR_ASSIGN_OR_RETURN(const double again, TimeEpoch(subject, launches, Next(0)));
      us = std::min(us, again);
    }
    if (us * launches >= epoch_us_ || launches >= kMostLaunches) break;
    const double wanted = us > 0 ? 1.2 * epoch_us_ / us : kMostLaunches;
    launches = std::clamp(static_cast<int>(std::min<double>(wanted, kMostLaunches)),
                          std::min(2 * launches, kMostLaunches), kMostLaunches);
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
    const size_t phase = random_() % sets_.size();
    std::vector<double>& row =
        table.emplace_back(subjects.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t position : order) {
      const int index = subjects[position];
      Subject& subject = subjects_[index];
      bench_.at(Stage::kLaunch, index, Running(*subject.prepared));
      if (subject.launches == 0) {
        if (absl::Status status = Calibrate(subject); !status.ok()) {
          *fault = RuntimeError(index, status);
          return table;
        }
      }
      const absl::StatusOr<double> us = TimeEpoch(subject, subject.launches, Next(phase));
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
  bench_.at(Stage::kLaunch, index, Running(*subject.prepared));
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
  KVR_RETURN_IF_ERROR(Upload(buffers, chosen % sets_.size()));  // the ring's order again
  Outcome outcome;
  outcome.finding.subject = index;
  outcome.finding.status = comparison.status;
  if (comparison.status != TrialStatus::kPassed) {
    outcome.finding.reason = absl::StrCat("after timing: ", comparison.reason);
  }
  outcome.finding.max_abs = comparison.max_abs;
  outcome.finding.max_rel = comparison.max_rel;
  return outcome;
}

}  // namespace kvr
