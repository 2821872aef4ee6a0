// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr int kMostLaunches = 4096;  // of an epoch, however short a launch
constexpr int kSentinelRuns = 3;     // timed as one: events are good to half a microsecond
// A subject that takes this long an epoch is no contender whom a launch's share of the epoch's
// beginning, some microseconds, could decide about.
constexpr double kLongEpochUs = 20'000;
// An idle GPU's clock is a fraction of a busy one's and rises while it is used: until it is steady
// to 1 %, but not without end.
constexpr auto kLeastWarmUp = std::chrono::milliseconds(50);
constexpr auto kMostWarmUp = std::chrono::milliseconds(500);
constexpr size_t kSteadyReadings = 8;
constexpr double kSteady = 0.01;
constexpr int kPlanBatches = 5, kPlansOfABatch = 16;

Outcome RuntimeError(int subject, const absl::Status& status) {
  Outcome outcome;
  outcome.finding.subject = subject;
  outcome.finding.status = TrialStatus::kRuntimeError;
  outcome.finding.reason = std::string(What(status));
  outcome.damaged = true;
  return outcome;
}

// What a subject's epoch says of memory is the job's affair: the graph could not be made.
bool IsOfTheJob(const absl::Status& status) { return absl::IsResourceExhausted(status); }

std::string Doing(std::string_view what, const Prepared& prepared) {
  return StrCat(what, " ", prepared.variant().name);
}

// One plan takes less than a clock's tick.
absl::StatusOr<double> PlanMicroseconds(const Prepared& prepared, const AxisVector& axes) {
  LaunchPlan plan;
  std::vector<double> us;
  for (int batch = 0; batch < kPlanBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kPlansOfABatch; ++i) KVR_RETURN_IF_ERROR(prepared.Plan(axes, &plan));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    us.push_back(took.count() / kPlansOfABatch);
  }
  return Median(std::move(us));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeasureSession>> MeasureSession::Open(
    Bench& bench, const Operation& op, const AxisVector& axes, std::vector<InputSetPtr> sets,
    std::vector<PreparedPtr> subjects, const SessionOptions& options,
    std::unique_ptr<Sentinel> sentinel, std::vector<std::vector<OwnReference>> own) {
  if (sets.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "a measuring session without inputs",
                 "give at least one seed");
  }
  std::unique_ptr<MeasureSession> session(new MeasureSession(bench, op));
  session->mode_ = options.mode;
  session->epoch_us_ = options.epoch_us;
  session->sets_ = std::move(sets);
  session->own_ = std::move(own);
  session->sentinel_ = std::move(sentinel);
  for (Event* event : {&session->before_, &session->start_, &session->stop_}) {
    KVR_ASSIGN_OR_RETURN(*event, bench.device.CreateEvent());
  }
  KVR_RETURN_IF_ERROR(session->Plan(axes, std::move(subjects)));
  bench.at(Stage::kPrepare, -1, "filling the buffers of the measuring session");
  KVR_RETURN_IF_ERROR(session->MakeRing(axes));
  session->info_.mode = options.mode;
  session->info_.input_sets = static_cast<int>(session->sets_.size());
  session->info_.buffer_sets = static_cast<int>(session->buffers_.size());
  return session;
}

MeasureSession::~MeasureSession() {
  for (Event event : {before_, start_, stop_}) {
    if (event.handle != nullptr) bench_.device.DestroyEvent(event);
  }
}

absl::Status MeasureSession::Plan(const AxisVector& axes, std::vector<PreparedPtr> prepared) {
  int64_t workspace_bytes = 0;
  for (size_t i = 0; i < prepared.size(); ++i) {
    Subject& subject = subjects_.emplace_back();
    if (prepared[i] == nullptr) continue;
    bench_.at(Stage::kLaunch, static_cast<int>(i), Doing("planning", *prepared[i]));
    KVR_RETURN_IF_ERROR(prepared[i]->Plan(axes, &subject.plan));
    KVR_ASSIGN_OR_RETURN(const double us, PlanMicroseconds(*prepared[i], axes));
    info_.plan_us = std::max(info_.plan_us, us);
    workspace_bytes = std::max(workspace_bytes, subject.plan.workspace_bytes);
    subject.prepared = std::move(prepared[i]);
  }
  KVR_ASSIGN_OR_RETURN(workspace_,
                       Arena::Create(bench_.device, bench_.memory, {workspace_bytes}, /*fence=*/0));
  return absl::OkStatus();
}

