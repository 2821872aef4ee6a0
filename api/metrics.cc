// SPDX-License-Identifier: Apache-2.0
#include "api/metrics.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "api/platform.h"
#include "api/runtime.h"
#include "core/strings.h"
#include "registry/epoch.h"

namespace kvr {
namespace {

// 1-2-5 from a microsecond, less than a patch of one node, to 50 s, more than a boot.
constexpr std::array<double, 24> kBoundaries = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4,
                                                5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1,
                                                0.2,  0.5,  1,    2,    5,    10,   20,   50};
constexpr size_t kMostBuckets = 64;
constexpr char kOther[] = "other";

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Backslash, quote and line end, as the format wants a label's value escaped.
std::string Escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

std::string LabelText(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    StrAppend(&text, text.empty() ? "{" : ",", name, "=\"", Escaped(value), "\"");
  }
  if (!text.empty()) text += '}';
  return text;
}

// One metric: HELP and TYPE, then a sample a line.
class Family {
 public:
  Family(std::string* text, std::string_view name, std::string_view type, std::string_view help)
      : text_(*text), name_(name) {
    StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  Family& Sample(const Labels& labels, uint64_t value) {
    StrAppend(&text_, name_, LabelText(labels), " ", value, "\n");
    return *this;
  }
  void HistogramSample(Labels labels, absl::Span<const uint64_t> counts, double sum) {
    const std::string plain = LabelText(labels);
    labels.emplace_back("le", "");
    uint64_t below = 0;
    for (size_t i = 0; i <= kBoundaries.size(); ++i) {
      below += i < counts.size() ? counts[i] : 0;
      labels.back().second =
          i < kBoundaries.size() ? absl::StrFormat("%g", kBoundaries[i]) : "+Inf";
      StrAppend(&text_, name_, "_bucket", LabelText(labels), " ", below, "\n");
    }
    StrAppend(&text_, name_, "_sum", plain, " ", absl::StrFormat("%.9g", sum), "\n");
    StrAppend(&text_, name_, "_count", plain, " ", below, "\n");
  }

 private:
  std::string& text_;
  const std::string name_;
};

void Counter(std::string* text, std::string_view name, std::string_view help, uint64_t value) {
  Family(text, name, "counter", help).Sample({}, value);
}

uint64_t Unsigned(int64_t count) { return static_cast<uint64_t>(std::max<int64_t>(count, 0)); }

void AppendRegistry(const Runtime& runtime, std::string* text) {
  const Counters counters = runtime.counters();
  const DeviceInfo& device = runtime.device().info();
  const GenerationPtr generation = runtime.generation();
  Family(text, "kvr_device_info", "gauge", "The device that is served; always 1.")
      .Sample({{"name", device.name}, {"model", device.model}, {"target", device.target}}, 1);
  Family(text, "kvr_generation_info", "gauge", "Digest of the current generation; always 1.")
      .Sample({{"digest", generation == nullptr ? "" : generation->digest().Hex()}}, 1);

  Counter(text, "kvr_launches_total", "Launches, eager and captured, of the whole process.",
          LaunchCount());
  Family(text, "kvr_captured_launches_total", "counter",
         "Launches recorded into graphs; outside a scope they are fixed for good.")
      .Sample({{"scope", "yes"}}, counters.captured)
      .Sample({{"scope", "no"}}, counters.unscoped);
  Family(text, "kvr_misses_total", "counter", "Launches that nothing selected could serve.")
      .Sample({{"reason", "not loaded"}}, counters.not_loaded)
      .Sample({{"reason", "not selected"}}, counters.not_selected)
      .Sample({{"reason", "not fitting"}}, counters.not_fitting);
  Family(text, "kvr_miss_answers_total", "counter", "What these launches got.")
      .Sample({{"answer", "baseline"}}, counters.baseline)
      .Sample({{"answer", "refused"}}, counters.refused)
      .Sample({{"answer", "loaded"}}, counters.loaded_in_launch);
  Counter(text, "kvr_generations_total", "Generations published.", counters.generations);
  Counter(text, "kvr_publication_failures_total", "Publications and applies that failed.",
          counters.failed);
  Counter(text, "kvr_rollbacks_total", "Of the published, back to an older generation.",
          counters.rollbacks);
  Counter(text, "kvr_applies_total", "Executable graphs brought to another generation.",
          counters.applied);
  Counter(text, "kvr_recaptures_total", "Applies answered by: needs recapture.",
          counters.recaptures);
  Counter(text, "kvr_retired_total", "Configs that nothing holds any longer.", counters.retired);
}

void AppendJit(const Runtime& runtime, std::string* text) {
  const Jit::Stats jit = runtime.platform().jit().stats();
  Counter(text, "kvr_builds_total", "Binaries asked for.", Unsigned(jit.builds));
  Counter(text, "kvr_compiles_total", "Builds that ran a compiler.", Unsigned(jit.compiles));
  Counter(text, "kvr_compile_failures_total", "Builds that failed.", Unsigned(jit.failures));
  Counter(text, "kvr_compiles_joined_total", "Builds that waited for another thread's compile.",
          Unsigned(jit.joined));

  const BinaryCache::Stats cache = runtime.platform().cache().stats();
  Family(text, "kvr_cache_hits_total", "counter", "Binaries found, by where.")
      .Sample({{"where", "memory"}}, Unsigned(cache.memory_hits))
      .Sample({{"where", "layer"}}, Unsigned(cache.layer_hits))
      .Sample({{"where", "disk"}}, Unsigned(cache.disk_hits));
  Counter(text, "kvr_cache_misses_total", "Binaries not found.", Unsigned(cache.misses));
  Counter(text, "kvr_cache_corrupt_total", "Entries that were there but not usable.",
          Unsigned(cache.corrupt));
  Counter(text, "kvr_cache_write_failures_total", "Entries that could not be written.",
          Unsigned(cache.write_failures));
}

}  // namespace

