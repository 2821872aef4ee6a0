// SPDX-License-Identifier: Apache-2.0
//
// A ledger as JSON lines: {"table": "trials", "uid": ..., "environment": UID, column: value, ...}.
// Environments come first; a record names its environment by uid, since ids are of one file.
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/database.h"
#include "tuner/ledger/ledger.h"
#include "tuner/ledger/ledger_impl.h"

namespace kvr::ledger {
namespace {

using nlohmann::json;

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
    ++fields;
    if (std::string_view(name) != "environment") Take(line, name, value);
  });
  if (line.size() != fields) throw BadLine{"has fields that this KVR does not know"};
  return record;
}

template <class Record>
void ExportTable(SQLite::Database& database, std::ostream& out, std::set<std::string>* written) {
  for (const Record& record : Select<Record>(database, "1", {}, 0)) {
    if (!written->insert(record.uid).second) continue;
    json line = ToJson(record);
    if constexpr (!std::is_same_v<Record, Environment>) {
      line["environment"] =
          Select<Environment>(database, "id = ?", {std::to_string(record.environment)}, 1)
              .at(0)
              .uid;
    }
    out << line.dump() << '\n';
  }
}

template <class Record>
bool ImportRecord(SQLite::Database& database, const json& line) {
  Record record = FromJson<Record>(line);
  if constexpr (!std::is_same_v<Record, Environment>) {
    std::string environment;
    Take(line, "environment", environment);
    const auto found = Select<Environment>(database, "uid = ?", {environment}, 1);
    if (found.empty()) throw BadLine{"names an environment that no line before it has"};
    record.environment = found.front().id;
  }
  return Insert(database, record);
}

bool ImportLine(SQLite::Database& database, const std::string& text) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) throw BadLine{"is no JSON object"};
  std::string table;
  Take(line, "table", table);
  if (table == Environment::kTable) return ImportRecord<Environment>(database, line);
  if (table == Build::kTable) return ImportRecord<Build>(database, line);
  if (table == Trial::kTable) return ImportRecord<Trial>(database, line);
  if (table == Verdict::kTable) return ImportRecord<Verdict>(database, line);
  if (table == Band::kTable) return ImportRecord<Band>(database, line);
  if (table == Publication::kTable) return ImportRecord<Publication>(database, line);
  if (table == Summary::kTable) return ImportRecord<Summary>(database, line);
  throw BadLine{StrCat("is of a table '", table, "' that this KVR does not know")};
}

absl::StatusOr<Imported> ImportAll(SQLite::Database& database, const std::string& path,
                                   std::istream& in) {
  int64_t number = 0;
  Imported imported;
  try {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    for (std::string text; std::getline(in, text);) {
      ++number;
      if (!text.empty()) ++(ImportLine(database, text) ? imported.added : imported.known);
    }
    transaction.commit();
  } catch (const BadLine& bad) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat("line ", number, " of the import ", bad.what),
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
