// SPDX-License-Identifier: Apache-2.0
#include "tuner/ledger/database.h"

#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/status.h"
#include "core/strings.h"
#include "tuner/ledger/schema.h"

namespace kvr::ledger {
namespace {

constexpr int kBusyTimeoutMs = 10000;

// user_version, read from the file's header: SQLite itself would make files beside a database that
// must stay as it is. -1: no such file; 0 also for one that is empty.
int64_t VersionInHeader(const std::string& path) {
  constexpr std::streamoff kUserVersion = 60;  // big-endian, 4 bytes: SQLite's file format, 1.3
  std::ifstream file(path, std::ios::binary);
  if (!file) return -1;
  unsigned char bytes[4] = {};
  file.seekg(kUserVersion);
  file.read(reinterpret_cast<char*>(bytes), sizeof bytes);
  if (!file) return 0;
  return (int64_t{bytes[0]} << 24) | (bytes[1] << 16) | (bytes[2] << 8) | bytes[3];
}

void Migrate(SQLite::Database& database) {
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  // Asked inside the transaction: another process may just have done it.
  int version = database.execAndGet("PRAGMA user_version").getInt();
  for (; version < kSchemaVersion; ++version) {
    database.exec(kMigrations[static_cast<size_t>(version)]);
  }
  database.exec("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  transaction.commit();
}

// How to open what lies on a read-only file system, where SQLite cannot make the files that it
// wants beside a database in WAL mode: nobody writes there, so it may be read as it is. Empty: the
// usual way, also where a killed writer has left a log that must be read.
std::string FrozenUri(const std::string& path) {
  std::error_code error;
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (access(directory.c_str(), W_OK) == 0 || errno != EROFS) return "";
  if (std::filesystem::exists(path + "-wal", error)) return "";
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      char escaped[4];
      std::snprintf(escaped, sizeof escaped, "%%%02x", static_cast<unsigned char>(c));
      uri += escaped;
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

absl::Status FromSqlite(std::string_view path, const SQLite::Exception& error) {
  const std::string what = StrCat("ledger ", path, ": ", error.what());
  switch (error.getErrorCode()) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return Error(absl::StatusCode::kDataLoss, what,
                   "move the file away; a new ledger is made in its place");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(absl::StatusCode::kUnavailable, what, "another process holds it: try again");
    case SQLITE_FULL:
      return Error(absl::StatusCode::kUnavailable, what, "make room on its disk");
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_IOERR:
      return Error(absl::StatusCode::kUnavailable, what,
                   "make it writable, or name another directory");
    default:
      return Error(absl::StatusCode::kInternal, what, "");
  }
}

absl::StatusOr<std::unique_ptr<SQLite::Database>> OpenDatabase(const std::string& path,
                                                               bool read_only, bool wal) {
  const int64_t version = VersionInHeader(path);
  if (version > kSchemaVersion) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat("ledger ", path, " has schema ", version, ", this KVR knows ", kSchemaVersion),
        "use the newer KVR, or name another directory");
  }
  if (read_only && version < 0) {
    return Error(absl::StatusCode::kNotFound, StrCat("there is no ledger ", path),
                 "measure something first, or name another directory");
  }
  try {
    // A ledger of an older schema is brought up to date by whoever can write it; readers ask for
    // the current one as well.
    const std::string frozen = read_only ? FrozenUri(path) : "";
    const int flags = !frozen.empty()
                          ? SQLite::OPEN_READONLY | SQLite::OPEN_URI
                          : SQLite::OPEN_READWRITE | (read_only ? 0 : SQLite::OPEN_CREATE);
    auto database =
        std::make_unique<SQLite::Database>(frozen.empty() ? path : frozen, flags, kBusyTimeoutMs);
    database->exec("PRAGMA foreign_keys = ON");
    if (database->execAndGet("PRAGMA user_version").getInt() < kSchemaVersion) {
      // A killed process costs nothing with either; power lost may cost the last records, never
      // the file.
      database->exec(wal ? "PRAGMA journal_mode = WAL" : "PRAGMA journal_mode = DELETE");
      Migrate(*database);
    }
    database->exec(wal ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL");
    return database;
  } catch (const SQLite::Exception& error) {
    return FromSqlite(path, error);
  }
}

std::string NewUid() {
  std::random_device random;
  std::string uid;
  for (int i = 0; i < 4; ++i) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", static_cast<unsigned>(random()));
    uid += part;
  }
  return uid;
}

}  // namespace kvr::ledger
