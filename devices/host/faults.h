// SPDX-License-Identifier: Apache-2.0
//
// Faults of the CPU in kernels: an address without memory, a misaligned vector, a division by zero
// end the launch with an error that says where, like every other fault of a kernel.
//
// How: a handler for SIGSEGV, SIGBUS and SIGFPE. On a thread that runs a block it lets the
// thread go on where FailAt is called, on a stack of the block's; the block's fibers never run
// again. That is safe because what kernels call holds no lock while it touches their memory. Any
// other such signal, and one that was sent, goes to the handler that was there before.
#pragma once

#include "absl/status/status.h"

namespace kvr::host {

// Once for the process; later calls do nothing. The handler stays: this library is never unloaded.
absl::Status CatchKernelFaults();

}  // namespace kvr::host
