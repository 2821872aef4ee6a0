// SPDX-License-Identifier: Apache-2.0
//
// Lets Debian's static Abseil into a shared library. Three of its archive members keep thread-local
// variables in the local-exec model, which only executables can have; defining their functions here
// keeps the linker from taking those members. Everything else of Abseil is position independent
// once libstdc++ is linked statically. The declarations are Abseil's own, so another Abseil that
// declares them otherwise fails to compile, and one whose members hold more fails to link.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/base/internal/sysinfo.h"
#include "absl/container/internal/raw_hash_set.h"
#include "absl/strings/internal/cordz_functions.h"

// What absl::StrFormat's parser writes to before it aborts: it reads `stderr` as executables may,
// so api/CMakeLists.txt renames that in a copy of the archive.
extern "C" {
extern FILE* kvr_absl_stderr;
FILE* kvr_absl_stderr = stderr;
}

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

namespace container_internal {

// What a table without elements looks at: nothing up to the end, which comes first.
alignas(16) ABSL_CONST_INIT ABSL_DLL const ctrl_t kEmptyGroup[16] = {
    ctrl_t::kSentinel, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty};

// In debug builds Abseil takes the one or the other free place at random.
bool ShouldInsertBackwards(size_t, const ctrl_t*) { return false; }

// Before elements are put in their places anew within one table.
void ConvertDeletedToEmptyAndFullToDeleted(ctrl_t* ctrl, size_t capacity) {
  for (ctrl_t* at = ctrl; at != ctrl + capacity; ++at) {
    *at = IsFull(*at) ? ctrl_t::kDeleted : ctrl_t::kEmpty;
  }
  ctrl[capacity] = ctrl_t::kSentinel;
  std::memcpy(ctrl + capacity + 1, ctrl, NumClonedBytes());
}

template FindInfo find_first_non_full(const ctrl_t*, size_t, size_t);
[[noreturn]] void HashTableSizeOverflow() { std::abort(); }

}  // namespace container_internal

ABSL_NAMESPACE_END
}  // namespace absl
