// SPDX-License-Identifier: Apache-2.0
//
// A row of a launch benchmark: the raw call and the call in question in alternating batches of one
// loop, so that their ratio is of the same run and the same machine state.
//
// Each row reports, a call: raw_ns, ns, own_ns = ns - raw_ns, ratio = ns / raw_ns, and the
// allocations and lock acquisitions beyond the raw call's, which are exact. On a device that does
// nothing the clock is this thread's CPU time: neighbours and the publisher beside it do not count.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/counting.h"

namespace kvr::bench {

enum class Clock { kThreadCpu, kWall };
double Seconds(Clock clock);

struct Pairing {
  Clock clock = Clock::kThreadCpu;
  int64_t batch = 1000;  // calls between two readings of the clock
};

// `after_batch` is not timed: where a device's queue is drained.
template <typename Raw, typename Call, typename AfterBatch>
void RunPaired(benchmark::State& state, const Pairing& pairing, Raw&& raw, Call&& call,
               AfterBatch&& after_batch) {
  double raw_seconds = 0, call_seconds = 0;
  int64_t calls = 0, allocations = 0, locks = 0;
  while (state.KeepRunningBatch(pairing.batch)) {
    allocations += AllocationsOfThisThread();
    locks += LocksOfThisThread();
    const double begin = Seconds(pairing.clock);
    for (int64_t i = 0; i < pairing.batch; ++i) raw(i);
    const double middle = Seconds(pairing.clock);
    allocations -= AllocationsOfThisThread();
    locks -= LocksOfThisThread();
    after_batch();
    allocations -= AllocationsOfThisThread();
    locks -= LocksOfThisThread();
    const double start = Seconds(pairing.clock);
    for (int64_t i = 0; i < pairing.batch; ++i) call(i);
    const double end = Seconds(pairing.clock);
    allocations += AllocationsOfThisThread();
    locks += LocksOfThisThread();
    after_batch();
    raw_seconds += middle - begin;
    call_seconds += end - start;
    calls += pairing.batch;
    state.SetIterationTime(end - start);
  }
  // A thread's own calls, whatever the number of threads: averages over threads.
  using benchmark::Counter;
  const auto count = static_cast<double>(calls);
  const auto report = [&](const char* name, double value) {
    state.counters[name] = Counter(value, Counter::kAvgThreads);
  };
  report("raw_ns", raw_seconds / count * 1e9);
  report("ns", call_seconds / count * 1e9);
  report("own_ns", (call_seconds - raw_seconds) / count * 1e9);
  report("ratio", call_seconds / raw_seconds);
  report("allocs", static_cast<double>(allocations) / count);
  report("locks", static_cast<double>(locks) / count);
}

// Google Benchmark's output, and after it a table of all rows: medians over the repetitions.
class TableReporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  struct Row {
    std::string name;
    std::vector<double> raw, call, own, ratio;
    double allocations = 0, locks = 0;
  };
  std::vector<Row> rows_;
};

}  // namespace kvr::bench
