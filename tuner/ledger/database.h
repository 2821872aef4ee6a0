// SPDX-License-Identifier: Apache-2.0
//
// One ledger file: opened, brought to the current schema, and its records read and written by their
// Fields. SQLiteCpp's exceptions leave it as they are; ledger.cc turns them into statuses.
//
// Threading: one caller at a time.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tuner/ledger/ledger.h"

namespace kvr::ledger {

// What SQLite threw, as a status.
absl::Status FromSqlite(std::string_view path, const SQLite::Exception& error);

// `wal`: else SQLite's rollback journal, which network file systems can do.
absl::StatusOr<std::unique_ptr<SQLite::Database>> OpenDatabase(const std::string& path,
                                                               bool read_only, bool wal);

// Is `column` of a later schema than the file's? Then every record has it empty.
bool Lacks(SQLite::Database& database, std::string_view column);

// An environment's uid is its content's; every other record's is a NewUid (ledger.h).
std::string UidOf(const Environment& environment);

namespace columns {

inline std::string Quoted(std::string_view name) { return '"' + std::string(name) + '"'; }

// Binds a record's fields from parameter `next` on. What is no finite number is NULL, and NaN again
// when it is read: neither SQLite nor JSON knows NaN and infinity.
struct Bind {
  SQLite::Statement& statement;
  int next;
  void operator()(const char*, const std::string& value) { statement.bind(next++, value); }
  void operator()(const char*, int64_t value) { statement.bind(next++, value); }
  void operator()(const char*, double value) {
    if (!std::isfinite(value)) {
      statement.bind(next++);
    } else {
      statement.bind(next++, value);
    }
  }
  void operator()(const char*, const std::vector<double>& values) {
    // A null pointer would be NULL, which is not the same as no values.
    const void* data = values.empty() ? static_cast<const void*>("") : values.data();
    statement.bind(next++, data, static_cast<int>(values.size() * sizeof(double)));
  }
};

struct Read {
  SQLite::Statement& statement;
  int next;
  void operator()(const char*, std::string& value) {
    value = statement.getColumn(next++).getString();
  }
  void operator()(const char*, int64_t& value) { value = statement.getColumn(next++).getInt64(); }
  void operator()(const char*, double& value) {
    const SQLite::Column column = statement.getColumn(next++);
    value = column.isNull() ? std::numeric_limits<double>::quiet_NaN() : column.getDouble();
  }
  void operator()(const char*, std::vector<double>& values) {
    const SQLite::Column column = statement.getColumn(next++);
    values.resize(static_cast<size_t>(column.getBytes()) / sizeof(double));
    if (!values.empty())
      std::memcpy(values.data(), column.getBlob(), values.size() * sizeof(double));
  }
};

template <class Record>
std::vector<std::string> NamesOf() {
  std::vector<std::string> names;
  const Record record;
  Record::Fields(record, [&](const char* name, const auto&) { names.emplace_back(name); });
  return names;
}

}  // namespace columns

// Stores the record under its uid; false: it is there already.
template <class Record>
bool Insert(SQLite::Database& database, const Record& record) {
  std::string names = "uid", values = "?";
  for (const std::string& name : columns::NamesOf<Record>()) {
    names += ", " + columns::Quoted(name);
    values += ", ?";
  }
  SQLite::Statement insert(database, std::string("INSERT INTO ") + Record::kTable + " (" + names +
                                         ") VALUES (" + values + ") ON CONFLICT(uid) DO NOTHING");
  insert.bind(1, record.uid);
  columns::Bind bind{insert, 2};
  Record::Fields(record, bind);
  return insert.exec() > 0;
}

// `where`: SQL, "1" for all; `values` bind its parameters. Oldest first, the newest `limit`.
// Samples that are left out are not read from the disk either.
template <class Record>
std::vector<Record> Select(SQLite::Database& database, const std::string& where,
                           const std::vector<std::string>& values, int limit,
                           Samples samples = Samples::kRead) {
  std::string names = "id, uid";
  for (const std::string& name : columns::NamesOf<Record>()) {
    const bool left_out = samples == Samples::kLeaveOut && name == "samples";
    names += ", " + (left_out ? "x''" : Lacks(database, name) ? "''" : columns::Quoted(name));
  }
  std::string query = std::string("SELECT ") + names + " FROM " + Record::kTable + " WHERE " +
                      where + " ORDER BY id DESC";
  if (limit > 0) query += " LIMIT " + std::to_string(limit);
  SQLite::Statement select(database, query);
  for (size_t i = 0; i < values.size(); ++i) select.bind(static_cast<int>(i) + 1, values[i]);
  std::vector<Record> records;
  while (select.executeStep()) {
    Record& record = records.emplace_back();
    record.id = select.getColumn(0).getInt64();
    record.uid = select.getColumn(1).getString();
    columns::Read read{select, 2};
    Record::Fields(record, read);
  }
  return {records.rbegin(), records.rend()};
}

}  // namespace kvr::ledger
