// SPDX-License-Identifier: Apache-2.0
//
// What bringing a captured graph to another generation costs, a node, beside the raw driver calls
// for the same nodes in the same loop (design budget: 1.25 times).
//
//   kvr-patch-bench [--device cuda:N|null] [--bundles DIR] [--rounds N]
//
//   node    GraphBinding::Apply with the graph kept, beside cuGraphExecKernelNodeSetParams
//   graph   without it, beside cuGraphKernelNodeSetParams in a clone and cuGraphExecUpdate
//
// Two generations in turn, by digest: in a server another thread publishes them. Every node changes
// its function and parameters in every round; `empty` of bench/variants has two kernels a launch.
// On the null device the raw calls are Device::SetNode and GraphCopy's. Prints one JSON document.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/launch_world.h"
#include "core/install_layout.h"
#include "devices/cuda/driver.h"
#include "devices/cuda/launch.h"
#include "registry/launch_work.h"

namespace kvr::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr Shape kShape = {16, 256};  // its plan has both kernels of `empty`
constexpr std::array<int, 3> kLaunches = {1, 10, 61};

struct Options {
  std::string device = "cuda:0", bundles;
  int rounds = 400;
};

template <typename Call>
double Microseconds(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// What the launch of one generation asks of its nodes.
class Work {
 public:
  Work(Dispatcher& dispatcher, const Tensors& tensors, void* memory)
      : bound_(Must(dispatcher.Bind(kOp, tensors.views()))) {
    AxisVector axes;
    Check(AxesFromTensors((*dispatcher.catalog().FindOp(kOp))->spec(), tensors.views(), &axes));
    Check(bound_.prepared().Plan(axes, &plan_));
    Check(work_.Set(bound_.prepared(), plan_, tensors.views(), memory));
  }
  absl::Span<const NodeWork> items() const { return work_.items(); }

 private:
  BoundLaunch bound_;  // keeps what was loaded
  LaunchPlan plan_;
  LaunchWork work_;
};

// The same nodes by raw calls, in both ways.
class Raw {
 public:
  // Records `launches` times the work of `first`.
  Raw(Device& device, Stream stream, const Work& first, int launches) : device_(device) {
    if (device.info().target != "null") driver_ = Must(cuda::GetDriver());
    Check(device.BeginCapture(stream, CaptureMode::kRelaxed));
    const std::unique_ptr<Recording> recording = Must(device.RecordingOf(stream));
    for (int i = 0; i < launches; ++i) {
      for (const NodeWork& work : first.items()) {
        nodes_.push_back(Must(recording->Add(work, stream)));
      }
    }
    if (driver_ == nullptr) {
      copy_ = Must(recording->Copy());
    } else {
      Check(device.WithContext([&] {
        Clone(stream);
        return absl::OkStatus();
      }));
    }
    graph_ = Must(device.EndCapture(stream, /*keep_graph=*/true));
  }
  ~Raw() {
    if (driver_ != nullptr) driver_->GraphDestroy(clone_);
  }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

  size_t nodes() const { return nodes_.size(); }

  void SetNodes(const Work& work) {
    const absl::Span<const NodeWork> items = work.items();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const NodeWork& item = items[i % items.size()];
      if (driver_ == nullptr) {
        Check(device_.SetNode(graph_->exec(), nodes_[i], item));
        continue;
      }
      const cuda::KernelNodeParams params = Params(item);
      Ok(driver_->GraphExecKernelNodeSetParams(
          exec(), static_cast<cuda::GraphNode>(nodes_[i].handle), &params));
    }
  }

  void SetGraph(const Work& work) {
    const absl::Span<const NodeWork> items = work.items();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const NodeWork& item = items[i % items.size()];
      if (driver_ == nullptr) {
        Check(copy_->Set(nodes_[i], item));
        continue;
      }
      const cuda::KernelNodeParams params = Params(item);
      Ok(driver_->GraphKernelNodeSetParams(cloned_[i], &params));
    }
    if (driver_ == nullptr) {
      Check(copy_->Update(graph_->exec()));
    } else {
      cuda::GraphUpdateInfo info{};
      Ok(driver_->GraphExecUpdate(exec(), clone_, &info));
    }
  }

 private:
  void Clone(Stream stream) {
    int status = 0;
    uint64_t id = 0;
    cuda::GraphHandle graph = nullptr;
    Ok(driver_->StreamGetCaptureInfoV2(static_cast<cuda::StreamHandle>(stream.handle), &status, &id,
                                       &graph, nullptr, nullptr));
    Ok(driver_->GraphClone(&clone_, graph));
    for (const Node& node : nodes_) {
      Ok(driver_->GraphNodeFindInClone(&cloned_.emplace_back(),
                                       static_cast<cuda::GraphNode>(node.handle), clone_));
    }
  }
  static cuda::KernelNodeParams Params(const NodeWork& work) {
    return cuda::NodeParams(static_cast<cuda::FunctionHandle>(work.function.handle), *work.launch,
                            work.params);
  }
  cuda::GraphExecHandle exec() const {
    return static_cast<cuda::GraphExecHandle>(graph_->exec().handle);
  }
  void Ok(cuda::Result result) const {
    if (result != cuda::kSuccess) Check(cuda::ErrorFrom(*driver_, result, "a raw call"));
  }

  Device& device_;
  const cuda::Driver* driver_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<cuda::GraphNode> cloned_;
  cuda::GraphHandle clone_ = nullptr;
  std::unique_ptr<GraphCopy> copy_;
  std::unique_ptr<Graph> graph_;
};

