// SPDX-License-Identifier: Apache-2.0
//
// kvr rollback SOCKET [DIGEST]: lets a running program serve what it served before, at once.
#include "cli/live.h"

namespace kvr::cli {

void AddRollback(CLI::App& app, Commands& commands) {
  struct Options {
    std::string socket, digest = "previous";
  };
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      Subcommand(app, "rollback", "Let a running program serve what it served before",
                 "kvr rollback kvr.sock baseline",
                 "0 published, or it serves already; 1 it failed and the generation serves on");
  AddSocket(sub, &options->socket);
  sub->add_option("DIGEST", options->digest,
                  "8 digits or more of one that `kvr status` lists, 'baseline', or 'previous', "
                  "which is meant if nothing is named");
  sub->callback([&commands, options] {
    commands.run = [&commands, options]() -> absl::StatusOr<int> {
      LiveRequest request;
      request.command = LiveRequest::Command::kRollback;
      request.target.digest = options->digest;
      return RunSwap(commands.global, options->socket, request);
    };
  });
}

}  // namespace kvr::cli
