// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/try_plugin.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "tuner/worker/client.h"
#include "tuner/worker/process.h"
#include "tuner/worker/protocol.h"

namespace kvr {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

absl::Status Refuse(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, absl::StrCat("'", path, "' ", what),
               "correct what it does when it is loaded, or take it away");
}

}  // namespace

absl::Status TryPlugin(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const std::string worker, FindWorker());
  // A process that dies of its plugin cannot clear away the copy that it loads.
  std::error_code error;
  std::string scratch =
      (std::filesystem::temp_directory_path(error) / "kvr-try-plugin-XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) {
    return Error(absl::StatusCode::kUnavailable,
                 absl::StrCat("cannot make ", scratch, ": ", strerror(errno)),
                 "make room there, or let TMPDIR name another directory");
  }
  auto remove = absl::MakeCleanup([&] { std::filesystem::remove_all(scratch, error); });
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> process,
                       ChildProcess::Spawn(worker, {"--check-plugin", path, "--scratch", scratch}));
  std::string line;
  switch (process->ReadLine(&line, absl::Now() + kPatience, nullptr)) {
    case ChildProcess::Read::kLine:
      break;
    case ChildProcess::Read::kTimeout:
      return Refuse(path, absl::StrCat("is not loaded within ", absl::FormatDuration(kPatience)));
    default: {
      const std::string how = process->End();
      const std::string said = process->StderrTail();
      return Refuse(
          path, absl::StrCat("crashes when it is loaded: ", how, said.empty() ? "" : "; it said: ",
                             said.substr(said.rfind('\n') + 1).substr(0, 200)));
    }
  }
  KVR_ASSIGN_OR_RETURN(const Message answer, DecodeMessage(line));
  return answer.error;
}

}  // namespace kvr
