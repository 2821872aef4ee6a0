// SPDX-License-Identifier: Apache-2.0
//
// A server whose kernels are changed while it serves: a decode loop over captured graphs, one a
// batch bucket, under synthetic traffic. From another terminal:
//
//   kvr-serve --socket /tmp/kvr.sock
//   kvr status /tmp/kvr.sock
//   kvr swap /tmp/kvr.sock mla_sparse_decode w8
//   kvr rollback /tmp/kvr.sock
//
// model.cc holds layers and graphs, check.cc proves what ran; docs/serving.md explains the steps.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "absl/strings/str_format.h"
#include "api/live.h"
#include "api/runtime.h"
#include "api/swap.h"
#include "core/config.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/serve/check.h"
#include "examples/serve/model.h"

namespace serve {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string device = "auto", socket, selections, watch, metrics, journal;
  std::vector<std::string> plugins;
  ModelOptions model{.buckets = {1, 8, 48, 96}};
  int64_t steps = 0;
  double seconds = 0;
  uint64_t seed = 1;
  int check_every = 0;               // 0: nothing is checked
  int swap_every = 0;                // steps; 0: only others swap
  std::vector<std::string> swap_to;  // variants, or selection files
  int phase = 250;                   // steps with, then steps without such swaps
  bool json = false;
};

std::atomic<bool> interrupted{false};

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Of times of steps, or of anything.
struct Times {
  std::vector<double> us;
  double At(double quantile) const {
    if (us.empty()) return 0;
    std::vector<double> sorted = us;
    const auto at = static_cast<size_t>(quantile * static_cast<double>(sorted.size() - 1) + 0.5);
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(at), sorted.end());
    return sorted[at];
  }
  Json Summary() const {
    return {{"count", us.size()}, {"p50_us", At(0.5)}, {"p99_us", At(0.99)}, {"max_us", At(1)}};
  }
};

// Publishes the next of `generations` whenever it is asked to, on a thread of its own: while a step
// runs.
class Publisher {
 public:
  Publisher(kvr::Runtime& runtime, std::vector<kvr::GenerationPtr> generations)
      : runtime_(runtime), generations_(std::move(generations)), thread_([this] { Run(); }) {}
  ~Publisher() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void Ask() {
    {
      const std::lock_guard lock(mutex_);
      asked_ = true;
    }
    wake_.notify_one();
  }
  Times times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }
  int64_t failed() const { return failed_; }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (size_t next = 1;; ++next) {
      wake_.wait(lock, [this] { return asked_ || ending_; });
      if (ending_) return;
      asked_ = false;
      lock.unlock();
      const Clock::time_point start = Clock::now();
      const absl::Status done =
          runtime_.Publish(generations_[next % generations_.size()], {.reason = "--swap-every"})
              .status();
      const double took = Microseconds(Clock::now() - start);
      if (!done.ok()) {
        ++failed_;
        std::fprintf(stderr, "a swap failed: %s\n", done.ToString().c_str());
      }
      lock.lock();
      times_.us.push_back(took);
    }
  }

  kvr::Runtime& runtime_;
  const std::vector<kvr::GenerationPtr> generations_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool asked_ = false, ending_ = false;
  Times times_;
  std::atomic<int64_t> failed_{0};
  std::thread thread_;
};

