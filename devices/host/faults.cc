// SPDX-License-Identifier: Apache-2.0
#include "devices/host/faults.h"

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "devices/host/block_state.h"

namespace kvr::host {
namespace {

constexpr std::array<int, 3> kSignals = {SIGSEGV, SIGBUS, SIGFPE};

// What stood there before; written once, before the handler that reads it can run.
struct sigaction previous[kSignals.size()];

constexpr uint64_t kNullBytes = 64 << 10;  // an index into a null pointer

std::string AccessText(const CpuFault& fault) {
  const std::string access = fault.write ? "a write to" : "a read of";
  // The CPU gives no address for these.
  if (fault.code == SI_KERNEL) {
    return "a vector access that is not aligned, or an address that cannot exist";
  }
  const std::string address = absl::StrCat("address 0x", absl::Hex(fault.address));
  if (fault.address < kNullBytes) return absl::StrCat(access, " ", address, ": a null pointer");
  return absl::StrCat(access, " ", address, ", where the kernel has no memory");
}

std::string WhatOf(const CpuFault& fault) {
  if (fault.signal != SIGFPE) return AccessText(fault);
  return fault.code == FPE_INTDIV ? "an integer division by zero, or one whose result overflows"
                                  : "a floating-point exception, which this process traps";
}

std::string_view FixOf(const CpuFault& fault) {
  if (fault.signal == SIGFPE) return "check the operands";
  return "check the index against the tensor's size; a vector access needs an address that is a "
         "multiple of the vector's bytes";
}

// Where a thread goes on after a fault.
[[noreturn]] void Land() {
  BlockRunner::State* state = ThreadState();
  FailAt(state->current, 0, WhatOf(state->fault), FixOf(state->fault));
}

void Chain(int signal, siginfo_t* info, void* context) {
  size_t i = 0;
  while (kSignals[i] != signal) ++i;
  const struct sigaction& before = previous[i];
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    // A fault comes again when this returns, and the kernel ends the process; a signal that was
    // sent does not.
    if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;
    sigaction(signal, &before, nullptr);
    if (info->si_code <= 0) raise(signal);
  } else {
    before.sa_handler(signal);
  }
}

void OnSignal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  BlockRunner::State* state = ThreadState();
  // A second one means that the way out of the first faults, too.
  if (state == nullptr || state->fault.signal != 0 || info->si_code <= 0) {
    Chain(signal, info, context);
    errno = saved_errno;
    return;
  }
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  CpuFault& fault = state->fault;
  fault.signal = signal;
  fault.code = info->si_code;
  fault.address = reinterpret_cast<uintptr_t>(info->si_addr);
  fault.write = (registers[REG_ERR] & 2) != 0;  // of the page fault's error code
  // As after a call: the stack is aligned but for the return address.
  const uintptr_t top = reinterpret_cast<uintptr_t>(state->stacks.top(0)) / 16 * 16;
  registers[REG_RSP] = static_cast<greg_t>(top - 16 - 8);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&Land);
}

}  // namespace

absl::Status CatchKernelFaults() {
  static const absl::Status status = []() -> absl::Status {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action = {};
      action.sa_sigaction = &OnSignal;
      // A thread with a signal stack of its own keeps using it.
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigemptyset(&action.sa_mask);
      if (sigaction(kSignals[i], nullptr, &previous[i]) != 0 ||
          sigaction(kSignals[i], &action, nullptr) != 0) {
        return Error(absl::StatusCode::kUnavailable,
                     absl::StrCat("cannot handle ", strsignal(kSignals[i]), ": ", strerror(errno)),
                     "report this as a fault of the host device");
      }
    }
    return absl::OkStatus();
  }();
  return status;
}

}  // namespace kvr::host
