// SPDX-License-Identifier: Apache-2.0
//
// Accesses to shared memory: bounds, races, and asynchronous copies.
//
// Two accesses to a byte by two threads race if one is a write, they are not both atomic (or
// volatile), and nothing has ordered them: no barrier of both, no collective of their warp, no
// atomic operation or fence of the later one. That last rule is generous, so kernels with their own
// locks raise no false alarm. A write of the value that is there already harms nobody and passes.
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "devices/host/block_state.h"

namespace kvr::host {
namespace {

using State = BlockRunner::State;
using Unit = SharedLog::Unit;

constexpr char kOutsideFix[] = "keep indices inside the arrays, or launch with more shared memory";

// "byte 64 of dynamic shared memory"; the region it lies in, or the nearer one.
std::string ByteText(const State& state, int64_t offset, int64_t* region_bytes = nullptr) {
  const int64_t static_bytes = state.static_end - state.static_begin;
  const int64_t dynamic_bytes = state.dynamic_end - state.dynamic_begin;
  const bool is_static =
      static_bytes > 0 &&
      (dynamic_bytes == 0 || offset - state.static_end < state.dynamic_begin - offset);
  if (region_bytes != nullptr) *region_bytes = is_static ? static_bytes : dynamic_bytes;
  return absl::StrCat("byte ", offset - (is_static ? state.static_begin : state.dynamic_begin),
                      " of ", is_static ? "static" : "dynamic", " shared memory");
}

[[noreturn]] __attribute__((noinline)) void FailOutside(Lane* self, int64_t begin, int64_t end,
                                                        unsigned how) {
  const State& state = *self->state;
  const char* access = (how & kvr_host_access_write) != 0 ? "a write" : "a read";
  if (begin < 0 || end > state.shared_bytes) {
    FailAt(self, how >> 2, absl::StrCat(access, " that must lie in shared memory, and does not"),
           "give an address in shared memory, inside its arrays");
  }
  // Its first byte that is outside.
  if (begin >= state.static_begin && begin < state.static_end) begin = state.static_end;
  if (begin >= state.dynamic_begin && begin < state.dynamic_end) begin = state.dynamic_end;
  int64_t bytes = 0;
  const std::string where = ByteText(state, begin, &bytes);
  FailAt(self, how >> 2, absl::StrCat(access, " at ", where, ", which has ", bytes, " bytes"),
         kOutsideFix);
}

// What is wrong with `mine`, which came after `other`.
std::string RaceText(const State& state, int64_t word, SharedRecord mine, bool is_write,
                     SharedRecord other, bool other_is_read) {
  const Lane& later = state.lanes[RecordThread(mine)];
  const Lane& earlier = state.lanes[RecordThread(other)];
  const uint32_t bytes = RecordBytes(mine) & RecordBytes(other);
  const int64_t offset = word * SharedLog::kWordBytes + std::countr_zero(bytes);
  return absl::StrCat("race in ", BlockText(later), ": ", ThreadText(later),
                      is_write ? " writes " : " reads ", ByteText(state, offset),
                      SiteText(later, RecordSite(mine)), ", which ", ThreadText(earlier),
                      other_is_read ? " read" : " wrote", SiteText(earlier, RecordSite(other)),
                      ", and nothing orders the two");
}

const char* RaceFix(SharedRecord mine, SharedRecord other) {
  return ((mine ^ other) & kRecordWarp) == 0 ? "put __syncwarp() between them"
                                             : "put __syncthreads() between them";
}

uint32_t Content(const State& state, int64_t word) {
  uint32_t content;
  std::memcpy(&content, state.memory + word * SharedLog::kWordBytes, sizeof content);
  return content;
}

// Is it an access that nothing orders before that of `self`? `self` has found it recent.
bool Races(const Lane& self, SharedRecord mine, SharedRecord other) {
  const bool same_warp = ((mine ^ other) & kRecordWarp) == 0;
  return !(same_warp && RecordWhen(other) < self.warp_state->since) &&
         (RecordBytes(mine) & RecordBytes(other)) != 0 && (mine & other & kRecordConcurrent) == 0;
}

struct Access {
  Lane* self;
  SharedRecord record;  // but for the bytes
  SharedRecord old;     // what is less happened before
  bool is_write;
  bool at_once;  // do not wait whether the write changes something
};

// What `other`, recent and of another thread, means for an access to `words` words from `word` on.
__attribute__((noinline)) void Judge(const Access& access, int64_t word, int words,
                                     SharedRecord mine, SharedRecord other, bool other_is_read) {
  State& state = *access.self->state;
  if (!Races(*access.self, mine, other)) return;
  if (!access.is_write || access.at_once) {
    Fail(access.self, RaceText(state, word, mine, access.is_write, other, other_is_read),
         RaceFix(mine, other));
  }
  for (int64_t w = word; w < word + words; ++w) {
    state.log.suspects.push_back({mine, other, other_is_read, w, Content(state, w)});
  }
}

inline bool IsRecent(const Access& access, SharedRecord other) {
  return other >= access.old && ((other ^ access.record) & kRecordThread) != 0;
}

// Against what is known of `unit`.
inline void Check(const Access& access, const Unit& unit, int64_t word, int words,
                  SharedRecord mine) {
  if (IsRecent(access, unit.write)) [[unlikely]] {
    Judge(access, word, words, mine, unit.write, false);
  }
  if (!access.is_write) return;
  if (IsRecent(access, unit.read)) [[unlikely]]
    Judge(access, word, words, mine, unit.read, true);
  if (IsRecent(access, unit.other_read)) [[unlikely]] {
    Judge(access, word, words, mine, unit.other_read, true);
  }
}

inline void Record(const Access& access, Unit* unit, SharedRecord mine) {
  if (access.is_write) {
    unit->write = mine;
    return;
  }
  const bool other_warp = ((unit->read ^ mine) & kRecordWarp) != 0;
  if (other_warp && unit->read >= access.old) unit->other_read = unit->read;
  unit->read = mine;
}

constexpr SharedRecord kWhole = uint64_t{0xf} << kRecordBytesShift;

inline void TouchLine(const Access& access, SharedLog* log, int64_t index) {
  SharedLog::Line& line = log->lines[index];
  const SharedRecord mine = access.record | kWhole;
  const int64_t word = index * SharedLog::kLineWords;
  Check(access, line.whole, word, SharedLog::kLineWords, mine);
  if (line.part >= access.old) {
    for (int64_t w = word; w < word + SharedLog::kLineWords; ++w) {
      Check(access, log->words[w], w, 1, mine);
    }
  }
  Record(access, &line.whole, mine);
}

// `bytes`: a bit for each byte of the word.
inline void TouchWord(const Access& access, SharedLog* log, int64_t word, uint64_t bytes) {
  SharedLog::Line& line = log->lines[word / SharedLog::kLineWords];
  Unit& unit = log->words[word];
  SharedRecord mine = access.record | bytes << kRecordBytesShift;
  Check(access, line.whole, word, 1, mine);
  Check(access, unit, word, 1, mine);
  line.part = mine;
  // The same thread's bytes of a word add up.
  const SharedRecord before = access.is_write ? unit.write : unit.read;
  if (before >= access.old && ((before ^ mine) & kRecordThread) == 0) mine |= before & kWhole;
  Record(access, &unit, mine);
}

inline void Touch(const Access& access, const void* address, uint64_t bytes, unsigned how) {
  State& state = *access.self->state;
  const int64_t begin = static_cast<const unsigned char*>(address) - state.memory;
  const int64_t end = begin + static_cast<int64_t>(bytes);
  if ((begin < state.dynamic_begin || end > state.dynamic_end) &&
      (begin < state.static_begin || end > state.static_end)) [[unlikely]] {
    FailOutside(access.self, begin, end, how);
  }
  if (((begin | end) % SharedLog::kLineBytes) == 0) {
    for (int64_t at = begin; at < end; at += SharedLog::kLineBytes) {
      TouchLine(access, &state.log, at / SharedLog::kLineBytes);
    }
    return;
  }
  for (int64_t word = begin / SharedLog::kWordBytes; word * SharedLog::kWordBytes < end; ++word) {
    const int64_t first = word * SharedLog::kWordBytes, past = first + SharedLog::kWordBytes;
    uint64_t mask = 0xf;
    if (begin > first) mask &= mask << (begin - first);
    if (end < past) mask &= uint64_t{0xf} >> (past - end);
    TouchWord(access, &state.log, word, mask);
  }
}

inline SharedRecord MakeRecord(const Lane& self, const State& state, unsigned how) {
  return uint64_t{state.now} << kRecordWhenShift | uint64_t{how >> 2 & 0xffff} << kRecordSiteShift |
         uint64_t{(how & kvr_host_access_concurrent) != 0} << kRecordConcurrentShift |
         self.thread_index;
}

__attribute__((noinline)) void FailIfSuspectsRaced(Lane* self) {
  std::string fix;
  std::string what = SettleSuspects(self->state, &fix);
  if (!what.empty()) Fail(self, std::move(what), fix);
}

// The usual access: to one line that nobody races for. False if it is another; then nothing has
// happened.
inline bool TouchQuietly(Lane* self, const void* address, uint64_t bytes, unsigned how,
                         uint32_t since) {
  State& state = *self->state;
  const int64_t begin = static_cast<const unsigned char*>(address) - state.memory;
  const bool inside =
      (begin >= state.dynamic_begin && begin + SharedLog::kLineBytes <= state.dynamic_end) ||
      (begin >= state.static_begin && begin + SharedLog::kLineBytes <= state.static_end);
  if (bytes != SharedLog::kLineBytes || begin % SharedLog::kLineBytes != 0 || !inside ||
      !state.log.suspects.empty()) {
    return false;
  }
  SharedLog::Line& line = state.log.lines[begin / SharedLog::kLineBytes];
  Access access;
  access.record = MakeRecord(*self, state, how);
  access.old = uint64_t{since} << kRecordWhenShift;
  access.is_write = (how & kvr_host_access_write) != 0;
  if (line.part >= access.old || IsRecent(access, line.whole.write)) return false;
  if (access.is_write &&
      (IsRecent(access, line.whole.read) || IsRecent(access, line.whole.other_read))) {
    return false;
  }
  Record(access, &line.whole, access.record | kWhole);
  return true;
}

__attribute__((noinline)) void TouchAny(Lane* self, const void* address, uint64_t bytes,
                                        unsigned how, uint32_t since, bool at_once = false) {
  if (!self->state->log.suspects.empty()) FailIfSuspectsRaced(self);
  if (bytes == 0) return;
  Access access;
  access.self = self;
  access.record = MakeRecord(*self, *self->state, how);
  access.old = uint64_t{since} << kRecordWhenShift;
  access.is_write = (how & kvr_host_access_write) != 0;
  access.at_once = at_once;
  Touch(access, address, bytes, how);
}

constexpr unsigned kCopyBytes = 16;
constexpr unsigned kCopyAccess = kvr_host_access_write | kvr_host_access_concurrent;

}  // namespace

void StartTimeAnew(State* state) {
  state->log.Forget();
  state->now = 1;
  for (Lane& lane : state->lanes) lane.since = 1;
  for (Warp& warp : state->warp) warp.since = 1;
}

std::string SettleSuspects(State* state, std::string* fix) {
  std::string what;
  for (const SharedLog::Suspect& suspect : state->log.suspects) {
    uint32_t changed = suspect.before ^ Content(*state, suspect.word);
    const uint32_t bytes = RecordBytes(suspect.mine) & RecordBytes(suspect.other);
    for (int i = 0; i < 4; ++i) {
      if ((bytes >> i & 1) == 0) changed &= ~(0xffu << 8 * i);
    }
    if (changed == 0) continue;
    what = RaceText(*state, suspect.word, suspect.mine, true, suspect.other, suspect.other_is_read);
    *fix = RaceFix(suspect.mine, suspect.other);
    break;
  }
  state->log.suspects.clear();
  return what;
}

}  // namespace kvr::host

