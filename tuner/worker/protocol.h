// SPDX-License-Identifier: Apache-2.0
//
// What parent and worker say to each other: one JSON object a line. The parent sends requests, one
// at a time; the worker says hello once, then, for each request, any number of stages and one
// reply.
//
//   > {"id":1,"job":"verify","op":"...","axes":{...},"seeds":[1,2],"items":[{...}]}
//   < {"id":1,"stage":"prepare","doing":"..."}    inputs and reference are being computed
//   < {"id":1,"stage":"launch","subject":0,"doing":"..."}    code of this item runs now
//   < {"id":1,"findings":[{"subject":0,"status":"PASSED",...}]}
//
// A stage tells the parent whom to blame, what to say of it and how long to wait when nothing more
// comes. Binaries travel as files (jit/cache.h, EncodeEntry); a worker never compiles.
//
// Threading: pure functions. Decoding errors say what is wrong with the line; both ends come from
// one build, which `kProtocol` checks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/axes.h"
#include "core/config.h"
#include "core/device_info.h"
#include "core/fingerprint.h"
#include "core/op.h"
#include "tuner/compare.h"
#include "tuner/sampler.h"

namespace kvr {

inline constexpr int kProtocol = 5;

// How launches are made, and what the L2 cache holds when they begin: part of what a time means, so
// times of two modes are never compared.
enum class LaunchMode : uint8_t {
  kGraph,  // an epoch is one launch of a recorded graph, as serving does it
  kEager,  // every launch by itself; where a kernel is shorter than its launch, that is measured
};
enum class CacheMode : uint8_t {
  kCold,  // launches rotate over buffer sets, more than the cache holds (SessionInfo::cold)
  kHot,   // one buffer set for each input set, used again and again
};
struct MeasureMode {
  LaunchMode launch = LaunchMode::kGraph;
  CacheMode cache = CacheMode::kCold;
  bool operator==(const MeasureMode&) const = default;
};
std::string ModeText(MeasureMode mode);  // "graph cold"
// "graph cold", "eager,hot", or one word of them: the other is the default's.
absl::StatusOr<MeasureMode> ParseMode(std::string_view text);

struct SessionOptions {
  MeasureMode mode;
  double epoch_us = -1;       // least time of an epoch; negative: 100 on cuda, one launch elsewhere
  std::string sentinel_path;  // of BuildSentinel's binary (BinaryFiles::Add); empty: no sentinel
};

struct WorkItem {
  std::string variant;
  Fingerprint fingerprint;  // of the variant the parent means
  Config config;
  std::string binary_path;
};

enum class Job : uint8_t {
  kVerify,  // items[0], a round for each seed
  kOpen,    // a measuring session of items; one at a time, replaces the one before
  kSample,  // `rounds` interleaved rounds of `subjects`
  kCheck,   // are the numbers of `subjects` still right, under the session's own launches?
};

struct Request {
  int64_t id = 0;
  Job job = Job::kVerify;
  std::string op;
  Axes axes;  // every axis of the op
  std::vector<uint64_t> seeds;
  std::vector<WorkItem> items;
  std::vector<int> subjects;  // kOpen: those to load; kSample, kCheck: those meant
  int rounds = 0;
  SessionOptions session;  // kOpen; epoch_us is not negative here
};

struct Finding {
  TrialStatus status = TrialStatus::kPassed;
  std::string reason;
  double max_abs = 0, max_rel = 0;
  // Of an approximate variant that passed: how far what it wrote is from the exact result, the mean
  // over the rounds (tuner/compare.h, DistanceOf; then Operation::Quality).
  std::vector<QualityMeasure> quality;
  int subject = 0;
};

struct SessionInfo {
  MeasureMode mode;     // as asked for
  int input_sets = 0;   // different inputs, each with its reference
  int buffer_sets = 0;  // copies that launches rotate over
  bool cold = false;    // the L2 cache is known to have forgotten a set before its next use
  int launches_least = 0, launches_most = 0;  // of an epoch, over the subjects timed so far
  double least_epoch_us = 0;                  // the shortest epoch timed; 0: none yet
  double plan_us = 0;  // Prepared::Plan on the host: median, of the slowest subject
  // The sentinel, each time it was asked, in order: the mean of a few runs behind another one, and
  // that first one's time from an idle stream. A reply has the new ones only. Reported on every
  // device, but only a GPU's are judged: elsewhere the scheduler of the operating system is timed.
  std::vector<double> sentinel_us, lead_us;
  int clock_mhz = 0;           // by the sentinel's own cycles and time; 0: not known
  uint64_t throttle_bits = 0;  // Device::ThrottleBits, all that were seen
};
// What holds of both, sentinels one after the other; a session without buffers is none.
SessionInfo Merge(const SessionInfo& a, const SessionInfo& b);

enum class Stage : uint8_t {
  kPrepare,  // inputs, references, transfers; an own reference is its `subject`'s code
  kLaunch,   // kernels of `subject` run, or may have damaged what runs now
};

struct Message {
  enum class Kind : uint8_t { kHello, kStage, kReply };
  Kind kind = Kind::kReply;
  int64_t id = 0;
  // hello
  int protocol = 0;
  DeviceInfo device;
  // stage
  Stage stage = Stage::kPrepare;
  int subject = -1;
  std::string doing;  // "running host_c"; of a death: "killed by SIGSEGV while ..."
  // reply (and a hello that failed)
  absl::Status error;      // the job could not be done at all
  bool unusable = false;   // the worker must be replaced
  int fault_subject = -1;  // the subject whose launch ended the job; its finding is findings[0]
  std::vector<Finding> findings;
  SampleTable samples;
  SessionInfo session;
};

std::string EncodeRequest(const Request& request);
absl::StatusOr<Request> DecodeRequest(std::string_view line);
std::string EncodeMessage(const Message& message);
absl::StatusOr<Message> DecodeMessage(std::string_view line);

}  // namespace kvr
