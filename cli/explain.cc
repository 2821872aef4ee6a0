// SPDX-License-Identifier: Apache-2.0
//
// kvr explain OP: what one config would do at a shape, on a device or a described one, without
// running it.
#include "tuner/explain.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/status.h"
#include "devices/profiles.h"

namespace kvr::cli {
namespace {

Json DimJson(const Dim3& dim) { return Json::array({dim.x, dim.y, dim.z}); }

std::string DimText(const Dim3& dim) { return absl::StrCat(dim.x, " x ", dim.y, " x ", dim.z); }

Json ToJson(const Explanation& e) {
  Json kernels = Json::array();
  for (const ExplainedKernel& kernel : e.kernels) {
    kernels.push_back({{"name", kernel.name},
                       {"grid", DimJson(kernel.grid)},
                       {"block", DimJson(kernel.block)},
                       {"smem_bytes", kernel.smem_static + kernel.smem_dynamic},
                       {"registers", kernel.registers},
                       {"spill_bytes", kernel.spill_bytes},
                       {"ctas_per_sm", kernel.blocks_per_sm},
                       {"occupancy", kernel.occupancy},
                       {"limiter", kernel.limiter}});
  }
  return {{"device", e.device},
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
  Print(absl::StrCat(e.variant, " {", ConfigText(e.config), "}\n  at ", AxesText(e.axes), "\n  on ",
                     e.device, "\n\n"));
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
  if (!unknown.empty())
    Print("\nregisters are unknown, so occupancy counts none: " + unknown + "\n");
}

absl::StatusOr<int> RunExplain(const GlobalOptions& global, const OpOptions& options) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, platform->catalog().FindOp(options.op));
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
      if (global.json) {
        all.push_back(ToJson(explanation));
      } else {
        if (!all.empty()) Print("\n");
        all.push_back(nullptr);
        PrintText(explanation, built.ok() ? "" : std::string(What(built.status())));
      }
    }
  }
  // One shape of one variant is one object; scripts that ask for one get it unwrapped.
  if (global.json) PrintJson(all.size() == 1 ? all[0] : Json{{"explanations", all}});
  return ExitCode(global, platform->catalog(), false);
}

}  // namespace

void AddExplain(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<OpOptions>();
  CLI::App* sub =
      Subcommand(app, "explain", "What a config does at a shape: plan, waves, occupancy, floor",
                 "kvr explain mla_sparse_decode --profile h200 --axes num_tokens=96,topk=512");
  options->AddOp(sub);
  options->AddAxes(sub);
  options->AddVariants(sub);
  options->AddDevice(sub);
  options->AddProfile(sub);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunExplain(commands.global, *options); };
  });
}

}  // namespace kvr::cli