using kvr::host::AsLane;
using kvr::host::Lane;

extern "C" {

void kvr_host_access(const kvr_host_lane* lane, const void* address, unsigned long bytes,
                     unsigned how) noexcept {
  Lane* self = AsLane(lane);
  if (kvr::host::TouchQuietly(self, address, bytes, how, self->since)) [[likely]]
    return;
  kvr::host::TouchAny(self, address, bytes, how, self->since);
}

void kvr_host_order(const kvr_host_lane* lane) noexcept {
  Lane* self = AsLane(lane);
  self->since = kvr::host::Tick(self->state);
}

void kvr_host_copy_async(const kvr_host_lane* lane, void* shared, const void* global,
                         unsigned site) noexcept {
  Lane* self = AsLane(lane);
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0) {
    kvr::host::FailAt(self, site, "an asynchronous copy between addresses not aligned to 16 bytes",
                      "align both to 16 bytes");
  }
  const unsigned how = kvr::host::kCopyAccess | site << 2;
  if (!kvr::host::TouchQuietly(self, shared, kvr::host::kCopyBytes, how, self->since))
      [[unlikely]] {
    kvr::host::TouchAny(self, shared, kvr::host::kCopyBytes, how, self->since, /*at_once=*/true);
  }
  self->copies.push_back({shared, global, self->since, site, self->group});
}

void kvr_host_commit_copies(const kvr_host_lane* lane) noexcept { ++AsLane(lane)->group; }

void kvr_host_wait_copies(const kvr_host_lane* lane, unsigned newest) noexcept {
  Lane* self = AsLane(lane);
  while (self->first_copy < self->copies.size()) {
    const kvr::host::PendingCopy& copy = self->copies[self->first_copy];
    if (copy.group + newest >= self->group) break;
    const unsigned how = kvr::host::kCopyAccess | copy.site << 2;
    if (!kvr::host::TouchQuietly(self, copy.shared, kvr::host::kCopyBytes, how, copy.since))
        [[unlikely]] {
      kvr::host::TouchAny(self, copy.shared, kvr::host::kCopyBytes, how, copy.since);
    }
    if (copy.global != nullptr) {
      std::memcpy(copy.shared, copy.global, kvr::host::kCopyBytes);
    } else {
      std::memset(copy.shared, 0, kvr::host::kCopyBytes);
    }
    ++self->first_copy;
  }
  if (self->first_copy == self->copies.size()) {
    self->copies.clear();
    self->first_copy = 0;
  }
}

}  // extern "C"
