// SPDX-License-Identifier: Apache-2.0
//
// kvr explain OP: what one config would do at a shape, on a device or a described one, without
// running it.
#include "tuner/explain.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/measured.h"
#include "cli/table.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/profiles.h"

namespace kvr::cli {
namespace {

Json DimJson(const Dim3& dim) { return Json::array({dim.x, dim.y, dim.z}); }

std::string DimText(const Dim3& dim) { return absl::StrCat(dim.x, "x", dim.y, "x", dim.z); }

struct ExplainOptions : OpOptions {
  std::string measured;
};

Json ToJson(const Explanation& e, const MeasuredShape* measured) {
  Json kernels = Json::array();
  for (const ExplainedKernel& kernel : e.kernels) {
    kernels.push_back({{"name", kernel.name},
                       {"grid", DimJson(kernel.grid)},
                       {"block", DimJson(kernel.block)},
                       {"smem_bytes", kernel.smem_static + kernel.smem_dynamic},
                       {"registers", kernel.registers},
                       {"spill_bytes", BytesJson(kernel.spill_bytes)},
                       {"ctas_per_sm", kernel.blocks_per_sm},
                       {"occupancy", kernel.occupancy},
                       {"limiter", kernel.limiter}});
  }
  Json json = {{"device", e.device},
               {"variant", e.variant},
               {"config", ConfigJson(e.config)},
               {"axes", AxesJson(e.axes)},
               {"kernels", kernels},
               {"launch_function", e.launch_function},
               {"main_kernel", e.main_kernel < 0 ? "" : e.kernels[e.main_kernel].name},
               {"resources_known", e.resources_known},
               {"ctas", e.ctas},
               {"ctas_per_sm", e.ctas_per_sm},
               {"waves", e.waves.waves},
               {"tail_ctas", e.waves.tail_ctas},
               {"tail_utilisation", e.waves.tail_utilisation},
               {"occupancy", e.occupancy},
               {"limiter", e.limiter},
               {"smem_bytes", e.smem_bytes},
               {"smem_limit", e.smem_limit},
               {"workspace_bytes", e.workspace_bytes},
               {"bytes", e.bytes},
               {"floor_us", e.floor_us}};
  if (measured != nullptr) {
    json["measured"] = {{"roofline", measured->roofline}, {"roofline_us", measured->roofline_us},
                        {"fastest", measured->variant},   {"fastest_us", measured->variant_us},
                        {"variants_us", measured->us},    {"axes", AxesJson(measured->axes)}};
  }
  return json;
}

// Of `axes`, those that `others` has otherwise.
Axes Differing(const Axes& axes, const Axes& others) {
  Axes differing;
  for (const auto& axis : axes) {
    const auto found = others.find(axis.first);
    if (found == others.end() || found->second != axis.second) differing.insert(axis);
  }
  return differing;
}

// What memory was seen to allow, and how near this variant and the fastest came to it.
void PrintMeasured(const MeasuredFile& file, const MeasuredShape* shape, const Explanation& e) {
  if (shape == nullptr) {
    Print(absl::StrFormat("measured      not at this shape (%s, %s)\n", file.device, file.date));
    return;
  }
  Print(absl::StrFormat("measured      %s to %s the same bytes (%s, %s)\n",
                        Microseconds(shape->roofline_us), shape->roofline, file.device, file.date));
  const Axes elsewhere = Differing(shape->axes, e.axes);
  if (!elsewhere.empty()) Print("              at " + AxesText(elsewhere) + "\n");
  Print(absl::StrFormat("              %s by %s, the fastest: %.2f times that\n",
                        Microseconds(shape->variant_us), shape->variant,
                        shape->variant_us / shape->roofline_us));
  const auto own = shape->us.find(e.variant);
  if (own == shape->us.end() || e.variant == shape->variant) return;
  Print(absl::StrFormat("              %s by %s, at its best: %.2f times that\n",
                        Microseconds(own->second), e.variant, own->second / shape->roofline_us));
}

void PrintMemory(const Explanation& e) {
  Print(absl::StrFormat("workspace     %s\n", Bytes(e.workspace_bytes)));
  Print(absl::StrFormat("floor         %s to move%s\n", Bytes(e.bytes),
                        e.floor_us > 0
                            ? absl::StrFormat(": %s at copy bandwidth", Microseconds(e.floor_us))
                            : std::string("; the device's bandwidth is unknown")));
}

// A limit that no known number of registers sets is none.
std::string LimitedBy(const std::string& limiter, int registers) {
  return registers == 0 && limiter == "registers" ? "-" : limiter;
}

void PrintText(const Explanation& e, const std::string& unknown) {
  const int width = TerminalWidth();
  Print(Wrap(absl::StrCat(e.variant, " {", ConfigText(e.config), "}"), width, 0));
  Print(Wrap(absl::StrCat("at ", AxesText(e.axes)), width, 2));
  Print(Wrap(absl::StrCat("on ", e.device), width, 2) + "\n");
  if (e.kernels.empty() && !e.launch_function) {
    Print("an empty batch: nothing is launched\n");
    return;
  }
  if (e.launch_function) {
    Print("launch function: what it launches, and the resources of that, are unknown\n\n");
    PrintMemory(e);
    return;
  }
  Table table({{"kernel"},
               {"grid"},
               {"block"},
               {"smem", Table::Align::kRight},
               {"registers", Table::Align::kRight},
               {"spills", Table::Align::kRight},
               {"CTAs/SM", Table::Align::kRight},
               {"limited by"}});
  for (const ExplainedKernel& kernel : e.kernels) {
    table.Row({kernel.name, DimText(kernel.grid), DimText(kernel.block),
               Bytes(kernel.smem_static + kernel.smem_dynamic),
               !e.resources_known     ? "?"
               : kernel.registers > 0 ? absl::StrCat(kernel.registers)
                                      : "-",  // the host has none
               e.resources_known && kernel.spill_bytes >= 0 ? Bytes(kernel.spill_bytes) : "?",
               absl::StrCat(kernel.blocks_per_sm), LimitedBy(kernel.limiter, kernel.registers)});
  }
  Print(table.Render(TerminalWidth()) + "\n");
  const std::string limiter = LimitedBy(e.limiter, e.kernels[e.main_kernel].registers);
  Print(absl::StrFormat("CTAs          %d of kernel %s, %d a multiprocessor%s\n", e.ctas,
                        e.kernels[e.main_kernel].name, e.ctas_per_sm,
                        limiter == "-" ? "" : " (limited by " + limiter + ")"));
  Print(absl::StrFormat("waves         %.2f of %d; tail %d CTAs, %.0f %% of a wave\n",
                        e.waves.waves, e.waves.slots, e.waves.tail_ctas,
                        100 * e.waves.tail_utilisation));
  Print(absl::StrFormat("occupancy     %.0f %%\n", 100 * e.occupancy));
  Print(absl::StrFormat("shared memory %s of %s a block\n", Bytes(e.smem_bytes),
                        Bytes(e.smem_limit)));
  PrintMemory(e);
  if (unknown.empty()) return;
  // The compiler's whole log is another command's.
  const std::string first = unknown.substr(0, unknown.find('\n'));
  const std::string_view more = first == unknown ? "" : "; `kvr compile` shows all of it";
  Print("\n" +
        Wrap(StrCat("registers are unknown, so occupancy counts none: ", first, more), width, 0));
}

absl::StatusOr<int> RunExplain(const GlobalOptions& global, const ExplainOptions& options) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
  std::optional<MeasuredFile> measured;
  std::set<std::string> named;
  if (!options.measured.empty()) {
    for (const std::string& text : options.axes) {
      KVR_ASSIGN_OR_RETURN(const std::vector<Axes> shapes, ExpandAxes(text));
      for (const auto& axis : shapes.front()) named.insert(axis.first);
    }
    KVR_ASSIGN_OR_RETURN(measured, ReadMeasured(options.measured));
    if (measured->op != options.op) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat(options.measured, " is of operation ", measured->op),
                   StrCat("give the file of ", options.op));
    }
  }
  DeviceInfo device;
  if (!options.profile.empty() && options.device != "auto") {
    return Error(absl::StatusCode::kInvalidArgument, "--profile and --device are both given",
                 "give the one to explain for");
  }
  if (!options.profile.empty()) {
    KVR_ASSIGN_OR_RETURN(device, LoadProfile(options.profile));
  } else {
    KVR_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, platform->OpenDevice(options.device));
    device = opened->info();
  }
  std::vector<VariantPtr> variants;
  if (options.variants.empty()) {
    KVR_ASSIGN_OR_RETURN(VariantPtr baseline, platform->catalog().Baseline(options.op));
    variants.push_back(std::move(baseline));
  } else {
    KVR_ASSIGN_OR_RETURN(variants, ChosenVariants(platform->catalog(), options));
  }
  KVR_ASSIGN_OR_RETURN(Space space, BuildSpace(variants, options.pins, Coverage::kDefault));
  KVR_ASSIGN_OR_RETURN(std::vector<AxisVector> shapes, ChosenShapes(op->spec(), options));

  Json all = Json::array();
  for (const Candidate& candidate : space.candidates) {
    absl::StatusOr<Built> built =
        platform->jit().Build(op->spec(), *candidate.variant, candidate.config, device.target);
    for (const AxisVector& axes : shapes) {
      KVR_ASSIGN_OR_RETURN(Explanation explanation,
                           ExplainConfig(*op->operation, candidate, axes, device,
                                         built.ok() ? built->binary.get() : nullptr));
      const MeasuredShape* const shape =
          measured.has_value() ? measured->Nearest(explanation.axes, named) : nullptr;
      if (global.json) {
        all.push_back(ToJson(explanation, shape));
      } else {
        if (!all.empty()) Print("\n");
        all.push_back(nullptr);
        PrintText(explanation, built.ok() ? "" : std::string(What(built.status())));
        if (measured.has_value()) PrintMeasured(*measured, shape, explanation);
      }
    }
  }
  // One shape of one variant is one object; scripts that ask for one get it unwrapped.
  if (global.json) PrintJson(all.size() == 1 ? all[0] : Json{{"explanations", all}});
  return ExitCode(global, platform->catalog(), false);
}

}  // namespace

void AddExplain(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* sub =
      Subcommand(app, "explain", "What a config does at a shape: plan, waves, occupancy, floor",
                 "kvr explain mla_sparse_decode --profile h200 --axes num_tokens=96,topk=512");
  options->AddOp(sub);
  options->AddAxes(sub);
  options->AddVariants(sub);
  options->AddDevice(sub);
  options->AddProfile(sub);
  sub->add_option("--measured", options->measured,
                  "what kvr-kernels-bench measured, to be shown beside the floor")
      ->type_name("FILE");
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunExplain(commands.global, *options); };
  });
}

}  // namespace kvr::cli