// What `text` selects: a selection file's generation, or "w8{BLOCK_H=16}" for every bucket.
absl::StatusOr<kvr::GenerationPtr> GenerationOf(const std::string& text, kvr::Runtime& runtime,
                                                const Model& model) {
  const kvr::DeviceInfo& device = runtime.device().info();
  if (text.size() > 5 && text.substr(text.size() - 5) == ".json") {
    KVR_ASSIGN_OR_RETURN(const kvr::LoadedSelections read,
                         kvr::ReadSelectionFile(text, runtime.catalog(), device));
    return read.generation;
  }
  const size_t brace = text.find('{');
  KVR_ASSIGN_OR_RETURN(const kvr::VariantPtr variant,
                       runtime.catalog().Find(kOp, text.substr(0, brace)));
  kvr::Config config = kvr::DefaultConfig(variant->tunables);
  if (brace != std::string::npos) {
    const size_t length = text.back() == '}' ? text.size() - brace - 2 : std::string::npos;
    KVR_ASSIGN_OR_RETURN(const kvr::Config given,
                         kvr::ParseConfig(text.substr(brace + 1, length), variant->tunables));
    for (const auto& [name, value] : given) config[name] = value;
  }
  KVR_ASSIGN_OR_RETURN(const kvr::Catalog::Op* op, runtime.catalog().FindOp(kOp));
  kvr::GenerationBuilder builder(device.model, device.target);
  builder.SetPolicy(kOp, op->policy);
  for (const int64_t bucket : model.options().buckets) {
    KVR_ASSIGN_OR_RETURN(const kvr::AxisVector axes,
                         kvr::ResolveAxes(op->spec(), model.Shape(bucket)));
    KVR_RETURN_IF_ERROR(
        builder.Select(kOp, op->policy.Bucket(axes), {.variant = variant, .config = config}));
  }
  return builder.Build(runtime.generation()->number() + 1);
}

class Server {
 public:
  explicit Server(Options options) : options_(std::move(options)), random_(options_.seed) {}

  absl::Status Boot();
  absl::Status Serve();
  Json Report() const;
  void PrintSummary() const;
  bool good() const { return errors_ == 0 && mismatches_ == 0; }

 private:
  absl::Status LearnGenerations();
  absl::Status Step(int64_t bucket, int input_set, bool swapping);
  void Second();

  const Options options_;
  std::mt19937_64 random_;
  // What is named later uses what is named before.
  std::unique_ptr<kvr::Runtime> runtime_;
  std::unique_ptr<kvr::Swapper> swapper_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<kvr::Live> live_;
  std::optional<Expected> expected_;
  std::vector<kvr::GenerationPtr> generations_;  // of --swap-every
  std::unique_ptr<Publisher> publisher_;

  int64_t begun_ = 0, completed_ = 0, errors_ = 0, applied_ = 0, recaptured_ = 0;
  int64_t checked_ = 0, unchecked_ = 0, mismatches_ = 0;
  int64_t patched_nodes_ = 0;
  double patch_us_ = 0;
  Times quiet_, swapping_, second_, node_;
  std::map<int64_t, std::array<Times, 2>> by_bucket_;  // quiet, swapping
  Clock::time_point started_, told_;
};

