// SPDX-License-Identifier: Apache-2.0
//
// The worker's side of the protocol: requests in, stages and replies out, on a device and a catalog
// that the executable brings. It runs kernels nobody has vouched for, so it may die at any time;
// all it owes is that its last words say what it was doing.
//
// Threading: Handle on one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "registry/catalog.h"
#include "tuner/worker/bench.h"
#include "tuner/worker/measure.h"
#include "tuner/worker/protocol.h"

namespace kvr {

struct WorkerServerOptions {
  int64_t memory_limit = 0;  // bytes on the device; 0: no limit of ours
  int threads = 0;           // of the reference; 0: all cores
  // Looked at before the catalog's, by name and fingerprint.
  std::vector<VariantPtr> replacements;
};

class WorkerServer {
 public:
  // `write` sends one message. Device and catalog outlive the server.
  WorkerServer(Device& device, const Catalog& catalog, const WorkerServerOptions& options,
               std::function<void(const Message&)> write);
  ~WorkerServer();

  absl::Status Start();  // makes the stream
  Message Hello() const;
  // Runs one request and writes its reply.
  void Handle(const Request& request);

 private:
  absl::Status Dispatch(const Request& request, Message* reply);
  absl::Status Verify(const Request& request, const Catalog::Op& op, const AxisVector& axes,
                      Message* reply);
  absl::Status OpenSession(const Request& request, const Catalog::Op& op, const AxisVector& axes,
                           Message* reply);
  absl::Status Sample(const Request& request, Message* reply);
  absl::Status Check(const Request& request, Message* reply);
  // Is there room for the op's tensors? Asked before minutes of computing their reference.
  absl::Status CheckRoom(const OpSpec& op, const AxisVector& axes);
  absl::StatusOr<VariantPtr> FindVariant(const Catalog::Op& op, const WorkItem& item) const;
  absl::StatusOr<PreparedPtr> LoadItem(const Catalog::Op& op, const WorkItem& item);
  // Empty of an exact one.
  absl::StatusOr<std::vector<OwnReference>> OwnReferences(absl::Span<const InputSetPtr> sets,
                                                          const Prepared& prepared, int subject);
  absl::Status CheckSubjects(const Request& request, size_t count) const;

  const Catalog& catalog_;
  const std::vector<VariantPtr> replacements_;
  std::function<void(const Message&)> write_;
  Bench bench_;
  InputSets inputs_;
  std::unique_ptr<MeasureSession> session_;
  std::vector<PreparedPtr> session_items_;
  int64_t request_id_ = 0;
};

// Reads lines of descriptor `in` until it closes, then ends the process at once: whatever a kernel
// is doing, a worker does not outlive its parent. Lines come out of Next, in order.
class LineSource {
 public:
  explicit LineSource(int in);
  std::string Next();  // blocks

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvr
