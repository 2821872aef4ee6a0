// SPDX-License-Identifier: Apache-2.0
//
// The graphs of a measuring session: one for each subject and place in the ring where an epoch of
// its has begun, made when it is first needed. A graph costs the device's memory and the driver's:
// all together hold at most kMostLaunches launches, for which those used longest ago go.
//
// Threading: one thread. Keep, KeepOnly and the destructor destroy graphs: nothing of theirs may be
// in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "core/device.h"

namespace kvr {

class Recordings {
 public:
  static constexpr int64_t kMostLaunches = 16384;

  Graph* Find(int subject, size_t first);  // null: there is none
  Graph* Keep(int subject, size_t first, int launches, std::unique_ptr<Graph> graph);
  void KeepOnly(absl::Span<const int> subjects);
  void Drop(int subject);

  size_t graphs() const { return graphs_.size(); }
  int64_t launches() const { return launches_; }

 private:
  struct Recording {
    std::unique_ptr<Graph> graph;
    int launches = 0;
    int64_t used = 0;
  };
  using Map = std::map<std::pair<int, size_t>, Recording>;  // by subject and first buffer set
  Map::iterator Erase(Map::iterator recording);
  Map graphs_;
  int64_t launches_ = 0, uses_ = 0;
};

}  // namespace kvr
