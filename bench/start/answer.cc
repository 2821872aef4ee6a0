// SPDX-License-Identifier: Apache-2.0
#include "bench/start/answer.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::bench {
namespace {

std::string FirstLine(std::string_view said) {
  constexpr size_t kMost = 200;
  const std::string_view line = said.substr(0, said.find('\n'));
  return line.empty() ? "nothing" : Quoted(line.substr(0, kMost));
}

bool AreNumbers(const Json& row, const char* field) {
  if (!row.contains(field) || !row[field].is_array() || row[field].empty()) return false;
  return std::all_of(row[field].begin(), row[field].end(),
                     [](const Json& value) { return value.is_number(); });
}

bool IsHit(const Json& row) {
  return row.is_object() && row.contains("bytes") && row["bytes"].is_number() &&
         AreNumbers(row, "disk_us") && AreNumbers(row, "read_us") && AreNumbers(row, "held_us");
}

}  // namespace

std::vector<std::string> StampsOf(std::string_view mode, bool launches) {
  if (mode == "kvr" || mode == "prebuilt") return {"opened", "loaded", "launched"};
  if (mode == "compile") return {"opened", "built"};
  if (mode == "cubins") return {"loaded"};
  if (mode != "nvrtc") return {};
  return launches ? std::vector<std::string>{"opened", "built", "loaded"}
                  : std::vector<std::string>{"opened", "built"};
}

absl::StatusOr<Json> ParseAnswer(std::string_view mode, const std::vector<std::string>& stamps,
                                 std::string_view said) {
  const auto refuse = [&](std::string_view what) {
    return Error(absl::StatusCode::kInternal,
                 StrCat("the process '", mode, "' printed ", what, ": ", FirstLine(said)),
                 "keep plugins and preloaded libraries from writing to standard output");
  };
  Json answer = Json::parse(said, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("stamps") || !answer["stamps"].is_object()) {
    return refuse("something else than its stamps");
  }
  for (const Json& stamp : answer["stamps"]) {
    if (!stamp.is_number()) return refuse("a stamp that is no time");
  }
  for (const std::string& stamp : stamps) {
    if (!answer["stamps"].contains(stamp)) return refuse(StrCat("no stamp '", stamp, "'"));
  }
  if (mode != "hit") return answer;
  const bool whole = answer.contains("hits") && answer["hits"].is_array() &&
                     std::all_of(answer["hits"].begin(), answer["hits"].end(), IsHit);
  return whole ? absl::StatusOr<Json>(std::move(answer)) : refuse("rows that are not whole");
}

absl::Status CheckEnd(std::string_view mode, int wait_status, std::string_view said) {
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return absl::OkStatus();
  const std::string how = WIFSIGNALED(wait_status)
                              ? StrCat("was ended by ", strsignal(WTERMSIG(wait_status)))
                              : StrCat("ended with ", WEXITSTATUS(wait_status));
  const bool wrong_input = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 2;
  return Error(wrong_input ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal,
               StrCat("the process '", mode, "' ", how, ", having printed ", FirstLine(said)),
               "its own message is above");
}

}  // namespace kvr::bench
