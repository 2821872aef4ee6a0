// SPDX-License-Identifier: Apache-2.0
//
// Lets Debian's static Abseil into a shared library. Two of its archive members keep thread-local
// variables in the local-exec model, which only executables can have; defining their functions here
// keeps the linker from taking those members. Everything else of Abseil is position independent
// once libstdc++ is linked statically. The declarations are Abseil's own, so another Abseil that
// declares them otherwise fails to compile, and one whose members hold more fails to link.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/base/internal/sysinfo.h"
#include "absl/strings/internal/cordz_functions.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

namespace cord_internal {

// Statistics about Cords: never sampled.
ABSL_CONST_INIT thread_local int64_t cordz_next_sample = INT64_MAX;

bool cordz_should_profile_slow() {
  cordz_next_sample = INT64_MAX;
  return false;
}
int32_t get_cordz_mean_interval() { return 0; }
void set_cordz_mean_interval(int32_t) {}
void cordz_set_next_sample_for_testing(int64_t) {}

}  // namespace cord_internal

namespace base_internal {

int NumCPUs() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}
double NominalCPUFrequency() { return 1.0; }  // unknown, as Abseil says it
pid_t GetTID() { return static_cast<pid_t>(syscall(SYS_gettid)); }
pid_t GetCachedTID() {
  static thread_local const pid_t id = GetTID();
  return id;
}

}  // namespace base_internal

ABSL_NAMESPACE_END
}  // namespace absl
