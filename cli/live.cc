// SPDX-License-Identifier: Apache-2.0
#include "cli/live.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "cli/progress_bar.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::cli {
namespace {

std::string Milliseconds(double ms) { return cli::Microseconds(1000 * ms); }

void PrintOutcome(const LiveJson& swap) {
  const LiveJson& changes = PartOf(swap, "changes");
  for (const LiveJson& change : changes) {
    if (change.is_string()) Print(Wrap(change.get<std::string>(), TerminalWidth(), 0));
  }
  const std::string state = TextOf(swap, "state");
  const std::string before = ShortDigest(TextOf(swap, "before"));
  const std::string after = ShortDigest(TextOf(swap, "after"));
  if (state == "waiting") {
    Print(absl::StrFormat("swap %.0f waits its turn; `kvr status` tells how it goes\n",
                          NumberOf(swap, "id")));
  } else if (state == "unchanged") {
    Print(StrCat("unchanged: ", before, " serves already\n"));
  } else {
    std::vector<std::string> took;
    const auto add = [&](const char* what, const char* field) {
      const double ms = NumberOf(swap, field);
      if (ms > 0) took.push_back(StrCat(what, " in ", Milliseconds(ms)));
    };
    add("built", "build_ms");
    add("verified", "verify_ms");
    add("published", "publish_ms");
    Print(Wrap(StrCat(state, " ", after, " in place of ", before, took.empty() ? "" : ": ",
                      StrJoin(took, ", ")),
               TerminalWidth(), 0));
  }
}

}  // namespace

absl::StatusOr<LiveTarget> ParseLiveTarget(const std::string& text) {
  LiveTarget target;
  const bool is_hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::error_code error;
  if (text == "current" || text == "baseline" || text == "previous" ||
      (is_hex && text.size() >= 8 && text.size() <= 64)) {
    target.digest = text;
  } else if (std::filesystem::is_regular_file(text, error)) {
    target.selection_file = AbsolutePath(text);
  } else if (const size_t slash = text.find('/');
             slash != std::string::npos && slash > 0 && slash + 1 < text.size() &&
             text.find('/', slash + 1) == std::string::npos && text[0] != '.') {
    target.op = text.substr(0, slash);
    target.variant = text.substr(slash + 1);
  } else {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("'", text, "' is no digest, no selection file and no OP/VARIANT"),
                 "give 8 digits or more of a digest, 'current', 'baseline', 'previous', a "
                 "selection file, or a variant as in mla_sparse_decode/w8{BLOCK_H=16}");
  }
  return target;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

const LiveJson& PartOf(const LiveJson& json, const char* name) {
  static const LiveJson kNone;
  if (!json.is_object()) return kNone;
  const auto found = json.find(name);
  return found == json.end() ? kNone : *found;
}

std::string TextOf(const LiveJson& json, const char* name) {
  const LiveJson& part = PartOf(json, name);
  return part.is_string() ? part.get<std::string>() : std::string();
}

double NumberOf(const LiveJson& json, const char* name) {
  const LiveJson& part = PartOf(json, name);
  return part.is_number() ? part.get<double>() : 0;
}

bool FlagOf(const LiveJson& json, const char* name) {
  const LiveJson& part = PartOf(json, name);
  return part.is_boolean() && part.get<bool>();
}

std::string ShortDigest(std::string_view digest) { return std::string(digest.substr(0, 12)); }

std::string PairsOf(const LiveJson& json) {
  std::string text;
  if (!json.is_object()) return text;
  for (const auto& [name, value] : json.items()) {
    StrAppend(&text, text.empty() ? "" : ",", name, "=", LiveLine(value));
  }
  return text;
}

absl::StatusOr<int> RunSwap(const GlobalOptions& global, const std::string& socket,
                            const LiveRequest& request) {
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<LiveClient> client, LiveClient::Connect(socket));
  std::string told;
  LiveCall call;
  call.cancel = CancelOnInterrupt();
  call.patience = absl::Hours(1);
  call.each = [&](const LiveJson& event) {
    const LiveJson& swap = PartOf(event, "swap");
    const std::string step =
        TextOf(swap, "state") == "waiting" ? "waits for the one before" : TextOf(swap, "step");
    if (!global.json && step != told && !step.empty()) {
      std::fprintf(stderr, "kvr: %s\n", Shown(step).c_str());
    }
    told = step;
    return true;
  };
  absl::StatusOr<LiveJson> result = client->Call(request, call);
  if (absl::IsCancelled(result.status())) {
    PrintError(result.status(), global.json);
    return kInterrupted;
  }
  KVR_RETURN_IF_ERROR(result.status());
  const LiveJson& swap = PartOf(*result, "swap");
  if (global.json) {
    PrintJson({{"swap", swap}});
  } else if (TextOf(swap, "state") != "failed") {
    PrintOutcome(swap);
  }
  if (TextOf(swap, "state") != "failed") return kDone;
  const absl::Status failed =
      WithContext(StrCat(request.command == LiveRequest::Command::kRollback
                             ? "the rollback failed"
                             : StrCat("swap failed at '", TextOf(swap, "step"), "'"),
                         ", and ", ShortDigest(TextOf(swap, "before")), " serves on"),
                  LiveErrorOf(PartOf(swap, "error")));
  if (!global.json) PrintError(failed, false);
  return kFailed;
}

}  // namespace kvr::cli
