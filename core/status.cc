// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <string>
#include <string_view>

#include "absl/strings/cord.h"
#include "absl/strings/str_replace.h"
#include "core/strings.h"

namespace kvr {
namespace {

// The parts live in the message itself, so that a plain ToString() shows both and the views that
// What() and Fix() return stay valid as long as the status. A "what" may hold compiler output, so
// the last separator is the one that counts.
constexpr std::string_view kFix = "\nfix: ";

}  // namespace

absl::Status Error(absl::StatusCode code, std::string_view what, std::string_view fix) {
  // An error with code OK would read as success; that is a bug of the caller, never a success.
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kInternal;
  if (fix.empty()) return absl::Status(code, AbslView(what));
  return absl::Status(
      code, StrCat(what, kFix, absl::StrReplaceAll(AbslView(fix), {{AbslView(kFix), "; "}})));
}

absl::Status ErrorAt(absl::StatusCode code, std::string_view file, int line, int column,
                     std::string_view what, std::string_view fix) {
  std::string place(file);
  if (line > 0) StrAppend(&place, ":", line);
  if (line > 0 && column > 0) StrAppend(&place, ":", column);
  return Error(code, StrCat(place, ": ", what), fix);
}

std::string_view What(const absl::Status& status) {
  std::string_view message = StdView(status.message());
  return message.substr(0, message.rfind(kFix));
}

std::string_view Fix(const absl::Status& status) {
  std::string_view message = StdView(status.message());
  size_t at = message.rfind(kFix);
  return at == std::string_view::npos ? std::string_view() : message.substr(at + kFix.size());
}

absl::Status WithContext(std::string_view context, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status result(status.code(), StrCat(context, ": ", status.message()));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

}  // namespace kvr
