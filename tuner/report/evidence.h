// SPDX-License-Identifier: Apache-2.0
//
// What of a ledger a report is about: the records that pass the request's filters, newest runs
// only, each with the environment it was made in; and the words for shapes and configs. The parts
// of a report (collect.cc) are pure functions of it.
//
// Threading: values and pure functions. Pointers are into the Evidence they came from.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tuner/report/collect.h"

namespace kvr::report {

// "a=1,b=2" as pairs; what is no pair is a name without a value.
std::map<std::string, std::string> Pairs(std::string_view text);

// Short names for texts "a=1,b=2" of one kind: the pairs in which they differ.
class ShortNames {
 public:
  ShortNames() = default;
  explicit ShortNames(const std::set<std::string>& texts);
  std::string operator()(const std::string& text) const;  // empty where all are the same
  const std::map<std::string, std::string>& common() const { return common_; }

 private:
  std::map<std::string, std::string> common_;
};

template <class Record>
struct Made {
  Record record;
  int place = 0;  // of Evidence::places
};

// The trials of one race.
struct Race {
  std::string axes, mode, session;
  int place = 0;
  std::vector<const ledger::Trial*> trials;
  std::set<std::pair<std::string, std::string>> unfit;  // variant, config: failed before it
  std::optional<Made<ledger::Verdict>> verdict;         // of its winner; none: nobody to meet
};

// Both sides of a comparison in one session; null: not in the ledger.
struct Pair {
  const ledger::Trial* incumbent = nullptr;
  const ledger::Trial* challenger = nullptr;
};

struct Evidence {
  std::vector<ledger::Environment> places;
  std::set<int> used;  // places that something below was made in

  // Ship verdicts, quick ones, races, A against A; by challenger, place, mode, shape.
  std::vector<Made<ledger::Verdict>> verdicts;
  std::vector<Made<ledger::Verdict>> singles;  // of kind "single"; by place, mode, shape
  std::vector<Made<ledger::Trial>> trials;     // all, oldest first
  std::vector<Race> races;
  std::vector<Made<ledger::Trial>> failures;  // newest of each config that did not pass
  std::vector<Made<ledger::Build>> builds;    // failed ones that no trial speaks of
  std::vector<Made<ledger::Band>> bands;
  std::vector<Made<ledger::Publication>> publications;
  std::vector<Made<ledger::Summary>> summaries;

  ShortNames shapes;
  std::map<std::string, ShortNames> configs;    // by variant
  std::map<std::string, std::string> defaults;  // by variant: of CollectRequest
  const OpSpec* op = nullptr;
  bool several_modes = false;

  std::string Shape(const std::string& axes) const;
  std::string Key(const std::string& axes) const;  // of a tuning key, maybe part of a shape
  // By name alone where the config is the variant's default, else with what differs, or all of it.
  Contestant Short(const std::string& variant, const std::string& config) const;
  Contestant Whole(const std::string& variant, const std::string& config) const;
  bool IsDefault(const std::string& variant, const std::string& config) const;
  std::string Place(int place) const;                           // the device's name, told apart
  std::string Where(int place, const std::string& mode) const;  // what is not the same for all
};

// The request with its time as the ledger writes times. Errors: Collect's kInvalidArgument.
absl::StatusOr<CollectRequest> Checked(const ledger::Ledger& ledger, CollectRequest request);
absl::StatusOr<Evidence> Gather(const ledger::Ledger& ledger, const CollectRequest& request);

// The sessions behind a verdict, in the order taken.
std::vector<Pair> SessionsOf(const Evidence& evidence, const Made<ledger::Verdict>& verdict);
// The median of all that was sampled of one side; NaN: nothing was.
double MedianUs(const std::vector<Pair>& sessions, const ledger::Trial* Pair::*side);
// Its numbers are right, its times must not be read.
bool InTrouble(const ledger::Trial& trial);
// Who a race chose; null: nobody.
const ledger::Trial* WinnerOf(const Race& race);
// Its position in the order of a race's stages; -1: it is none.
int StageOf(const ledger::Trial& trial);

Row RowOf(const Evidence& evidence, const Made<ledger::Verdict>& verdict);

// The parts. `rows` are of evidence.verdicts, one each, in their order.
std::vector<std::string> Conclusion(const Evidence& evidence, const std::vector<Row>& rows);
std::vector<Singles> AllSingles(const Evidence& evidence);
std::vector<std::string> Negatives(const Evidence& evidence, const std::vector<Row>& rows);
std::vector<Samples> AllSamples(const Evidence& evidence);
std::vector<Funnel> Funnels(const Evidence& evidence);
std::vector<std::string> Regret(const Evidence& evidence);
std::vector<Scaling> Scalings(const Evidence& evidence, const CollectRequest& request);

// "a", "a and b", "a, b and c".
std::string Listed(const std::vector<std::string>& items);
std::string Plural(size_t count, std::string_view noun);  // "1 shape", "2 shapes"

}  // namespace kvr::report
