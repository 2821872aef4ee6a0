// SPDX-License-Identifier: Apache-2.0
//
// Who touched each word of a block's shared memory last: the log that races are told from
// (shared_access.cc). Three records a word: its last write, its last read, and the last read from
// another warp than that one. So not every race is seen, but whatever is reported is one.
//
// Threading: one owner. Records are never erased; those of earlier blocks are simply old.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace kvr::host {

// when (32 bits) | site (16) | 0 | concurrent (1) | bytes of the word (4) | thread (10). Newer ones
// are greater.
using SharedRecord = uint64_t;

inline constexpr uint64_t kRecordThread = 0x3ff, kRecordWarp = 0x3e0, kRecordConcurrent = 1 << 14;
inline constexpr int kRecordBytesShift = 10, kRecordSiteShift = 16, kRecordWhenShift = 32;

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
  struct Word {
    SharedRecord write, read, other_read;
  };
  struct Free {
    void operator()(Word* words) const { std::free(words); }
  };

  // A write that races `other` unless it writes what is there already.
  struct Suspect {
    SharedRecord mine, other;
    uint64_t word;
    uint32_t before;  // its content
    bool other_is_read;
  };

  // Forgets everything. False if there is no memory; pages cost some only once they are touched.
  bool Reset(int64_t bytes) {
    count = static_cast<uint64_t>(bytes + 3) / 4;
    words.reset(static_cast<Word*>(std::calloc(count, sizeof(Word))));
    return words != nullptr;
  }

  uint64_t count = 0;
  std::unique_ptr<Word[], Free> words;
  std::vector<Suspect> suspects;  // to be settled once the write has happened
};

}  // namespace kvr::host
