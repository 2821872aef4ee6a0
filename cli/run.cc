// SPDX-License-Identifier: Apache-2.0
//
// kvr run OP: launch through the registry, as an application does, and hold the result against the
// reference: open a Runtime, load, freeze, launch, compare.
#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "api/runtime.h"
#include "cli/command.h"
#include "cli/samples.h"
#include "cli/selections.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/quality.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/compare.h"

namespace kvr::cli {
namespace {

constexpr int kLaunches = 20;  // timed ones; enough for a median, short on a slow device
constexpr int kThreads = 0;    // reference on every core

struct RunOptions : OpOptions {
  std::string selections;
};

struct Buffers {  // the op's tensors, on the host and on the device
  std::vector<std::vector<char>> host;
  std::vector<TensorView> host_views, device_views;
};

absl::StatusOr<Buffers> MakeInputs(const Operation& op, const AxisVector& axes, Device& device,
                                   Stream stream) {
  const OpSpec& spec = op.spec();
  Buffers buffers;
  buffers.host_views = TensorShapes(spec, axes);
  for (TensorView& view : buffers.host_views) {
    buffers.host.emplace_back(static_cast<size_t>(view.bytes()), char(PoisonByte(0)));
    view.data = buffers.host.back().data();
  }
  const size_t inputs = spec.inputs.size();
  KVR_RETURN_IF_ERROR(
      op.Generate(axes, /*seed=*/1, absl::MakeSpan(buffers.host_views).first(inputs)));
  buffers.device_views = buffers.host_views;
  for (size_t i = 0; i < buffers.device_views.size(); ++i) {
    TensorView& view = buffers.device_views[i];
    if (spec.tensor(static_cast<int>(i)).is_scalar) continue;  // stays a host value
    KVR_ASSIGN_OR_RETURN(view.data, device.Allocate(std::max<int64_t>(view.bytes(), 1)));
    KVR_RETURN_IF_ERROR(
        device.CopyToDevice(view.data, buffers.host[i].data(), view.bytes(), stream));
  }
  return buffers;
}

struct Outcome {
  LoadItem item;
  Comparison comparison;                // with what the variant is held to
  std::vector<QualityMeasure> quality;  // of an approximate one
  double median_us = 0;
};

// Holds `outputs` to the operation's reference; those of an approximate variant to its own.
absl::Status Judge(Runtime& runtime, const Catalog::Op& op, const AxisVector& axes,
                   absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs,
                   Outcome* outcome) {
  KVR_ASSIGN_OR_RETURN(const VariantPtr variant,
                       runtime.catalog().Find(op.name(), outcome->item.variant));
  KVR_ASSIGN_OR_RETURN(const std::vector<ReferenceOutput> exact,
                       op.operation->Reference(axes, inputs, kThreads));
  outcome->comparison = Compare(op.spec(), outputs, exact, PoisonByte(0));
  if (variant->semantics == Semantics::kExact) return absl::OkStatus();
  outcome->quality = DistanceOf(op.spec(), outcome->comparison);
  KVR_ASSIGN_OR_RETURN(const std::vector<QualityMeasure> measures,
                       op.operation->Quality(axes, inputs, outputs, exact));
  outcome->quality.insert(outcome->quality.end(), measures.begin(), measures.end());
  KVR_ASSIGN_OR_RETURN(const std::vector<ReferenceOutput> own,
                       variant->code->Reference(axes, variant->TunableValues(outcome->item.config),
                                                inputs, kThreads));
  outcome->comparison = Compare(op.spec(), outputs, own, PoisonByte(0));
  return absl::OkStatus();
}

absl::StatusOr<Outcome> RunShape(Runtime& runtime, const Catalog::Op& op, const AxisVector& axes) {
  Device& device = runtime.device();
  const Axes named = NamedAxes(op.spec(), axes);
  KVR_ASSIGN_OR_RETURN(LoadReport report, runtime.Load(op.name(), {named}));
  Outcome outcome{.item = report.items.front(), .comparison = {}, .quality = {}};
  KVR_RETURN_IF_ERROR(outcome.item.status);
  KVR_ASSIGN_OR_RETURN(Stream stream, device.CreateStream());
  auto destroy = absl::MakeCleanup([&] { device.DestroyStream(stream); });
  KVR_RETURN_IF_ERROR(runtime.PrepareStream(stream));
  runtime.Freeze();

  KVR_ASSIGN_OR_RETURN(Buffers buffers, MakeInputs(*op.operation, axes, device, stream));
  auto release = absl::MakeCleanup([&] {
    for (size_t i = 0; i < buffers.device_views.size(); ++i)
      if (!op.spec().tensor(static_cast<int>(i)).is_scalar)
        device.Free(buffers.device_views[i].data);
  });
  KVR_ASSIGN_OR_RETURN(Event start, device.CreateEvent());
  auto destroy_start = absl::MakeCleanup([&] { device.DestroyEvent(start); });
  KVR_ASSIGN_OR_RETURN(Event stop, device.CreateEvent());
  auto destroy_stop = absl::MakeCleanup([&] { device.DestroyEvent(stop); });

  KVR_ASSIGN_OR_RETURN(OpHandle handle, runtime.FindOp(op.name()));
  std::vector<double> times;
  for (int i = 0; i < kLaunches; ++i) {
    KVR_RETURN_IF_ERROR(device.Record(start, stream));
    KVR_RETURN_IF_ERROR(runtime.Launch(handle, buffers.device_views, stream));
    KVR_RETURN_IF_ERROR(device.Record(stop, stream));
    KVR_ASSIGN_OR_RETURN(double us, device.ElapsedUs(start, stop));
    times.push_back(us);
  }
  std::nth_element(times.begin(), times.begin() + kLaunches / 2, times.end());
  outcome.median_us = times[kLaunches / 2];

  const size_t inputs = op.spec().inputs.size();
  for (size_t i = inputs; i < buffers.device_views.size(); ++i)
    KVR_RETURN_IF_ERROR(device.CopyToHost(buffers.host[i].data(), buffers.device_views[i].data,
                                          buffers.device_views[i].bytes(), stream));
  KVR_RETURN_IF_ERROR(device.Synchronize(stream));
  absl::Span<const TensorView> views = buffers.host_views;
  KVR_RETURN_IF_ERROR(
      Judge(runtime, op, axes, views.first(inputs), views.subspan(inputs), &outcome));
  runtime.Thaw();
  return outcome;
}

absl::StatusOr<int> RunRun(const GlobalOptions& global, const RunOptions& options) {
  RuntimeOptions open;
  open.device = options.device;
  open.plugin_roots = global.plugins;
  open.selection_file = options.selections;
  open.journal = "none";  // one launch is no serving
  if (options.variants.size() > 1) {
    return Error(absl::StatusCode::kInvalidArgument, "--variant is given more than once",
                 "give one: run launches what would serve the shape");
  }
  if (!options.variants.empty()) open.forced.variant = options.variants.front();
  open.forced.op = options.op;
  open.forced.tunables = options.pins;
  KVR_ASSIGN_OR_RETURN(open.approximate, OptIns(options));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, Runtime::Open(open));
  NameRefused(runtime->catalog());
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, runtime->catalog().FindOp(options.op));
  KVR_ASSIGN_OR_RETURN(std::vector<AxisVector> shapes, ChosenShapes(op->spec(), options));
  KVR_RETURN_IF_ERROR(CheckStated(runtime->catalog(), options));

