// SPDX-License-Identifier: Apache-2.0
//
// What a request may ask for: times that are some, axes and variants that somebody knows.
#include <algorithm>
#include <array>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/report/evidence.h"

namespace kvr::report {
namespace {

// "2026-11-30T15:04:05.000Z" or the beginning of it, up to a whole figure; as the ledger has it,
// so that texts compare as times.
absl::StatusOr<std::string> Beginning(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";
  std::string_view time = text;
  if (time.ends_with('Z') && time.size() > 13) time.remove_suffix(1);
  constexpr std::array<size_t, 7> kWhole = {4, 7, 10, 13, 16, 19, 23};
  bool good = std::find(kWhole.begin(), kWhole.end(), time.size()) != kWhole.end();
  for (size_t i = 0; good && i < time.size(); ++i) {
    good = kForm[i] == '0' ? time[i] >= '0' && time[i] <= '9' : time[i] == kForm[i];
  }
  const auto within = [&](size_t at, std::string_view low, std::string_view high) {
    const std::string_view figure = time.substr(std::min(at, time.size()), 2);
    return figure.empty() || (figure >= low && figure <= high);
  };
  if (!good || !within(5, "01", "12") || !within(8, "01", "31") || !within(11, "00", "23") ||
      !within(14, "00", "59") || !within(17, "00", "60")) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("--since ", Quoted(text), " is no time"),
                 "give one in UTC, or the beginning of one: 2026-11-30, 2026-11-30T15:04");
  }
  return std::string(time);
}

template <class Record>
absl::Status Note(const ledger::Ledger& ledger, const std::string& op,
                  std::set<std::string>* variants, std::set<std::string>* axes) {
  KVR_ASSIGN_OR_RETURN(const std::vector<Record> records, ledger.Find<Record>({{"op", op}}));
  for (const Record& record : records) {
    if constexpr (requires { record.variant; }) variants->insert(record.variant);
    if constexpr (requires { record.challenger; }) {
      variants->insert({record.challenger, record.incumbent});
    }
    if constexpr (requires { record.axes; }) {
      for (const auto& [axis, value] : Pairs(record.axes)) axes->insert(axis);
    }
  }
  return absl::OkStatus();
}

// Every axis and variant that is asked for is known, to the catalog or to the ledger.
absl::Status Check(const ledger::Ledger& ledger, const CollectRequest& request) {
  std::set<std::string> variants, axes;
  KVR_RETURN_IF_ERROR(Note<ledger::Build>(ledger, request.op, &variants, &axes));
  KVR_RETURN_IF_ERROR(Note<ledger::Trial>(ledger, request.op, &variants, &axes));
  KVR_RETURN_IF_ERROR(Note<ledger::Verdict>(ledger, request.op, &variants, &axes));
  KVR_RETURN_IF_ERROR(Note<ledger::Band>(ledger, request.op, &variants, &axes));
  KVR_RETURN_IF_ERROR(Note<ledger::Summary>(ledger, request.op, &variants, &axes));
  // A ledger without the op has more to say than that.
  if (variants.empty() && axes.empty()) return absl::OkStatus();
  for (const auto& [variant, description] : request.descriptions) variants.insert(variant);
  if (request.operation != nullptr) {
    for (const AxisSpec& axis : request.operation->spec().axes) axes.insert(axis.name);
  }
  for (const std::string& variant : request.variants) {
    if (variants.contains(variant)) continue;
    return UnknownName("variant", variant,
                       std::vector<std::string_view>(variants.begin(), variants.end()));
  }
  for (const Axes& wanted : request.axes) {
    for (const auto& [axis, value] : wanted) {
      if (axes.contains(axis)) continue;
      return UnknownName("axis", axis, std::vector<std::string_view>(axes.begin(), axes.end()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CollectRequest> Checked(const ledger::Ledger& ledger, CollectRequest request) {
  if (!request.since.empty()) {
    KVR_ASSIGN_OR_RETURN(request.since, Beginning(request.since));
  }
  KVR_RETURN_IF_ERROR(Check(ledger, request));
  return request;
}

}  // namespace kvr::report
