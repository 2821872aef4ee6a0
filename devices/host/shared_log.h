// SPDX-License-Identifier: Apache-2.0
//
// Who touched a block's shared memory last: the log that races are told from (shared_access.cc).
// Three records a unit of memory: its last write, its last read, and the last read from another
// warp than that one. So not every race is seen, but whatever is reported is one. Units are lines
// of 16 bytes, for accesses to whole ones, which are most, and words of 4 for all others.
//
// Threading: one owner. Records are never erased; those of earlier blocks are simply old.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace kvr::host {

// when (32 bits) | site (16) | 0 | concurrent (1) | bytes of the word (4) | thread (10). Newer ones
// are greater.
using SharedRecord = uint64_t;

inline constexpr int kRecordBytesShift = 10, kRecordConcurrentShift = 14, kRecordSiteShift = 16,
                     kRecordWhenShift = 32;
inline constexpr uint64_t kRecordThread = 0x3ff, kRecordWarp = 0x3e0,
                          kRecordConcurrent = uint64_t{1} << kRecordConcurrentShift;

constexpr uint32_t RecordThread(SharedRecord r) { return static_cast<uint32_t>(r & kRecordThread); }
constexpr uint32_t RecordBytes(SharedRecord r) {
  return static_cast<uint32_t>(r >> kRecordBytesShift & 0xf);
}
constexpr uint32_t RecordSite(SharedRecord r) {
  return static_cast<uint32_t>(r >> kRecordSiteShift & 0xffff);
}
constexpr uint32_t RecordWhen(SharedRecord r) {
  return static_cast<uint32_t>(r >> kRecordWhenShift);
}

struct SharedLog {
  struct Unit {
    SharedRecord write, read, other_read;
  };
  struct Line {
    Unit whole;
    SharedRecord part;  // the last access to a part of it: words know more
  };
  static constexpr int64_t kLineBytes = 16, kWordBytes = 4, kLineWords = kLineBytes / kWordBytes;

  // A write that races `other` unless it writes what is there already.
  struct Suspect {
    SharedRecord mine, other;
    bool other_is_read;
    int64_t word;
    uint32_t before;  // its content
  };

  // Makes room for the records of `bytes` bytes and forgets everything. False if there is no
  // memory; pages cost some only once they are touched.
  bool Reserve(int64_t bytes) {
    count = static_cast<size_t>((bytes + kLineBytes - 1) / kLineBytes);
    lines.reset(static_cast<Line*>(std::calloc(count, sizeof(Line))));
    words.reset(static_cast<Unit*>(std::calloc(count * kLineWords, sizeof(Unit))));
    return lines != nullptr && words != nullptr;
  }
  void Forget() {
    std::fill_n(lines.get(), count, Line{});
    std::fill_n(words.get(), count * kLineWords, Unit{});
  }

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  size_t count = 0;
  std::unique_ptr<Line[], Free> lines;
  std::unique_ptr<Unit[], Free> words;
  std::vector<Suspect> suspects;  // to be settled once the write has happened
};

}  // namespace kvr::host