absl::Status Server::Boot() {
  // 1. Open: variants are admitted, the selection file is checked against them.
  KVR_ASSIGN_OR_RETURN(runtime_, kvr::Runtime::Open({.device = options_.device,
                                                     .plugin_roots = options_.plugins,
                                                     .selection_file = options_.selections,
                                                     .journal = options_.journal}));
  if (options_.journal.empty()) {
    absl::StatusOr<std::unique_ptr<kvr::PublicationSink>> ledger =
        kvr::OpenPublicationLedger(*runtime_);
    if (!absl::IsNotFound(ledger.status())) {  // where there is no ledger, the file does
      KVR_RETURN_IF_ERROR(ledger.status());
      runtime_->SetJournal(*std::move(ledger));
    }
  }
  for (const kvr::DroppedSelection& dropped : runtime_->dropped()) {
    std::fprintf(stderr, "dropped %s: %s\n", dropped.variant.c_str(), dropped.reason.c_str());
  }

  // 2. Load everything that will be served, then give the stream its workspaces.
  if (!options_.json) std::fprintf(stderr, "loading, and compiling what the cache lacks\n");
  KVR_ASSIGN_OR_RETURN(model_, Model::Create(*runtime_, options_.model));
  KVR_ASSIGN_OR_RETURN(const kvr::LoadReport report, runtime_->Load(kOp, model_->Ranges()));
  if (!report.ready()) {
    return kvr::Error(absl::StatusCode::kFailedPrecondition, report.Text(),
                      "serve shapes that load");
  }
  if (options_.check_every > 0) expected_.emplace(*runtime_, *model_);
  if (options_.swap_every > 0) KVR_RETURN_IF_ERROR(LearnGenerations());

  // 3. Capture a graph a bucket, and freeze: from here on no launch compiles, loads or allocates.
  KVR_RETURN_IF_ERROR(model_->Prepare());
  for (const int64_t bucket : options_.model.buckets) {
    KVR_RETURN_IF_ERROR(model_->Capture(bucket));
  }
  runtime_->Freeze();

  // 4. Let others look and swap.
  KVR_ASSIGN_OR_RETURN(swapper_, kvr::OpenSwapper(*runtime_, {.plugin_roots = options_.plugins}));
  if (!options_.watch.empty()) KVR_RETURN_IF_ERROR(swapper_->WatchBundles(options_.watch));
  if (!options_.selections.empty()) {
    KVR_RETURN_IF_ERROR(swapper_->WatchSelectionFile(options_.selections));
  }
  if (!options_.socket.empty() || !options_.metrics.empty()) {
    KVR_ASSIGN_OR_RETURN(
        live_, kvr::Live::Start(
                   *runtime_, swapper_.get(),
                   {.socket = options_.socket, .metrics = options_.metrics, .name = "kvr-serve"}));
  }
  if (!options_.json) {
    absl::PrintF("serving %d layer%s of %s on %s, batches of %s\n", options_.model.layers,
                 options_.model.layers == 1 ? "" : "s", kOp, runtime_->device().info().name,
                 kvr::StrJoin(options_.model.buckets, ", "));
    if (!options_.metrics.empty()) {
      absl::PrintF("metrics on http://%s/metrics\n", live_->metrics_address());
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// The one that serves at boot, and those of --swap-to; each is published once here, so that all of
// them are loaded and their bits known.
absl::Status Server::LearnGenerations() {
  generations_.push_back(runtime_->generation());
  for (const std::string& text : options_.swap_to) {
    KVR_ASSIGN_OR_RETURN(generations_.emplace_back(), GenerationOf(text, *runtime_, *model_));
  }
  KVR_RETURN_IF_ERROR(model_->Prepare());
  for (size_t i = generations_.size(); i-- > 0;) {  // the first one last
    KVR_RETURN_IF_ERROR(runtime_->Publish(generations_[i], {.reason = "--swap-to"}).status());
    if (expected_.has_value()) KVR_RETURN_IF_ERROR(expected_->Learn());
  }
  publisher_ = std::make_unique<Publisher>(*runtime_, generations_);
  return absl::OkStatus();
}

absl::Status Server::Step(int64_t bucket, int input_set, bool swapping) {
  const std::string name = kvr::StrCat(bucket);
  KVR_RETURN_IF_ERROR(model_->Stage(bucket, input_set));
  if (live_ != nullptr) KVR_RETURN_IF_ERROR(live_->BeginStep(name));

  const Clock::time_point start = Clock::now();
  const kvr::Applied applied = model_->Apply(bucket);
  if (applied.outcome == kvr::Applied::kNeedsRecapture) {
    KVR_RETURN_IF_ERROR(model_->Capture(bucket));
    ++recaptured_;
  }
  KVR_RETURN_IF_ERROR(model_->Replay(bucket));
  if (swapping && begun_ % options_.swap_every == 0) publisher_->Ask();  // the step is running
  KVR_RETURN_IF_ERROR(model_->Wait());
  const double took = Microseconds(Clock::now() - start);

  if (live_ != nullptr) {
    live_->CountApplied(applied);
    live_->EndStep(name, took);
  }
  if (applied.outcome == kvr::Applied::kApplied) {
    ++applied_;
    patched_nodes_ += applied.nodes;
    patch_us_ += applied.microseconds;
    if (applied.nodes > 0) node_.us.push_back(applied.microseconds / applied.nodes);
  }
  second_.us.push_back(took);
  (swapping ? swapping_ : quiet_).us.push_back(took);
  by_bucket_[bucket][swapping ? 1 : 0].us.push_back(took);
  ++completed_;

  if (!expected_.has_value() || begun_ % options_.check_every != 0) return absl::OkStatus();
  const absl::StatusOr<std::string> wrong =
      expected_->Check(model_->digest(bucket), bucket, input_set);
  if (absl::IsUnavailable(wrong.status())) {
    ++unchecked_;
    return absl::OkStatus();
  }
  KVR_RETURN_IF_ERROR(wrong.status());
  ++checked_;
  if (!wrong->empty()) {
    ++mismatches_;
    std::fprintf(stderr, "step %lld: %s\n", static_cast<long long>(begun_), wrong->c_str());
  }
  return absl::OkStatus();
}

absl::Status Server::Serve() {
  const std::vector<int64_t>& buckets = options_.model.buckets;
  started_ = told_ = Clock::now();
  int64_t errors_in_a_row = 0;
  while (
      !interrupted && (options_.steps == 0 || begun_ < options_.steps) &&
      (options_.seconds == 0 || Microseconds(Clock::now() - started_) < options_.seconds * 1e6)) {
    const int64_t bucket = buckets[random_() % buckets.size()];
    const auto input_set =
        static_cast<int>(random_() % static_cast<uint64_t>(options_.model.input_sets));
    const bool swapping = publisher_ != nullptr && begun_ / options_.phase % 2 == 0;
    ++begun_;
    const absl::Status done = Step(bucket, input_set, swapping);
    errors_in_a_row = done.ok() ? 0 : errors_in_a_row + 1;
    if (!done.ok()) {
      ++errors_;
      if (live_ != nullptr) live_->CountError();
      std::fprintf(stderr, "step %lld: %s\n", static_cast<long long>(begun_),
                   done.ToString().c_str());
      if (errors_in_a_row == 3) return done;  // a device that is gone does not come back
    }
    if (Clock::now() - told_ >= std::chrono::seconds(1)) Second();
  }
  publisher_.reset();
  return absl::OkStatus();
}

void Server::Second() {
  const double seconds = Microseconds(Clock::now() - told_) * 1e-6;
  if (!options_.json) {
    absl::PrintF("%.0f steps/s  swaps %d  errors %d  p50 %.1f us  p99 %.1f us  generation %s\n",
                 static_cast<double>(second_.us.size()) / seconds, applied_, errors_ + mismatches_,
                 second_.At(0.5), second_.At(0.99), runtime_->generation()->digest().Short());
    std::fflush(stdout);
  }
  second_.us.clear();
  told_ = Clock::now();
}

Json Server::Report() const {
  const kvr::DeviceInfo& device = runtime_->device().info();
  const kvr::Counters counters = runtime_->counters();
  Json buckets = Json::object();
  for (const auto& [bucket, times] : by_bucket_) {
    buckets[kvr::StrCat(bucket)] = {{"quiet", times[0].Summary()},
                                    {"swapping", times[1].Summary()}};
  }
  Json report = {
      {"device", device.name},
      {"driver", device.driver},
      {"layers", options_.model.layers},
      {"topk", options_.model.topk},
      {"keep_graph", options_.model.keep_graph},
      {"seconds", Microseconds(Clock::now() - started_) * 1e-6},
      {"steps", {{"begun", begun_}, {"completed", completed_}, {"errors", errors_}}},
      {"swaps",
       {{"published", counters.generations},
        {"failed", counters.failed},
        {"applied", applied_},
        {"recaptured", recaptured_}}},
      {"checks", {{"checked", checked_}, {"unchecked", unchecked_}, {"mismatches", mismatches_}}},
      {"misses", counters.misses},
      {"step_us", {{"quiet", quiet_.Summary()}, {"swapping", swapping_.Summary()}}},
      {"buckets", buckets},
      {"patch",
       {{"way", options_.model.keep_graph ? "node" : "graph"},
        {"nodes", patched_nodes_},
        {"us_per_node", patched_nodes_ == 0 ? 0 : patch_us_ / static_cast<double>(patched_nodes_)},
        {"per_node", node_.Summary()}}},
      {"generation", runtime_->generation()->digest().Hex()},
  };
  if (expected_.has_value()) {
    report["checks"]["pairs_of_generations"] = expected_->pairs();
    report["checks"]["told_apart"] = expected_->pairs_told_apart();
  }
  return report;
}

void Server::PrintSummary() const {
  absl::PrintF("%d steps, %d swaps applied, %d graphs captured anew, %d errors\n", completed_,
               applied_, recaptured_, errors_);
  if (expected_.has_value()) {
    absl::PrintF("%d steps checked, bit for bit: %d wrong; %d of %d pairs of generations differ\n",
                 checked_, mismatches_, expected_->pairs_told_apart(), expected_->pairs());
  }
  if (!swapping_.us.empty()) {
    absl::PrintF("step p50 %.1f us, p99 %.1f us while swapping", swapping_.At(0.5),
                 swapping_.At(0.99));
    if (!quiet_.us.empty()) {
      absl::PrintF("; %.1f us, %.1f us without", quiet_.At(0.5), quiet_.At(0.99));
    }
    std::printf("\n");
  }
  if (patched_nodes_ > 0) {
    absl::PrintF("patched %s: %.2f us a node\n",
                 options_.model.keep_graph ? "node by node" : "whole graphs",
                 patch_us_ / static_cast<double>(patched_nodes_));
  }
}

absl::Status Main(const Options& options, bool* good) {
  Server server(options);
  KVR_RETURN_IF_ERROR(server.Boot());
  const absl::Status served = server.Serve();
  *good = served.ok() && server.good();
  if (options.json) {
    std::printf("%s\n", server.Report().dump(2).c_str());
  } else {
    server.PrintSummary();
  }
  return served;
}

}  // namespace
}  // namespace serve

int main(int argc, char** argv) {
  serve::Options options;
  CLI::App app("Serves captured decode steps whose kernels can be swapped while they run");
  app.add_option("--device", options.device, "cuda, cuda:N, host, auto");
  app.add_option("--plugins", options.plugins, "further directories of bundles and plugins");
  app.add_option("--selections", options.selections,
                 "boot from this file, and swap when it changes");
  app.add_option("--watch", options.watch, "swap when a bundle in this directory changes");
  app.add_option("--socket", options.socket, "where kvr status and kvr swap reach it");
  app.add_option("--metrics", options.metrics, "serve Prometheus metrics, as in 127.0.0.1:9464");
  app.add_option("--journal", options.journal,
                 "append publications to this file, not to the ledger");
  app.add_option("--buckets", options.model.buckets, "batch sizes, each a graph")
      ->delimiter(',')
      ->check(CLI::Range(1, 65535));
  app.add_option("--layers", options.model.layers)->check(CLI::Range(1, 64));
  app.add_option("--topk", options.model.topk)->check(CLI::Range(1, 32768));
  app.add_option("--heads", options.model.heads)->check(CLI::Range(1, 128));
  app.add_option("--pages", options.model.pages)->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", options.steps, "stop after so many")->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", options.seconds, "stop after so long")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed, "of the traffic");
  app.add_flag("--keep-graph", options.model.keep_graph, "patch node by node, not whole graphs");
  app.add_option("--check", options.check_every, "hold every n-th step against its generation")
      ->expected(0, 1)
      ->default_str("1")
      ->check(CLI::Range(1, 1 << 30));
  CLI::Option* to =
      app.add_option("--swap-to", options.swap_to, "w8, w8{BLOCK_H=16} or FILE.json; repeatable");
  CLI::Option* every =
      app.add_option("--swap-every", options.swap_every, "swap among them every n steps")
          ->check(CLI::Range(1, 1 << 30))
          ->needs(to);
  to->needs(every);
  app.add_option("--phase", options.phase, "steps with such swaps, then without, in turn")
      ->check(CLI::Range(1, 1 << 30))
      ->needs(every);
  app.add_flag("--json", options.json, "one JSON document at the end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  struct sigaction action = {};
  action.sa_handler = [](int) { serve::interrupted = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);

  bool good = false;
  const absl::Status status = serve::Main(options, &good);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return good ? 0 : 1;
}