absl::Status MeasureSession::MakeRing(const AxisVector& axes) {
  const std::vector<TensorView> shapes = TensorShapes(op_.spec(), axes);
  std::vector<int64_t> sizes;
  for (const TensorView& shape : shapes) sizes.push_back(shape.bytes());
  // Host timings rank nothing: no memory is spent on them.
  const DeviceInfo& device = bench_.device.info();
  const bool rotate = mode_.cache == CacheMode::kCold && device.kind != "host";
  const size_t inputs = sets_.size();
  const RingSize size = SizeRing(rotate ? device.l2_bytes : 0, op_.MinimumBytes(axes),
                                 std::accumulate(sizes.begin(), sizes.end(), int64_t{0}),
                                 static_cast<int64_t>(inputs));
  for (size_t i = 0; i < static_cast<size_t>(size.sets); ++i) {
    auto arena = Arena::Create(bench_.device, bench_.memory, sizes, /*fence=*/0);
    if (!arena.ok()) {
      if (buffers_.empty()) return arena.status();
      // Graphs, and whoever else is on the device, need some too.
      const size_t enough = std::min(inputs, buffers_.size());
      buffers_.resize(std::max(enough, buffers_.size() - buffers_.size() / 8));
      break;
    }
    BufferSet& buffers = buffers_.emplace_back();
    buffers.arena = *std::move(arena);
    buffers.tensors = shapes;
    for (size_t t = 0; t < shapes.size(); ++t) {
      buffers.tensors[t].data = buffers.arena->at(static_cast<int>(t));
    }
    KVR_RETURN_IF_ERROR(Upload(buffers, i % inputs));
  }
  if (buffers_.size() > inputs) buffers_.resize(buffers_.size() / inputs * inputs);
  info_.cold = size.cold > 0 && static_cast<int64_t>(buffers_.size()) >= size.cold;
  ring_ = {buffers_.size(), inputs};
  return absl::OkStatus();
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

absl::Status MeasureSession::RestoreInputs() {
  if (!foreign_.has_value()) return absl::OkStatus();
  KVR_RETURN_IF_ERROR(Upload(buffers_[*foreign_], *foreign_ % sets_.size()));
  foreign_.reset();
  return absl::OkStatus();
}

SessionInfo MeasureSession::TakeInfo() {
  SessionInfo info = info_;
  for (const Subject& subject : subjects_) {
    if (!subject.calibrated()) continue;
    const int launches = LaunchesOf(subject);
    info.launches_least =
        info.launches_least == 0 ? launches : std::min(info.launches_least, launches);
    info.launches_most = std::max(info.launches_most, launches);
  }
  info_.sentinel_us.clear();
  info_.lead_us.clear();
  return info;
}

absl::Status MeasureSession::Launch(const Subject& subject, size_t set) {
  const absl::Status status = subject.prepared->Launch(
      subject.plan, buffers_[set % ring_.sets].tensors, workspace_->at(0), bench_.stream);
  if (!IsOfTheJob(status)) return status;
  return Error(absl::StatusCode::kInternal, What(status), Fix(status));
}

absl::StatusOr<std::unique_ptr<Graph>> MeasureSession::Record(int index, int launches,
                                                              size_t first) {
  return bench_.device.Capture(bench_.stream, [&] {
    for (int i = 0; i < launches; ++i) {
      KVR_RETURN_IF_ERROR(Launch(subjects_[index], first + static_cast<size_t>(i)));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Graph*> MeasureSession::GraphOf(int index, int launches, size_t first) {
  const Subject& subject = subjects_[index];
  const bool nothing = subject.plan.kernel_count == 0 && !subject.prepared->calls();
  if (mode_.launch == LaunchMode::kEager || nothing) return nullptr;
  if (Graph* graph = recordings_.Find(index, first); graph != nullptr) return graph;
  absl::StatusOr<std::unique_ptr<Graph>> graph = Record(index, launches, first);
  if (!graph.ok() && IsOfTheJob(graph.status())) {
    recordings_.KeepOnly({});
    graph = Record(index, launches, first);
    if (!graph.ok() && IsOfTheJob(graph.status())) {
      return Error(
          absl::StatusCode::kResourceExhausted,
          StrCat("insufficient memory: recording ", launches, " launches: ", What(graph.status())),
          "free memory on the device or measure eagerly");
    }
  }
  KVR_RETURN_IF_ERROR(graph.status());
  return recordings_.Keep(index, first, launches, *std::move(graph));
}

absl::Status MeasureSession::Replay(const Subject& subject, Graph* graph, int launches,
                                    size_t first) {
  cursor_ = (first + static_cast<size_t>(launches)) % ring_.sets;
  if (graph != nullptr) return graph->Launch(bench_.stream);
  for (int i = 0; i < launches; ++i) {
    KVR_RETURN_IF_ERROR(Launch(subject, first + static_cast<size_t>(i)));
  }
  return absl::OkStatus();
}

absl::Status MeasureSession::LeadIn(const Subject& subject, bool graph, size_t first) {
  const bool gpu = bench_.device.info().kind == "cuda";
  // Where launches are no cheaper than kernels there is nothing to hide.
  size_t untimed = gpu ? 1 : 0;
  if (info_.cold) untimed = std::max(untimed, ring_.Gap(cursor_, first));
  if (mode_.cache == CacheMode::kHot) untimed = ring_.sets;
  for (size_t i = untimed; i > 0; --i) {
    KVR_RETURN_IF_ERROR(Launch(subject, first + ring_.sets - i));
  }
  return graph && gpu && sentinel_ != nullptr ? sentinel_->Launch(bench_.stream) : absl::OkStatus();
}

absl::Status MeasureSession::FirstTurn(int index) {
  bench_.at(Stage::kLaunch, index, Doing("running", *subjects_[index].prepared));
  KVR_RETURN_IF_ERROR(Replay(subjects_[index], nullptr, static_cast<int>(ring_.sets), cursor_));
  return bench_.device.Synchronize(bench_.stream);
}

absl::StatusOr<double> MeasureSession::TimeEpoch(int index, int launches, size_t phase) {
  const Subject& subject = subjects_[index];
  const size_t first = ring_.Start(mode_.launch, launches, phase, cursor_);
  KVR_ASSIGN_OR_RETURN(Graph* const graph, GraphOf(index, launches, first));
  KVR_RETURN_IF_ERROR(LeadIn(subject, graph != nullptr, first));
  KVR_RETURN_IF_ERROR(bench_.device.Record(start_, bench_.stream));
  KVR_RETURN_IF_ERROR(Replay(subject, graph, launches, first));
  KVR_RETURN_IF_ERROR(bench_.device.Record(stop_, bench_.stream));
  KVR_ASSIGN_OR_RETURN(const double us, bench_.device.ElapsedUs(start_, stop_));
  KVR_RETURN_IF_ERROR(bench_.device.Synchronize(bench_.stream));
  return us / launches;
}

absl::Status MeasureSession::Calibrate(int index) {
  bench_.at(Stage::kLaunch, index, Doing("running", *subjects_[index].prepared));
  const int most =
      kMostLaunches / static_cast<int>(ring_.period()) * static_cast<int>(ring_.period());
  int launches = 1;
  double us = 0;
  for (;;) {
    KVR_ASSIGN_OR_RETURN(us, TimeEpoch(index, launches, 0));
    // One hiccup must not pass for a long epoch: what ends the search is seen twice.
    if (epoch_us_ > 0 && us * launches >= epoch_us_) {
      KVR_ASSIGN_OR_RETURN(const double again, TimeEpoch(index, launches, 0));
      us = std::min(us, again);
    }
    if (us * launches >= epoch_us_ || launches >= most) break;
    const double wanted = us > 0 ? 1.2 * epoch_us_ / us : most;
    launches = std::clamp(static_cast<int>(std::min<double>(wanted, most)),
                          std::min(2 * launches, most), most);
    launches = ring_.WholeTurns(launches);
    recordings_.Drop(index);
  }
  subjects_[index].launch_us = us;
  launches_ = std::max(launches_, launches);
  return absl::OkStatus();
}

int MeasureSession::LaunchesOf(const Subject& subject) const {
  const double long_epoch = std::max(epoch_us_, kLongEpochUs) / std::max(subject.launch_us, 1e-3);
  return long_epoch >= launches_ ? launches_
                                 : ring_.WholeTurns(std::max(static_cast<int>(long_epoch), 1));
}

absl::Status MeasureSession::SteadyClock() {
  if (sentinel_ == nullptr || bench_.device.info().kind != "cuda") return absl::OkStatus();
  bench_.at(Stage::kPrepare, -1, "warming up");
  const auto start = std::chrono::steady_clock::now();
  std::deque<double> clocks;
  for (;;) {
    for (int i = 0; i < kSentinelRuns; ++i) KVR_RETURN_IF_ERROR(sentinel_->Launch(bench_.stream));
    KVR_ASSIGN_OR_RETURN(const Sentinel::Reading reading, sentinel_->Read(bench_.stream));
    if (reading.nanoseconds <= 0) return absl::OkStatus();
    clocks.push_back(static_cast<double>(reading.cycles) /
                     static_cast<double>(reading.nanoseconds));
    if (clocks.size() > kSteadyReadings) clocks.pop_front();
    const auto [least, most] = std::minmax_element(clocks.begin(), clocks.end());
    const bool steady = clocks.size() == kSteadyReadings && *most - *least <= kSteady * *most;
    const auto took = std::chrono::steady_clock::now() - start;
    if ((steady && took >= kLeastWarmUp) || took >= kMostWarmUp) return absl::OkStatus();
  }
}

absl::Status MeasureSession::RunSentinel() {
  bench_.at(Stage::kPrepare, -1, "running the sentinel");
  Device& device = bench_.device;
  KVR_RETURN_IF_ERROR(device.Record(before_, bench_.stream));
  KVR_RETURN_IF_ERROR(sentinel_->Launch(bench_.stream));
  KVR_RETURN_IF_ERROR(device.Record(start_, bench_.stream));
  for (int i = 0; i < kSentinelRuns; ++i) KVR_RETURN_IF_ERROR(sentinel_->Launch(bench_.stream));
  KVR_RETURN_IF_ERROR(device.Record(stop_, bench_.stream));
  info_.throttle_bits |= device.ThrottleBits();
  KVR_ASSIGN_OR_RETURN(const double us, device.ElapsedUs(start_, stop_));
  KVR_ASSIGN_OR_RETURN(const double lead, device.ElapsedUs(before_, start_));
  KVR_ASSIGN_OR_RETURN(const Sentinel::Reading reading, sentinel_->Read(bench_.stream));
  info_.sentinel_us.push_back(us / kSentinelRuns);
  info_.lead_us.push_back(lead);
  if (reading.nanoseconds > 0) {
    readings_.cycles += reading.cycles;
    readings_.nanoseconds += reading.nanoseconds;
    info_.clock_mhz = static_cast<int>(1000 * readings_.cycles / readings_.nanoseconds);
  }
  return absl::OkStatus();
}

absl::StatusOr<SampleTable> MeasureSession::Sample(absl::Span<const int> subjects, int rounds,
                                                   Outcome* fault) {
  recordings_.KeepOnly(subjects);
  KVR_RETURN_IF_ERROR(RestoreInputs());
  SampleTable table;
  if (!steady_) KVR_RETURN_IF_ERROR(SteadyClock());
  steady_ = true;
  const int launches_before = launches_;
  for (int index : subjects) {
    if (subjects_[index].calibrated()) continue;
    absl::Status status;
    if (info_.cold && !turned_) status = FirstTurn(index);
    turned_ |= status.ok();
    if (status.ok()) status = Calibrate(index);
    if (!status.ok()) {
      if (IsOfTheJob(status)) return status;
      *fault = RuntimeError(index, status);
      return table;
    }
  }
  if (launches_ != launches_before) recordings_.KeepOnly({});
  std::vector<size_t> order(subjects.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random_);
    const size_t phase = random_() % sets_.size();
    table.emplace_back(subjects.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t position : order) {
      const int index = subjects[position];
      const Subject& subject = subjects_[index];
      bench_.at(Stage::kLaunch, index, Doing("running", *subject.prepared));
      const int launches = LaunchesOf(subject);
      const absl::StatusOr<double> us = TimeEpoch(index, launches, phase);
      if (!us.ok()) {
        if (IsOfTheJob(us.status())) return us.status();
        *fault = RuntimeError(index, us.status());
        return table;
      }
      table.back()[position] = *us;
      const double epoch_us = *us * launches;
      info_.least_epoch_us =
          info_.least_epoch_us == 0 ? epoch_us : std::min(info_.least_epoch_us, epoch_us);
      if (++epochs_ % kSentinelEpochs == 0 && sentinel_ != nullptr) {
        KVR_RETURN_IF_ERROR(RunSentinel());
      }
    }
  }
  return table;
}

bool MeasureSession::SameScalars(size_t a, size_t b) const {
  for (size_t i = 0; i < sets_[a]->inputs.size(); ++i) {
    const TensorView& x = sets_[a]->inputs[i];
    const TensorView& y = sets_[b]->inputs[i];
    if (x.rank == 0 && std::memcmp(x.data, y.data, static_cast<size_t>(x.bytes())) != 0) {
      return false;
    }
  }
  return true;
}

const std::vector<ReferenceOutput>& MeasureSession::ReferenceOf(int index, size_t set) const {
  const bool has_own = static_cast<size_t>(index) < own_.size() && !own_[index].empty();
  return has_own ? *own_[index][set] : sets_[set]->reference;
}

absl::StatusOr<Outcome> MeasureSession::Check(int index) {
  const Subject& subject = subjects_[index];
  const OpSpec& spec = op_.spec();
  const int launches = subject.calibrated() ? LaunchesOf(subject) : 1;
  const size_t first = ring_.Start(mode_.launch, launches, random_(), cursor_);
  const size_t epoch_sets = std::min(static_cast<size_t>(launches), ring_.sets);
  size_t chosen = (first + random_() % epoch_sets) % ring_.sets;
  if (foreign_.has_value()) {
    // What is recorded or launched for the first time must not have seen what it is checked on.
    const bool timed = subject.calibrated() && (mode_.launch == LaunchMode::kEager ||
                                                recordings_.Find(index, first) != nullptr);
    if (timed && ring_.Gap(first, *foreign_) < epoch_sets) {
      chosen = *foreign_;
    } else {
      KVR_RETURN_IF_ERROR(RestoreInputs());
    }
  }
  BufferSet& buffers = buffers_[chosen];
  const size_t usual = chosen % sets_.size();

  bench_.at(Stage::kLaunch, index, Doing("running", *subject.prepared));
  absl::StatusOr<Graph*> graph = GraphOf(index, launches, first);
  absl::Status ran = graph.status();
  if (ran.ok()) ran = LeadIn(subject, *graph != nullptr, first);
  if (ran.ok()) ran = Replay(subject, *graph, launches, first);
  if (ran.ok()) ran = bench_.device.Synchronize(bench_.stream);
  if (IsOfTheJob(ran)) return ran;
  if (!ran.ok()) return RuntimeError(index, ran);

  const size_t other = (usual + 1) % sets_.size();
  if (buffers.input_set != other) {
    KVR_RETURN_IF_ERROR(Upload(buffers, other));
    foreign_ = chosen;
  }
  const uint8_t poison = PoisonByte(static_cast<int>(random_() % 2));
  for (size_t t = spec.inputs.size(); t < buffers.tensors.size(); ++t) {
    const TensorView& output = buffers.tensors[t];
    if (output.bytes() == 0) continue;
    KVR_RETURN_IF_ERROR(
        bench_.device.MemsetAsync(output.data, poison, output.bytes(), bench_.stream));
  }
  KVR_RETURN_IF_ERROR(bench_.device.Synchronize(bench_.stream));
  // A recording has the scalars of its inputs in it: others need another.
  std::unique_ptr<Graph> of_other;
  if (*graph != nullptr && !SameScalars(usual, other)) {
    absl::StatusOr<std::unique_ptr<Graph>> made = Record(index, launches, first);
    if (!made.ok() && IsOfTheJob(made.status())) return made.status();
    if (!made.ok()) return RuntimeError(index, made.status());
    of_other = *std::move(made);
    *graph = of_other.get();
  }
  ran = Replay(subject, *graph, launches, first);
  if (ran.ok()) ran = bench_.device.Synchronize(bench_.stream);
  if (!ran.ok()) return RuntimeError(index, ran);

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
  Comparison comparison = Compare(spec, outputs, ReferenceOf(index, other), poison);
  // Recordings have the scalars of the usual inputs, which must not meet other tensors again.
  if (!SameScalars(usual, other)) KVR_RETURN_IF_ERROR(RestoreInputs());
  Outcome outcome;
  outcome.finding.subject = index;
  outcome.finding.status = comparison.status;
  if (comparison.status != TrialStatus::kPassed) {
    outcome.finding.reason = StrCat("after timing: ", comparison.reason);
  }
  outcome.finding.max_abs = comparison.max_abs;
  outcome.finding.max_rel = comparison.max_rel;
  return outcome;
}

}  // namespace kvr
