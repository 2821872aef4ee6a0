// SPDX-License-Identifier: Apache-2.0
//
// A ledger as JSON lines: {"table": "trials", "uid": ..., "environment": UID, column: value, ...}.
// Environments come first; a record names its environment by uid, since ids are of one file. An
// environment's uid is of its content; one that somebody wrote by hand may be any name.
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <utility>

#include "core/fingerprint.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/check.h"
#include "tuner/ledger/database.h"
#include "tuner/ledger/ledger.h"
#include "tuner/ledger/ledger_impl.h"

namespace kvr::ledger {
namespace {

using nlohmann::json;

// What an export of an earlier KVR lacks, and is empty then.
constexpr std::string_view kAddedLater = "quality";

// A fault of the line at hand; Import adds its number.
struct BadLine {
  std::string what;
};

template <class Record>
json ToJson(const Record& record) {
  json line = {{"table", Record::kTable}, {"uid", record.uid}};
  Record::Fields(record, [&](const char* name, const auto& value) { line[name] = value; });
  return line;
}

// JSON writes what is no finite number as null.
double Number(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

int64_t Integer(const json& value, const char* name) {
  const bool exact =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
          : value.is_number_integer();
  if (value.is_number() && !exact) {
    throw BadLine{
        StrCat("has a '", name, "' of ", value.dump(), ": it must be an integer of 64 bits")};
  }
  return value.get<int64_t>();
}

template <class T>
void Take(const json& line, const char* name, T& value) {
  const auto found = line.find(name);
  if (found == line.end()) throw BadLine{StrCat("has no '", name, "'")};
  try {
    if constexpr (std::is_same_v<T, double>) {
      value = Number(*found);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      for (const json& element : found->get_ref<const json::array_t&>()) {
        value.push_back(Number(element));
      }
    } else if constexpr (std::is_same_v<T, int64_t>) {
      value = Integer(*found, name);
    } else {
      value = found->template get<T>();
    }
  } catch (const json::exception&) {
    throw BadLine{StrCat("has a '", name, "' of another type")};
  }
}

template <class Record>
Record FromJson(const json& line) {
  Record record;
  size_t fields = 2;  // table, uid
  Take(line, "uid", record.uid);
  Record::Fields(record, [&](const char* name, auto& value) {
    if (std::string_view(name) == kAddedLater && !line.contains(name)) return;
    ++fields;
    if (std::string_view(name) != "environment") Take(line, name, value);
  });
  if (line.size() != fields) throw BadLine{"has fields that this KVR does not know"};
  return record;
}

// Bytes that are no UTF-8, which JSON cannot hold, are replaced.
std::string TextOf(const json& line) {
  return line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

// That of the content as it is written here.
std::string UidInText(const Environment& environment) {
  return UidOf(FromJson<Environment>(json::parse(TextOf(ToJson(environment)))));
}

// A record as it is written, whichever ledger it lies in.
template <class Record>
std::string LineOf(SQLite::Database& database, const Record& record) {
  json line = ToJson(record);
  if constexpr (std::is_same_v<Record, Environment>) {
    line["uid"] = UidInText(record);
  } else {
    const std::string id = std::to_string(record.environment);
    line["environment"] = UidInText(Select<Environment>(database, "id = ?", {id}, 1).at(0));
  }
  return TextOf(line);
}

template <class Record>
void ExportTable(SQLite::Database& database, std::ostream& out, std::set<std::string>* written) {
  for (const Record& record : Select<Record>(database, "1", {}, 0)) {
    if (written->insert(record.uid).second) out << LineOf(database, record) << '\n';
  }
}

class Importer {
 public:
  explicit Importer(SQLite::Database& database) : database_(database) {}

  // Was it new? Throws BadLine.
  bool Line(const std::string& text) {
    at_.clear();
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) throw BadLine{"is no JSON object"};
    std::string table;
    Take(line, "table", table);
    if (const auto uid = line.find("uid"); uid != line.end() && uid->is_string()) {
      at_ = StrCat(" (", table, " ", Quoted(uid->get<std::string>()), ")");
    }
    if (table == Environment::kTable) return TakeRecord<Environment>(line);
    if (table == Build::kTable) return TakeRecord<Build>(line);
    if (table == Trial::kTable) return TakeRecord<Trial>(line);
    if (table == Verdict::kTable) return TakeRecord<Verdict>(line);
    if (table == Band::kTable) return TakeRecord<Band>(line);
    if (table == Publication::kTable) return TakeRecord<Publication>(line);
    if (table == Summary::kTable) return TakeRecord<Summary>(line);
    throw BadLine{StrCat("is of a table '", table, "' that this KVR does not know")};
  }

  // The record of the line at hand, where it says which.
  const std::string& at() const { return at_; }

 private:
  template <class Record>
  bool TakeRecord(const json& line) {
    Record record = FromJson<Record>(line);
    const absl::Status checked = Check(record);
    if (!checked.ok()) throw BadLine{std::string(What(checked))};
    if constexpr (std::is_same_v<Record, Environment>) {
      Name(record);
    } else {
      std::string environment;
      Take(line, "environment", environment);
      record.environment = Named(environment);
    }
    const bool added = Insert(database_, record);
    if (!added) {
      const auto known = Select<Record>(database_, "uid = ?", {record.uid}, 1);
      if (LineOf(database_, known.at(0)) != LineOf(database_, record)) {
        throw BadLine{"has the 'uid' of another record, which differs"};
      }
    }
    return added;
  }

  // An environment is known by its content alone. What its line calls it is a name for the lines
  // after it; a name that could be a uid must be the right one.
  void Name(Environment& environment) {
    const std::string name = std::exchange(environment.uid, UidOf(environment));
    if (name != environment.uid && Fingerprint::FromHex(name).ok()) {
      throw BadLine{StrCat("has a 'uid' that is not its content's, which is ", environment.uid)};
    }
    if (names_.emplace(name, environment.uid).first->second != environment.uid) {
      throw BadLine{"has the 'uid' of another environment, which differs"};
    }
  }

  // The id of the environment that a line calls so.
  int64_t Named(const std::string& name) const {
    const auto named = names_.find(name);
    const std::string& uid = named == names_.end() ? name : named->second;
    const auto found = Select<Environment>(database_, "uid = ?", {uid}, 1);
    if (found.empty()) throw BadLine{"names an environment that no line before it has"};
    return found.front().id;
  }

  SQLite::Database& database_;
  std::string at_;
  std::map<std::string, std::string> names_;  // to uids
};

absl::StatusOr<Imported> ImportAll(SQLite::Database& database, const std::string& path,
                                   std::istream& in) {
  int64_t number = 0;
  Imported imported;
  Importer importer(database);
  try {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    for (std::string text; std::getline(in, text);) {
      ++number;
      if (!text.empty()) ++(importer.Line(text) ? imported.added : imported.known);
    }
    transaction.commit();
  } catch (const BadLine& bad) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("line ", number, " of the import", importer.at(), " ", bad.what),
                 "import what `kvr ledger export` wrote; nothing was taken over");
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path, error);
  }
  return imported;
}

}  // namespace

