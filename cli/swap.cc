// SPDX-License-Identifier: Apache-2.0
//
// kvr swap SOCKET ...: changes what a running program serves, and tells of each step: build,
// verify, canary, publish.
#include <utility>

#include "cli/command.h"
#include "cli/live.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "registry/opt_in.h"
#include "tuner/contest.h"

namespace kvr::cli {
namespace {

struct SwapOptions {
  std::string socket, op, variant, selections, bundle, approximate;
  std::vector<std::string> keys;
  bool canary = false, no_verify = false, no_wait = false;
};

// The variant with the values that --approximate states, for the program to hold against its own
// opt-in. Where the variant is here too, and not only there, the text is checked as elsewhere.
absl::StatusOr<std::string> WithQuality(const GlobalOptions& global, const SwapOptions& options) {
  KVR_ASSIGN_OR_RETURN(const ApproximateOptIn opt_in, ParseOptIn(options.approximate, options.op));
  KVR_ASSIGN_OR_RETURN(const ContestantParts parts, SplitContestant(options.variant));
  if (options.op.empty() || opt_in.variant != parts.variant) {
    return Error(
        absl::StatusCode::kInvalidArgument,
        StrCat("--approximate '", options.approximate, "' is not about the variant to swap to"),
        "name the operation and that variant, or leave it out");
  }
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Platform> platform, OpenPlatform(global, false));
  if (platform->catalog().Find(opt_in.op, opt_in.variant).ok()) {
    KVR_RETURN_IF_ERROR(CheckOptIns(platform->catalog(), {opt_in}));
  }
  Config config = opt_in.quality;
  if (!parts.config.empty()) {
    KVR_ASSIGN_OR_RETURN(const auto named,
                         ParseAssignments(parts.config, "tunable", /*negative=*/true));
    for (const auto& [name, value] : named) {
      const auto [at, fresh] = config.emplace(name, value);
      if (fresh || at->second == value) continue;
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("'", options.variant, "' has ", name, "=", value, ", and --approximate '",
                          options.approximate, "' has ", name, "=", at->second),
                   "give one value to it");
    }
  }
  return StrCat(parts.variant, "{", ConfigText(config), "}");
}

absl::StatusOr<LiveRequest> RequestOf(const GlobalOptions& global, const SwapOptions& options) {
  LiveRequest request;
  request.command = LiveRequest::Command::kSwap;
  const int given = !options.op.empty() + !options.selections.empty() + !options.bundle.empty();
  if (given != 1 || options.op.empty() != options.variant.empty()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 given == 0  ? "nothing is named that should serve"
                 : given > 1 ? "a swap brings one thing: a variant, a selection file or a bundle"
                             : "an operation is named without its variant",
                 "as in `kvr swap SOCKET mla_sparse_decode w8`, or --selection FILE, or --bundle "
                 "DIR");
  }
  if (!options.keys.empty() && options.op.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "--key goes with an operation and a variant",
                 "leave it out, or name them");
  }
  request.target.op = options.op;
  request.target.variant = options.variant;
  if (!options.approximate.empty()) {
    KVR_ASSIGN_OR_RETURN(request.target.variant, WithQuality(global, options));
  }
  if (!options.selections.empty()) {
    request.target.selection_file = AbsolutePath(options.selections);
  }
  if (!options.bundle.empty()) request.target.bundle = AbsolutePath(options.bundle);
  for (const std::string& text : options.keys) {
    KVR_ASSIGN_OR_RETURN(Axes key, ParseAxes(text));
    request.keys.push_back(std::move(key));
  }
  request.verify = !options.no_verify;
  request.canary = options.canary;
  request.wait = !options.no_wait;
  return request;
}

}  // namespace

void AddSwap(CLI::App& app, Commands& commands) {
  auto options = std::make_shared<SwapOptions>();
  CLI::App* sub = Subcommand(app, "swap", "Change what a running program serves",
                             "kvr swap kvr.sock mla_sparse_decode 'w8{BLOCK_H=16}' --canary",
                             "0 published, or it serves already; 1 it failed and the old "
                             "generation serves on");
  AddSocket(sub, &options->socket);
  sub->add_option("OP", options->op, "operation, as `kvr list` names it");
  sub->add_option("VARIANT", options->variant, "VARIANT, or VARIANT{A=V,...}");
  sub->add_option("--approximate", options->approximate,
                  "the quality tunables' values of an approximate VARIANT; they must be those that "
                  "the program opted in to")
      ->type_name("[OP/]VARIANT{A=V,...}");
  sub->add_option("--selection", options->selections, "all that this selection file selects")
      ->type_name("FILE");
  sub->add_option("--bundle", options->bundle,
                  "a bundle or a plugin; what it brings replaces the variants of its names")
      ->type_name("PATH");
  sub->add_option("--key", options->keys,
                  "only for this tuning key, as in topk=512; repeatable; all that are loaded if "
                  "left out")
      ->type_name("A=N,...")
      ->allow_extra_args(false)
      ->take_all();
  sub->add_flag("--canary", options->canary,
                "a quick comparison with what serves now comes first; a loss refuses the swap");
  sub->add_flag("--no-verify", options->no_verify, "publish what nobody has verified here");
  sub->add_flag("--no-wait", options->no_wait, "do not wait for the outcome");
  sub->callback([&commands, options] {
    commands.run = [&commands, options]() -> absl::StatusOr<int> {
      KVR_ASSIGN_OR_RETURN(const LiveRequest request, RequestOf(commands.global, *options));
      return RunSwap(commands.global, options->socket, request);
    };
  });
}

}  // namespace kvr::cli
