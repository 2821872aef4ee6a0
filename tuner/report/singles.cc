// SPDX-License-Identifier: Apache-2.0
//
// Each key's own choice against one choice for all keys, as a tune leaves it in the ledger.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/key_policy.h"
#include "core/strings.h"
#include "tuner/report/evidence.h"

namespace kvr::report {
namespace {

// The key that the op's own policy gives a shape; empty where the op is not known here.
std::string KeysOf(const Evidence& evidence, const std::string& axes) {
  if (evidence.op == nullptr) return "";
  const absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(evidence.op->key_policy, *evidence.op);
  const absl::StatusOr<Axes> named = ParseAxes(axes);
  if (!policy.ok() || !named.ok()) return "";
  const absl::StatusOr<AxisVector> shape = ResolveAxes(*evidence.op, *named);
  return shape.ok() ? AxesText(policy->Named(policy->Bucket(*shape))) : "";
}

std::string At(const std::vector<Row>& rows, std::string_view verdict, bool figures) {
  std::vector<std::string> texts;
  for (const Row& row : rows) {
    if (row.verdict != verdict) continue;
    texts.push_back(figures ? StrCat(row.axes, " (", PercentText(row.difference), ", ",
                                     IntervalText(row.low, row.high), ")")
                            : row.axes);
  }
  return Listed(texts);
}

}  // namespace

std::vector<Singles> AllSingles(const Evidence& evidence) {
  std::vector<Singles> all;
  for (const Made<ledger::Verdict>& made : evidence.singles) {
    const ledger::Verdict& v = made.record;
    Singles of;
    of.keys = KeysOf(evidence, v.axes);
    of.where = evidence.Where(made.place, v.mode);
    of.single = evidence.Short(v.incumbent, v.incumbent_config);
    const auto known = std::find_if(all.begin(), all.end(), [&](const Singles& other) {
      return other.keys == of.keys && other.where == of.where &&
             Named(other.single) == Named(of.single);
    });
    Singles& group = known == all.end() ? all.emplace_back(std::move(of)) : *known;
    group.rows.push_back(RowOf(evidence, made));
  }
  return all;
}

std::string Worth(const Singles& singles) {
  const std::vector<Row>& rows = singles.rows;
  const std::string wins = At(rows, "WIN", true), losses = At(rows, "LOSS", true),
                    unclear = At(rows, "INCONCLUSIVE", true), invalid = At(rows, "INVALID", false);
  std::string text = StrCat("One choice for ", Plural(rows.size(), "key"),
                            singles.keys.empty() ? "" : StrCat(" of ", singles.keys), ", ",
                            Named(singles.single), ", against each key's own: ");
  if (wins.empty() && unclear.empty() && invalid.empty()) {
    StrAppend(&text,
              "telling the keys apart is moot on this device, for at none of them is its own "
              "choice faster beyond the noise band");
  } else if (wins.empty()) {
    StrAppend(&text, "no key's own choice is shown to be faster");
  } else {
    const auto count = std::count_if(rows.begin(), rows.end(),
                                     [](const Row& row) { return row.verdict == "WIN"; });
    StrAppend(&text, "at ", count, " of ", rows.size(),
              " its own is faster beyond the noise band: ", wins);
  }
  const auto part = [&](std::string_view what, const std::string& at) {
    if (!at.empty()) StrAppend(&text, "; ", what, " at ", at);
  };
  part("slower", losses);
  part("as fast", At(rows, "EQUIVALENT", false));
  part("not told apart", unclear);
  part("not measured validly", invalid);
  return text + ".";
}

}  // namespace kvr::report