void Metrics::Histogram::Add(double seconds) {
  if (counts.empty()) counts.resize(kBoundaries.size() + 1);
  const auto boundary = std::lower_bound(kBoundaries.begin(), kBoundaries.end(), seconds);
  ++counts[static_cast<size_t>(boundary - kBoundaries.begin())];
  sum += seconds;
}

void Metrics::CountLoad(double seconds, bool ready) {
  const std::lock_guard lock(mutex_);
  load_.Add(seconds);
  if (!ready) ++loads_not_ready_;
}

void Metrics::CountPublication(const PublicationRecord& record) {
  const std::lock_guard lock(mutex_);
  ++publications_[{record.trigger, record.outcome}];
  publish_.Add(record.prepare_ms * 1e-3);
}

void Metrics::CountApplied(const Applied& applied) {
  if (applied.outcome != Applied::kApplied) return;  // the registry counts recaptures
  const std::lock_guard lock(mutex_);
  patch_[applied.whole_graph ? "graph" : "node"].Add(applied.microseconds * 1e-6);
  patched_nodes_ += Unsigned(applied.nodes);
}

void Metrics::CountStep(std::string_view bucket, double microseconds) {
  const std::lock_guard lock(mutex_);
  std::string name(bucket);
  if (steps_.size() >= kMostBuckets && steps_.count(name) == 0) name = kOther;
  steps_[std::move(name)].Add(microseconds * 1e-6);
}

void Metrics::CountStepError() {
  const std::lock_guard lock(mutex_);
  ++step_errors_;
}

void Metrics::Append(std::string* text) const {
  const std::lock_guard lock(mutex_);
  Family swaps(text, "kvr_publications_total", "counter",
               "Swaps, rollbacks and boots that were tried, and applies that failed.");
  for (const auto& [labels, count] : publications_) {
    swaps.Sample({{"trigger", labels.first}, {"outcome", labels.second}}, count);
  }
  Family(text, "kvr_publish_seconds", "histogram", "Preparing a publication: compile, load, plan.")
      .HistogramSample({}, publish_.counts, publish_.sum);
  Family(text, "kvr_load_seconds", "histogram", "Calls of Load, compiling included.")
      .HistogramSample({}, load_.counts, load_.sum);
  Counter(text, "kvr_loads_not_ready_total", "Loads after which something was not ready.",
          loads_not_ready_);
  Family patch(text, "kvr_patch_seconds", "histogram",
               "Bringing one executable graph to another generation, node by node or whole.");
  for (const auto& [way, histogram] : patch_) {
    patch.HistogramSample({{"way", way}}, histogram.counts, histogram.sum);
  }
  Counter(text, "kvr_patched_nodes_total", "Graph nodes set by that.", patched_nodes_);
  Family steps(text, "kvr_step_seconds", "histogram", "Steps of the serving loop, by bucket.");
  for (const auto& [bucket, histogram] : steps_) {
    steps.HistogramSample({{"bucket", bucket}}, histogram.counts, histogram.sum);
  }
  Counter(text, "kvr_step_errors_total", "Steps that went wrong.", step_errors_);
}

std::string MetricsText(const Runtime& runtime) {
  std::string text;
  AppendRegistry(runtime, &text);
  AppendJit(runtime, &text);
  runtime.metrics().Append(&text);
  return text;
}

}  // namespace kvr
