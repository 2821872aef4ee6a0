// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/recordings.h"

#include <algorithm>

namespace kvr {

Graph* Recordings::Find(int subject, size_t first) {
  const auto found = graphs_.find({subject, first});
  if (found == graphs_.end()) return nullptr;
  found->second.used = ++uses_;
  return found->second.graph.get();
}

Graph* Recordings::Keep(int subject, size_t first, int launches, std::unique_ptr<Graph> graph) {
  while (!graphs_.empty() && launches_ + launches > kMostLaunches) {
    Erase(std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  launches_ += launches;
  Recording& kept = graphs_[{subject, first}];
  kept = {std::move(graph), launches, ++uses_};
  return kept.graph.get();
}

void Recordings::KeepOnly(absl::Span<const int> subjects) {
  for (auto it = graphs_.begin(); it != graphs_.end();) {
    const bool keep =
        std::find(subjects.begin(), subjects.end(), it->first.first) != subjects.end();
    it = keep ? std::next(it) : Erase(it);
  }
}

void Recordings::Drop(int subject) {
  for (auto it = graphs_.lower_bound({subject, 0});
       it != graphs_.end() && it->first.first == subject;) {
    it = Erase(it);
  }
}

Recordings::Map::iterator Recordings::Erase(Map::iterator recording) {
  launches_ -= recording->second.launches;
  return graphs_.erase(recording);
}

}  // namespace kvr
