// SPDX-License-Identifier: Apache-2.0
//
// A launch whose axes are fixed: the plan is evaluated and the parameter arrays are laid out once;
// each call checks that the generation has not changed and launches. After a swap the next call
// re-plans by itself, without allocating, and lets go of the old binary; an idle one keeps it.
//
//   KVR_ASSIGN_OR_RETURN(BoundLaunch decode, runtime.Bind("mla_sparse_decode", tensors));
//   KVR_RETURN_IF_ERROR(decode.SetData(0, q_nope));  // other memory of the same shape, when it
//   moves KVR_RETURN_IF_ERROR(decode.Launch(stream));
//
// Threading: belongs to one thread at a time. Capture safety: Launch is legal while the stream
// captures. Ownership: movable; must not outlive its Dispatcher (or Runtime). Tensors' memory is
// the caller's; scalars are copied at Bind and SetData.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "core/device.h"
#include "core/tensor.h"
#include "registry/workspace.h"

namespace kvr {

class Dispatcher;
class Prepared;

class BoundLaunch {
 public:
  BoundLaunch(BoundLaunch&&) noexcept;
  BoundLaunch& operator=(BoundLaunch&&) noexcept;
  ~BoundLaunch();

  absl::Status Launch(Stream stream);

  // Memory of tensor `index` (inputs, then outputs); of a scalar input: its value, read now.
  absl::Status SetData(int index, void* data);
  // The caller's workspace instead of the stream's; {} gives the stream's back.
  absl::Status SetWorkspace(Workspace workspace);

  int64_t workspace_bytes() const;
  const Prepared& prepared() const;  // what the last launch used

 private:
  friend class Dispatcher;
  struct State;
  explicit BoundLaunch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvr
