// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/try_plugin.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "plugins/scratch_directory.h"
#include "tuner/worker/client.h"
#include "tuner/worker/process.h"
#include "tuner/worker/protocol.h"

namespace kvr {
namespace {

// Loading takes milliseconds; what an idle library does in its constructors, hardly more.
constexpr absl::Duration kPatience = absl::Seconds(20);

absl::Status Refuse(const std::string& path, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, absl::StrCat("'", path, "' ", what),
               "correct that code, or take the plugin away");
}

}  // namespace

absl::Status TryPlugin(const std::string& path) {
  KVR_ASSIGN_OR_RETURN(const std::string worker, FindWorker());
  // A process that dies of its plugin cannot clear away the copy that it loads.
  KVR_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create("try-plugin"));
  KVR_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChildProcess> process,
      ChildProcess::Spawn(worker, {"--check-plugin", path, "--scratch", scratch->path()}));
  const absl::Time deadline = absl::Now() + kPatience;
  std::string when = "when it is loaded";
  for (;;) {
    std::string line;
    const ChildProcess::Read read = process->ReadLine(&line, deadline, nullptr);
    if (read == ChildProcess::Read::kTimeout) {
      return Refuse(
          path, absl::StrCat("hangs ", when, ": no end within ", absl::FormatDuration(kPatience)));
    }
    if (read != ChildProcess::Read::kLine) {
      const std::string how = process->End();
      const std::string said = process->StderrTail();
      return Refuse(path,
                    absl::StrCat("crashes ", when, ": ", how, said.empty() ? "" : "; it said: ",
                                 said.substr(said.rfind('\n') + 1).substr(0, 200)));
    }
    KVR_ASSIGN_OR_RETURN(const Message answer, DecodeMessage(line));
    if (answer.kind != Message::Kind::kStage) return answer.error;
    when = absl::StrCat("while ", answer.doing);
  }
}

}  // namespace kvr
