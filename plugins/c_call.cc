// SPDX-License-Identifier: Apache-2.0
#include "plugins/c_call.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/files.h"

namespace kvr {
namespace {

// One printable line of at most `limit` bytes.
std::string Line(const char* text, size_t limit) {
  std::string line(text, strnlen(text, limit));
  line.resize(std::min(line.find('\n'), line.size()));
  const bool utf8 = bundle::CheckText(line).ok();
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) c = '?';
  }
  return line;
}

absl::StatusCode ToCode(int code) {
  switch (code) {
    case KVR_INVALID_ARGUMENT:
      return absl::StatusCode::kInvalidArgument;
    case KVR_FAILED_PRECONDITION:
      return absl::StatusCode::kFailedPrecondition;
    case KVR_UNIMPLEMENTED:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::vector<kvr_tensor> ToC(absl::Span<const TensorView> views) {
  std::vector<kvr_tensor> tensors;
  for (const TensorView& view : views) tensors.push_back(ToC(view));
  return tensors;
}

std::string ItHas(const std::vector<std::string>& names) {
  return names.empty() ? "it has none" : StrCat("it has ", StrJoin(names, ", "));
}

absl::Status CallFailed(const PluginLibrary& library, std::string_view function, int code,
                        const CallError& error) {
  std::string what = Line(error.text, sizeof error.text - 1);
  const bool known = ToCode(code) != absl::StatusCode::kInternal || code == KVR_INTERNAL;
  if (!known) what = StrCat(what, what.empty() ? "" : " ", "(code ", code, ", which is none)");
  if (what.empty()) what = "fails without saying why";
  // "what is wrong; what would be right"
  std::string fix = StrCat("this is the plugin's own word; see ", library.path());
  if (const size_t semicolon = what.find("; "); semicolon != std::string::npos) {
    fix = what.substr(semicolon + 2);
    what.resize(semicolon);
  }
  return Error(ToCode(code), StrCat(library.Label(), ": ", function, ": ", what), fix);
}

absl::Status CallThrew(const PluginLibrary& library, std::string_view function,
                       std::string_view what) {
  return Error(absl::StatusCode::kInternal,
               StrCat(library.Label(), ": ", function,
                      " throws: ", Line(std::string(what).c_str(), sizeof(CallError::text))),
               "catch it in the plugin, and return a code and a message");
}

}  // namespace kvr
