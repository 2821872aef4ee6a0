// SPDX-License-Identifier: Apache-2.0
//
// Makes a context current for a scope and puts back what was current before. Which context is
// current is asked of the driver each time (a thread-local read there) rather than cached here: the
// application switches contexts behind our back, as PyTorch does with several GPUs.
#pragma once

#include "absl/status/status.h"
#include "devices/cuda/driver.h"

namespace kvr::cuda {

class ScopedContext {
 public:
  ScopedContext(const Driver& driver, Context context) : driver_(driver) {
    result_ = driver.CtxGetCurrent(&before_);
    if (result_ != kSuccess || before_ == context) return;
    result_ = driver.CtxSetCurrent(context);
    changed_ = result_ == kSuccess;
  }
  ~ScopedContext() {
    if (changed_) driver_.CtxSetCurrent(before_);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  bool ok() const { return result_ == kSuccess; }
  absl::Status status() const {
    return ok() ? absl::OkStatus() : ErrorFrom(driver_, result_, "cuCtxSetCurrent");
  }

 private:
  const Driver& driver_;
  Context before_ = nullptr;
  Result result_ = kSuccess;
  bool changed_ = false;
};

// Work that allocates, frees, loads or waits, in the context and for the scope. A capture that
// another thread began in global mode, as PyTorch does, would be invalidated by such calls; relaxed
// mode is how a thread says that its calls have nothing to do with any capture. Nested ones leave
// the mode to the outermost: a patch makes hundreds of calls, and an exchange costs 25 ns.
class ScopedBackgroundWork {
 public:
  ScopedBackgroundWork(const Driver& driver, Context context)
      : current_(driver, context), driver_(driver) {
    if (depth_++ == 0) exchanged_ = driver.ThreadExchangeCaptureMode(&mode_) == kSuccess;
  }
  ~ScopedBackgroundWork() {
    --depth_;
    if (exchanged_) driver_.ThreadExchangeCaptureMode(&mode_);
  }
  ScopedBackgroundWork(const ScopedBackgroundWork&) = delete;
  ScopedBackgroundWork& operator=(const ScopedBackgroundWork&) = delete;

  bool ok() const { return current_.ok(); }
  absl::Status status() const { return current_.status(); }

 private:
  const ScopedContext current_;
  const Driver& driver_;
  int mode_ = kCaptureModeRelaxed;
  bool exchanged_ = false;
  static inline constinit thread_local int depth_ = 0;
};

}  // namespace kvr::cuda