  Json results = Json::array();
  Table table({{"shape"},
               {"variant"},
               {"config"},
               {"why"},
               {"status"},
               {"max abs", Table::Align::kRight},
               {"median", Table::Align::kRight}});
  bool failed = false;
  Json dropped = Json::array();
  std::string notes;
  for (const DroppedSelection& drop : runtime->dropped()) {
    dropped.push_back({{"op", drop.op},
                       {"variant", drop.variant},
                       {"key", AxesJson(drop.key)},
                       {"reason", drop.reason}});
    notes += Wrap(StrCat("dropped: the selection of ", drop.variant, " for ", AxesText(drop.key),
                         ": ", drop.reason),
                  TerminalWidth(), 0);
  }
  std::vector<Axes> at;
  for (const AxisVector& axes : shapes) at.push_back(NamedAxes(op->spec(), axes));
  const ShapeNames names(op->spec(), at);
  for (size_t i = 0; i < shapes.size(); ++i) {
    KVR_ASSIGN_OR_RETURN(Outcome outcome, RunShape(*runtime, *op, shapes[i]));
    failed |= outcome.comparison.status != TrialStatus::kPassed;
    const std::string status(TrialStatusName(outcome.comparison.status));
    results.push_back({{"axes", AxesJson(outcome.item.axes)},
                       {"key", AxesJson(outcome.item.key)},
                       {"variant", outcome.item.variant},
                       {"config", ConfigJson(outcome.item.config)},
                       {"why", outcome.item.why},
                       {"status", status},
                       {"reason", outcome.comparison.reason},
                       {"max_abs", outcome.comparison.max_abs},
                       {"max_rel", outcome.comparison.max_rel},
                       {"quality", QualityJson(outcome.quality)},
                       {"median_us", outcome.median_us},
                       {"launches", kLaunches}});
    table.Row(
        {names.names[i], outcome.item.variant,
         ShortConfig(runtime->catalog(), options.op, outcome.item.variant, outcome.item.config),
         outcome.item.why, status, absl::StrFormat("%.2e", outcome.comparison.max_abs),
         Microseconds(outcome.median_us)});
    if (!outcome.comparison.reason.empty()) {
      notes += Wrap(outcome.comparison.reason, TerminalWidth(), 0);
    }
    if (!outcome.quality.empty()) {
      notes += Wrap("quality of " + outcome.item.variant + ": " + QualityLine(outcome.quality),
                    TerminalWidth(), 2);
    }
  }
  const DeviceInfo& device = runtime->device().info();
  if (global.json) {
    PrintJson(
        {{"op", op->name()}, {"device", device.name}, {"results", results}, {"dropped", dropped}});
  } else {
    Print(names.Heading(options.op));
    Print(table.Render(TerminalWidth()));
    Print(notes);
    Print(Wrap(StrCat("launched through the registry on ", device.name,
                      ", frozen; times are of single launches with warm caches"),
               TerminalWidth(), 0));
  }
  return ExitCode(global, runtime->catalog(), failed);
}

}  // namespace

void AddRun(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub =
      Subcommand(app, "run", "Launch through the registry, in this process, and check the result",
                 "kvr run mla_sparse_decode --axes num_tokens=16 --selections selections.json");
  options->AddOp(sub);
  options->AddAxes(sub);
  options->AddVariants(sub);
  options->AddApproximate(sub);
  options->AddDevice(sub);
  AddSelections(sub, &options->selections);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunRun(commands.global, *options); };
  });
}

}  // namespace kvr::cli
