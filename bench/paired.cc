// SPDX-License-Identifier: Apache-2.0
#include "bench/paired.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace kvr::bench {

double Seconds(Clock clock) {
  timespec now;
  clock_gettime(clock == Clock::kThreadCpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void TableReporter::ReportRuns(const std::vector<Run>& runs) {
  ConsoleReporter::ReportRuns(runs);
  for (const Run& run : runs) {
    if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
    const auto counter = [&](const char* name) {
      const auto it = run.counters.find(name);
      return it == run.counters.end() ? 0 : it->second.value;
    };
    std::string name = run.run_name.function_name;
    if (!run.run_name.threads.empty()) name += "/" + run.run_name.threads;
    auto row =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
    if (row == rows_.end()) row = rows_.insert(rows_.end(), Row{.name = name});
    row->raw.push_back(counter("raw_ns"));
    row->call.push_back(counter("ns"));
    row->own.push_back(counter("own_ns"));
    row->ratio.push_back(counter("ratio"));
    row->allocations = std::max(row->allocations, counter("allocs"));
    row->locks = std::max(row->locks, counter("locks"));
  }
}

void TableReporter::Finalize() {
  ConsoleReporter::Finalize();
  if (rows_.empty()) return;
  size_t width = 0;
  for (const Row& row : rows_) width = std::max(width, row.name.size());
  std::printf("\n%-*s %10s %10s %10s %7s %7s %6s\n", static_cast<int>(width), "median of the runs",
              "raw ns", "ns", "own ns", "x raw", "allocs", "locks");
  for (const Row& row : rows_) {
    std::printf("%-*s %10.1f %10.1f %10.1f %7.2f %7.3g %6.3g\n", static_cast<int>(width),
                row.name.c_str(), Median(row.raw), Median(row.call), Median(row.own),
                Median(row.ratio), row.allocations, row.locks);
  }
}

}  // namespace kvr::bench