struct Captured {
  std::unique_ptr<Graph> graph;
  std::optional<GraphBinding> binding;
};

Captured Capture(Dispatcher& dispatcher, const Tensors& tensors, Stream stream, int launches,
                 bool keep) {
  Device& device = dispatcher.device();
  Check(device.BeginCapture(stream, CaptureMode::kRelaxed));
  const auto scope = Must(dispatcher.OpenCapture(stream, {.keeps_graph = keep}));
  for (int i = 0; i < launches; ++i) Check(dispatcher.Launch(kOp, tensors.views(), stream));
  Captured captured;
  captured.binding = Must(scope->Finish());
  captured.graph = Must(device.EndCapture(stream, keep));
  return captured;
}

// One way, `launches` launches a graph: medians over the rounds.
Json Row(Dispatcher& dispatcher, const std::array<GenerationPtr, 2>& generations,
         const std::array<const Work*, 2>& works, const Tensors& tensors, Stream stream,
         int launches, bool keep, int rounds) {
  Raw raw(dispatcher.device(), stream, *works[0], launches);
  Captured captured = Capture(dispatcher, tensors, stream, launches, keep);
  std::vector<double> raw_us, own_us, ratios;
  int nodes = 0;
  for (int round = 0; round < rounds; ++round) {
    const size_t next = static_cast<size_t>(round + 1) % 2;
    const auto raw_call = [&] { keep ? raw.SetNodes(*works[next]) : raw.SetGraph(*works[next]); };
    Applied applied;
    const auto own_call = [&] {
      applied = Must(captured.binding->Apply(captured.graph->exec(), generations[next]->digest()));
    };
    double raw_took = 0, own_took = 0;
    Check(dispatcher.device().WithContext([&] {  // current, as an application's is
      if (round % 2 == 0) raw_took = Microseconds(raw_call);
      own_took = Microseconds(own_call);
      if (round % 2 != 0) raw_took = Microseconds(raw_call);
      return absl::OkStatus();
    }));
    if (applied.outcome != Applied::kApplied || applied.nodes != static_cast<int>(raw.nodes())) {
      std::fprintf(stderr, "Apply set %d nodes, the raw calls %zu\n", applied.nodes, raw.nodes());
      std::exit(1);
    }
    nodes = applied.nodes;
    raw_us.push_back(raw_took / nodes);
    own_us.push_back(own_took / nodes);
    ratios.push_back(own_took / raw_took);
    Check(captured.graph->Launch(stream));
    Check(dispatcher.device().Synchronize(stream));
  }
  const double raw_median = Median(raw_us), own_median = Median(own_us);
  return {{"way", keep ? "node" : "graph"},
          {"launches", launches},
          {"nodes", nodes},
          {"raw_us_per_node", raw_median},
          {"us_per_node", own_median},
          {"ratio", own_median / raw_median},
          {"median_of_ratios", Median(ratios)}};
}

Json Run(const Options& options) {
  LaunchWorld world(options.device, options.bundles);
  Device& device = world.device();
  const std::unique_ptr<Dispatcher> dispatcher = world.Load("empty", kBucketedKeys);
  const std::array<GenerationPtr, 2> generations = {world.Generation("empty", kBucketedKeys, 1),
                                                    world.Generation("empty", kBucketedKeys, 2)};
  const Stream stream = Must(device.CreateStream());
  Check(dispatcher->PrepareStream(stream));
  Tensors tensors(world.memory());
  tensors.SetShape(kShape);
  Json rows = Json::array();
  {
    Check(dispatcher->Publish(generations[1]).status());
    const Work second(*dispatcher, tensors, world.memory());
    Check(dispatcher->Publish(generations[0]).status());
    const Work first(*dispatcher, tensors, world.memory());
    for (const int launches : kLaunches) {
      for (const bool keep : {true, false}) {
        rows.push_back(Row(*dispatcher, generations, {&first, &second}, tensors, stream, launches,
                           keep, options.rounds));
        Check(dispatcher->Publish(generations[0]).status());
      }
    }
  }
  device.DestroyStream(stream);
  return {{"device", device.info().name},
          {"driver", device.info().driver},
          {"rounds", options.rounds},
          {"rows", std::move(rows)}};
}

}  // namespace
}  // namespace kvr::bench

int main(int argc, char** argv) {
  kvr::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc || (name != "--device" && name != "--bundles" && name != "--rounds")) {
      std::fprintf(stderr, "kvr-patch-bench [--device cuda:N|null] [--bundles DIR] [--rounds N]\n");
      return 2;
    }
    const std::string value = argv[++i];
    if (name == "--device") options.device = value;
    if (name == "--bundles") options.bundles = value;
    if (name == "--rounds") options.rounds = std::max(1, std::atoi(value.c_str()));
  }
  if (options.bundles.empty()) options.bundles = kvr::InstallPath("share/kvr/bench/variants");
  std::printf("%s\n", kvr::bench::Run(options).dump(2).c_str());
  return 0;
}
