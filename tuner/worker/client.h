// SPDX-License-Identifier: Apache-2.0
//
// The parent's side: one worker process, respawned whenever what it runs brings it down. An illegal
// access, an abort, an endless kernel or a lost context ends the worker and is a finding against
// the item that ran; the caller's process and its own contexts see nothing of it.
//
// Blame: a death while kernels of an item run is that item's. If the worker had run others before,
// which may have damaged it, the item is run once more in a fresh one, alone, and only that counts.
// A kernel that does not end is taken at its word: the others had passed their fences, and each
// further run of it would cost the whole timeout. An item that dies among others time and again
// though not alone is measured no further. A death that is no item's is tried once more.
//
// Threading: one thread at a time, and the thread that calls must live as long as the client: the
// kernel kills a worker when the thread that spawned it ends (PR_SET_PDEATHSIG), or when the
// client's pipe closes, whichever comes first. Errors: what is not an item's fault: the worker
// cannot start, "insufficient memory" (kResourceExhausted), cancelled (kCancelled).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/axes.h"
#include "core/binary.h"
#include "core/device_info.h"
#include "plugins/scratch_directory.h"
#include "tuner/sampler.h"
#include "tuner/stats/drift.h"
#include "tuner/worker/process.h"
#include "tuner/worker/protocol.h"

namespace kvr {

struct WorkerOptions {
  std::string executable;                     // empty: FindWorker()
  std::string device = "auto";                // as the worker's --device
  std::vector<std::string> plugin_roots;      // further plugins
  std::vector<std::string> replacements;      // places (tuner/rescan.h) whose variants come first
  int64_t memory_bytes = 0;                   // most device memory; 0: what the device gives
  double launch_timeout_s = 30;               // for one item's kernels, load included
  double prepare_timeout_s = 900;             // inputs, reference, transfers
  const std::atomic<bool>* cancel = nullptr;  // set by a signal handler
};

// KVR_WORKER, else <prefix>/bin/kvr-worker (core/install_layout.h).
absl::StatusOr<std::string> FindWorker();

// What all jobs on one shape share.
struct WorkShape {
  std::string op;
  Axes axes;                    // every axis
  std::vector<uint64_t> seeds;  // of the input sets
};

class WorkerClient {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Start(WorkerOptions options);
  ~WorkerClient();

  const DeviceInfo& device() const { return device_; }
  int respawns() const { return respawns_; }
  pid_t pid() const { return process_ == nullptr ? -1 : process_->pid(); }

  // Ends the worker and starts a fresh one: a new process, context, module loads and allocations,
  // as each session of a ship verdict or a noise band has. A sampler that is open goes on in it.
  absl::Status Restart();

  absl::StatusOr<Finding> Verify(const WorkShape& shape, const WorkItem& item);

 private:
  friend class WorkerSampler;
  explicit WorkerClient(WorkerOptions options) : options_(std::move(options)) {}
  struct Answer {
    Message reply;
    bool died = false;  // then reply.findings[0] says how, reply.fault_subject whose fault it was
    bool timed_out = false;
  };
  absl::Status Spawn();
  // Sends, waits, kills and explains. A worker that died or is unusable is gone afterwards.
  absl::StatusOr<Answer> Call(Request request);
  absl::StatusOr<Answer> Death(const std::string& how, TrialStatus status, const Message& last);

  const WorkerOptions options_;
  std::string executable_;
  std::unique_ptr<ChildProcess> process_;
  DeviceInfo device_;
  int respawns_ = -1;
  int64_t next_id_ = 1;
  int64_t process_number_ = 0;  // counts from 1
  int64_t calls_of_process_ = 0;
  stats::DeviceWatch watch_;  // of all its workers: they run on one device
};

// A measuring session: interleaved samples of several items on one shape. Survives the death of its
// worker: whoever is to blame is out, with its finding, and the others go on in a fresh one.
//
// trouble(): throttle reasons; on cuda also what the sentinel says (tuner/stats/drift.h). One watch
// is kept over all sessions of a client, since one session may be too short to know what is usual:
// trouble is that of the session in which it shows.
class WorkerSampler : public Sampler {
 public:
  // The client outlives it; one session of a client at a time.
  static absl::StatusOr<std::unique_ptr<WorkerSampler>> Open(WorkerClient& client, WorkShape shape,
                                                             std::vector<WorkItem> items,
                                                             SessionOptions options);

  int subjects() const override { return static_cast<int>(items_.size()); }
  absl::StatusOr<SampleTable> Sample(absl::Span<const int> subjects, int rounds) override;

  // Fresh inputs and poisoned outputs under the session's own launches; finding() has the result.
  absl::Status Check(absl::Span<const int> subjects);

  const Finding& finding(int subject) const { return findings_[subject]; }
  const SessionInfo& info() const { return info_; }  // with all sentinels so far
  std::string trouble() const override { return trouble_; }

 private:
  explicit WorkerSampler(WorkerClient& client) : client_(client) {}
  bool open() const;
  absl::Status Reopen();
  // One attempt to open a session of `subjects`.
  absl::StatusOr<WorkerClient::Answer> OpenOnce(std::vector<int> subjects);
  std::vector<int> Alive(absl::Span<const int> subjects) const;
  void Condemn(const Message& reply);
  // Merges what a reply says of the session, and judges it.
  void Learn(const SessionInfo& session);
  // What a death, or a fault that the worker itself reported, means for the subjects; the session
  // is closed. `job` is what ran. An error when nobody is to blame for the second time in a row.
  absl::Status Blame(const WorkerClient::Answer& answer, Job job);

  WorkerClient& client_;
  WorkShape shape_;
  std::vector<WorkItem> items_;
  std::vector<Finding> findings_;
  SessionOptions options_;
  SessionInfo info_;
  std::string trouble_;
  int64_t open_in_ = 0;          // the process that holds the session; 0: none
  std::vector<bool> acquitted_;  // ran well alone after a death
  int stray_deaths_ = 0;         // nobody's, since the last answer
};

// A private temporary directory of binaries for a worker, removed with it.
class BinaryFiles {
 public:
  static absl::StatusOr<std::unique_ptr<BinaryFiles>> Create();
  absl::StatusOr<std::string> Add(const Binary& binary);  // one file a key

 private:
  explicit BinaryFiles(std::unique_ptr<ScratchDirectory> directory)
      : directory_(std::move(directory)) {}
  const std::unique_ptr<ScratchDirectory> directory_;
};

}  // namespace kvr