absl::StatusOr<int64_t> Ledger::Export(std::ostream& out) const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::set<std::string> written;
  try {
    for (SQLite::Database* database : impl_->databases()) {
      // One moment of a ledger that others go on writing.
      SQLite::Transaction moment(*database);
      ExportTable<Environment>(*database, out, &written);
      ExportTable<Build>(*database, out, &written);
      ExportTable<Trial>(*database, out, &written);
      ExportTable<Verdict>(*database, out, &written);
      ExportTable<Band>(*database, out, &written);
      ExportTable<Publication>(*database, out, &written);
      ExportTable<Summary>(*database, out, &written);
    }
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path_, error);
  }
  out.flush();
  if (!out) {
    return Error(absl::StatusCode::kUnavailable, "the export could not be written",
                 "make room on its disk");
  }
  return static_cast<int64_t>(written.size());
}

absl::StatusOr<Imported> Ledger::Import(std::istream& in) {
  KVR_RETURN_IF_ERROR(impl_->Writable(path_));
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return ImportAll(*impl_->own, path_, in);
}

absl::StatusOr<Imported> Ledger::Rehearse(std::istream& in) {
  KVR_ASSIGN_OR_RETURN(const std::unique_ptr<SQLite::Database> nowhere,
                       OpenDatabase(":memory:", false, /*wal=*/false));
  return ImportAll(*nowhere, "in memory", in);
}

}  // namespace kvr::ledger
