// SPDX-License-Identifier: Apache-2.0
//
// What the commands that talk to a running program share.
//
// Threading: the CLI's own thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "api/live_client.h"
#include "cli/command.h"

namespace kvr::cli {

inline void AddSocket(CLI::App* app, std::string* socket) {
  app->add_option("SOCKET", *socket, "of the program, as it was started with")->required();
}

// As `kvr` takes them: "OP/VARIANT{A=V,...}", a digest or its name, or a selection file.
absl::StatusOr<LiveTarget> ParseLiveTarget(const std::string& text);
// The program has a working directory of its own.
std::string AbsolutePath(const std::string& path);

// Fields of what another process says; what is missing or of another type is empty.
std::string TextOf(const LiveJson& json, const char* name);
double NumberOf(const LiveJson& json, const char* name);
bool FlagOf(const LiveJson& json, const char* name);
const LiveJson& PartOf(const LiveJson& json, const char* name);  // null: none
std::string ShortDigest(std::string_view digest);                // its first 12 digits
std::string PairsOf(const LiveJson& json);                       // "topk=512,num_tokens=8"

// Follows a swap or a rollback, its steps on stderr, and tells its outcome. Gives the exit code.
absl::StatusOr<int> RunSwap(const GlobalOptions& global, const std::string& socket,
                            const LiveRequest& request);

}  // namespace kvr::cli
